"""Operations on sessions: begin, reset, resume, and what was said in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from hermes_core.ids import new_id
from hermes_core.messages import Address, encode
from hermes_core.store.database import Tx

_IDLE = (
    "NOT EXISTS (SELECT 1 FROM inbox i WHERE i.session_key = s.session_key AND i.state = 'waiting')"
    " AND NOT EXISTS (SELECT 1 FROM turn t WHERE t.session_key = s.session_key"
    " AND t.state = 'running')"
)
_address = msgspec.json.Decoder(Address)


def decode_address(stored: bytes) -> Address | None:
    """Where a session is, None when it is damaged."""
    try:
        return _address.decode(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


@dataclass(frozen=True, slots=True)
class Line:
    """One line for the transcript."""

    role: Literal["user", "assistant"]
    text: str
    sender_id: str = ""
    sender_name: str = ""


@dataclass(frozen=True, slots=True)
class EndedSession:
    """A session that ended, and why."""

    session_id: str
    session_key: str
    generation: int
    reason: str


def current(tx: Tx, session_key: str) -> tuple[str, int] | None:
    """Id and generation of the session behind a key now; None when nothing was said in it yet."""
    row = tx.execute(
        "SELECT id, generation FROM session WHERE session_key = ? AND generation = ?",
        (session_key, generation(tx, session_key)),
    ).fetchone()
    return None if row is None else (str(row[0]), int(row[1]))


def generation(tx: Tx, session_key: str) -> int:
    """How often the session behind a key was reset."""
    row = tx.execute(
        "SELECT generation FROM generation WHERE session_key = ?", (session_key,)
    ).fetchone()
    return 0 if row is None else int(row[0])


def get_or_begin(
    tx: Tx, session_key: str, generation: int, address: Address, now: float
) -> tuple[str, bool]:
    """The session of a key and generation, and whether it begins here, at `address`."""
    row = tx.execute(
        "SELECT id FROM session WHERE session_key = ? AND generation = ?",
        (session_key, generation),
    ).fetchone()
    if row is not None:
        return str(row[0]), False
    session_id = new_id("s")
    tx.execute(
        "INSERT INTO session (id, session_key, generation, address, created_at, active_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (session_id, session_key, generation, encode(address), now, now),
    )
    return session_id, True


def reset(tx: Tx, session_key: str, reason: str, now: float) -> EndedSession | None:
    """End the session behind a key; what comes next begins another. None when there was none to
    end."""
    found = current(tx, session_key)
    advance(tx, session_key)
    if found is None:
        return None
    tx.execute(
        "UPDATE session SET ended_at = ?, end_reason = ? WHERE id = ?", (now, reason, found[0])
    )
    return EndedSession(found[0], session_key, found[1], reason)


def expire(
    tx: Tx, session_key: str, idle_since: float, reason: str, now: float
) -> EndedSession | None:
    """Reset a session that was last active before `idle_since` and has nothing to do."""
    found = current(tx, session_key)
    if found is None:
        return None
    row = tx.execute(
        f"SELECT 1 FROM session s WHERE s.id = ? AND s.active_at < ? AND {_IDLE}",  # noqa: S608
        (found[0], idle_since),
    ).fetchone()
    return None if row is None else reset(tx, session_key, reason, now)


def expire_all(
    tx: Tx, idle_since: float, reason: str, now: float, limit: int
) -> list[tuple[EndedSession, Address]]:
    """Reset so many of the sessions that `expire` would reset; those first that are idle longest.
    Where they were; one of which that cannot be read is left out."""
    found = tx.execute(
        "SELECT s.session_key, s.address FROM session s LEFT JOIN generation g"  # noqa: S608
        " ON g.session_key = s.session_key WHERE s.ended_at IS NULL AND s.active_at < ?"
        f" AND s.generation = COALESCE(g.generation, 0) AND {_IDLE} ORDER BY s.active_at LIMIT ?",
        (idle_since, limit),
    ).fetchall()
    ended = [(reset(tx, key, reason, now), decode_address(stored)) for key, stored in found]
    return [(session, address) for session, address in ended if session and address]


def advance(tx: Tx, session_key: str) -> int:
    """The next generation of a key. Generations only rise."""
    tx.execute(
        "INSERT INTO generation (session_key, generation) VALUES (?, 1)"
        " ON CONFLICT (session_key) DO UPDATE SET generation = generation + 1",
        (session_key,),
    )
    return generation(tx, session_key)


def resume(tx: Tx, session_key: str, session_id: str, now: float) -> EndedSession | None:
    """Make an earlier session of the same key the current one, in place of the one that is."""
    ended = reset(tx, session_key, "resumed another", now)
    tx.execute(
        "UPDATE session SET generation = ?, ended_at = NULL, end_reason = '', active_at = ?"
        " WHERE id = ? AND session_key = ?",
        (generation(tx, session_key), now, session_id, session_key),
    )
    return ended


def earlier(tx: Tx, session_key: str, limit: int) -> list[tuple[str, float, int, str]]:
    """The sessions of a key, the latest first: id, last activity, lines, and how it began."""
    return tx.execute(
        "SELECT s.id, s.active_at, (SELECT COUNT(*) FROM message m WHERE m.session_id = s.id),"
        " COALESCE((SELECT m.text FROM message m WHERE m.session_id = s.id ORDER BY m.id LIMIT 1),"
        " '') FROM session s WHERE s.session_key = ? ORDER BY s.active_at DESC, s.id LIMIT ?",
        (session_key, limit),
    ).fetchall()


def add_lines(tx: Tx, session_id: str, turn_id: str, lines: list[Line], now: float) -> None:
    """Add to the transcript; `turn_id` is "" for what no turn said."""
    for line in lines:
        tx.execute(
            "INSERT INTO message (session_id, turn_id, role, sender_id, sender_name, text,"
            " created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (session_id, turn_id, line.role, line.sender_id, line.sender_name, line.text, now),
        )


def last_turns(tx: Tx, session_id: str, count: int) -> list[str]:
    """Ids of the latest turns that have lines in the transcript, the last one first."""
    found = tx.execute(
        "SELECT turn_id FROM message WHERE session_id = ? AND hidden = 0 AND turn_id <> ''"
        " GROUP BY turn_id ORDER BY MAX(id) DESC LIMIT ?",
        (session_id, count),
    ).fetchall()
    return [str(turn_id) for (turn_id,) in found]


def hide_turn(tx: Tx, session_id: str, turn_id: str) -> None:
    """Take a turn out of what the agent remembers. Its lines stay in the database."""
    tx.execute(
        "UPDATE message SET hidden = 1 WHERE session_id = ? AND turn_id = ?", (session_id, turn_id)
    )


def history(tx: Tx, session_id: str, max_chars: int) -> list[tuple[str, str, str, float]]:
    """The latest lines of a transcript that fit into `max_chars`, oldest first."""
    lines: list[tuple[str, str, str, float]] = []
    left = max_chars
    for line in tx.execute(
        "SELECT role, text, sender_name, created_at FROM message"
        " WHERE session_id = ? AND hidden = 0 ORDER BY id DESC",
        (session_id,),
    ):
        left -= len(line[1])
        if left < 0:
            break
        lines.append(line)
    return lines[::-1]
