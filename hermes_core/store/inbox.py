"""Operations on accepted events. Each runs inside the writer's transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from hermes_core.messages import Edited, Message, decode_inbound, encode
from hermes_core.store.database import Tx


@dataclass(frozen=True, slots=True)
class Arrival:
    """An admitted event on its way to the inbox.

    `ended` is empty for one that waits in its lane, else why it is done as soon as it is stored.
    """

    account: str
    chat_id: str
    event_id: str
    message_id: str
    sender_id: str
    type: str
    session_key: str
    payload: bytes
    received_at: float
    max_waiting: int
    ended: str = ""


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of an arrival. `sequence` is 0 for `full`: nothing was stored."""

    outcome: Literal["accepted", "duplicate", "full"]
    sequence: int


def has_message(
    tx: Tx, chat: tuple[str, str], message_id: str, session_key: str, generation: int
) -> bool:
    """Whether a session was given a message of a chat (its account and id), on a network whose
    messages and events have one id."""
    row = tx.execute(
        "SELECT 1 FROM inbox WHERE account = ? AND chat_id = ? AND event_id = ?"
        " AND session_key = ? AND generation = ?",
        (*chat, message_id, session_key, generation),
    ).fetchone()
    return row is not None


def insert(tx: Tx, arrival: Arrival) -> Stored:
    """Store an event once. The unique constraint is the only check for repeats."""
    if not arrival.ended and _is_full(tx, arrival):
        found = _find(tx, arrival)
        return Stored("duplicate", found) if found else Stored("full", 0)
    cursor = tx.execute(
        "INSERT INTO inbox (account, chat_id, event_id, message_id, sender_id, type, session_key,"
        " generation, payload, state, reason, received_at, ended_at) VALUES (?, ?, ?, ?, ?, ?, ?,"
        " COALESCE((SELECT generation FROM generation WHERE session_key = ?), 0), ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (
            arrival.account,
            arrival.chat_id,
            arrival.event_id,
            arrival.message_id,
            arrival.sender_id,
            arrival.type,
            arrival.session_key,
            arrival.session_key,
            arrival.payload,
            "done" if arrival.ended else "waiting",
            arrival.ended,
            arrival.received_at,
            arrival.received_at if arrival.ended else None,
        ),
    )
    if cursor.rowcount == 1 and cursor.lastrowid is not None:
        return Stored("accepted", cursor.lastrowid)
    return Stored("duplicate", _find(tx, arrival))


def edit(tx: Tx, session_key: str, event: Edited) -> bool:
    """Change a message that still waits, if its own sender edits it. False when it does not
    wait."""
    row = _waiting_message(tx, session_key, event.message_id, event.sender.id)
    if row is None:
        return False
    sequence, payload = row
    message = decode_inbound(payload)
    if not isinstance(message, Message):
        return False
    edited = msgspec.structs.replace(message, text=event.text, attachments=event.attachments)
    tx.execute("UPDATE inbox SET payload = ? WHERE sequence = ?", (encode(edited), sequence))
    return True


def withdraw(tx: Tx, session_key: str, message_id: str, sender_id: str, now: float) -> bool:
    """Take back a message that still waits, if its own sender deletes it."""
    row = _waiting_message(tx, session_key, message_id, sender_id)
    if row is None:
        return False
    tx.execute(
        "UPDATE inbox SET state = 'done', reason = 'withdrawn', ended_at = ? WHERE sequence = ?",
        (now, row[0]),
    )
    return True


def end(tx: Tx, sequence: int, reason: str, now: float) -> None:
    """End one row."""
    tx.execute(
        "UPDATE inbox SET state = 'done', reason = ?, ended_at = ? WHERE sequence = ?",
        (reason, now, sequence),
    )


def give_up(tx: Tx, sequence: int, reason: str, now: float) -> None:
    """End one row that cannot be worked on. A person can give it another chance."""
    tx.execute(
        "UPDATE inbox SET state = 'dead', reason = ?, ended_at = ? WHERE sequence = ?",
        (reason, now, sequence),
    )


def end_waiting(tx: Tx, session_key: str, reason: str, now: float, before: int) -> int:
    """End the rows of a session that wait and came before the sequence `before`. How many there
    were."""
    cursor = tx.execute(
        "UPDATE inbox SET state = 'done', reason = ?, ended_at = ?"
        " WHERE session_key = ? AND state = 'waiting' AND sequence < ?",
        (reason, now, session_key, before),
    )
    return cursor.rowcount


def waiting_keys(tx: Tx) -> list[tuple[str, int, int]]:
    """Every session with waiting rows, its highest waiting sequence and their number. For
    recovery."""
    return tx.execute(
        "SELECT session_key, MAX(sequence), COUNT(*) FROM inbox WHERE state = 'waiting'"
        " GROUP BY session_key ORDER BY MIN(sequence)"
    ).fetchall()


def count_waiting(tx: Tx, session_key: str) -> int:
    """How many messages of a session wait for a turn."""
    (count,) = tx.execute(
        "SELECT COUNT(*) FROM inbox WHERE session_key = ? AND state = 'waiting'", (session_key,)
    ).fetchone()
    return int(count)


def oldest_waiting(tx: Tx) -> float | None:
    """When the message arrived that waits longest; None when nothing waits."""
    (since,) = tx.execute("SELECT MIN(received_at) FROM inbox WHERE state = 'waiting'").fetchone()
    return None if since is None else float(since)


def _waiting_message(
    tx: Tx, session_key: str, message_id: str, sender_id: str
) -> tuple[int, bytes] | None:
    found: tuple[int, bytes] | None = tx.execute(
        "SELECT sequence, payload FROM inbox WHERE session_key = ? AND state = 'waiting'"
        " AND message_id = ? AND sender_id = ? AND type = 'message'",
        (session_key, message_id, sender_id),
    ).fetchone()
    return found


def _is_full(tx: Tx, arrival: Arrival) -> bool:
    row = tx.execute(
        "SELECT 1 FROM inbox WHERE session_key = ? AND state = 'waiting' LIMIT 1 OFFSET ?",
        (arrival.session_key, arrival.max_waiting - 1),
    ).fetchone()
    return row is not None


def _find(tx: Tx, arrival: Arrival) -> int:
    row = tx.execute(
        "SELECT sequence FROM inbox WHERE account = ? AND chat_id = ? AND event_id = ?",
        (arrival.account, arrival.chat_id, arrival.event_id),
    ).fetchone()
    return int(row[0]) if row else 0
