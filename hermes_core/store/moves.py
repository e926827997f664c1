"""A chat gets another id: everything of it follows, in one transaction.

What is renamed: sessions, turns, waiting and past events and deliveries by their session key; the
address inside what is still to be done; pauses. What stays: the chat id that an event of the inbox
came in under. It is half of the event's identity, and a chat with a new id counts its messages from
the beginning again: the fifth message there is not the fifth message of before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from hermes_core.messages import Address, decode_inbound, encode
from hermes_core.store import sessions
from hermes_core.store.database import Tx
from hermes_core.store.outbox import Chat, decode
from hermes_core.store.sessions import EndedSession

JOINED = "joined by the session of the chat that moved here"
LEFT = "joined the session of the chat that it moved to"


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move did.

    `keys` are the session keys that were renamed, `waiting` the new ones that have waiting rows,
    with the highest sequence. `highest` is the last row to be sent in the new chat, 0 for none.
    `pause` is how many seconds the platform still wants silence there. `ended` are the sessions
    that gave way to an older one.
    """

    keys: Mapping[str, str]
    waiting: tuple[tuple[str, int], ...]
    highest: int
    pause: float
    ended: tuple[tuple[EndedSession, Address], ...]


def move(tx: Tx, chat: Chat, new: str, prefixes: Mapping[str, str], now: float) -> Moved:
    """Let everything of a chat be of the chat `new` of the same account.

    `prefixes` are what session keys of the chat begin with, before and after. Doing it again does
    nothing, unless something came in under the old id meanwhile.
    """
    keys = {
        key: after + key.removeprefix(before)
        for before, after in prefixes.items()
        for key in _keys(tx, before)
    }
    for key in keys:
        _readdress_events(tx, key, chat.chat_id, new)
        _readdress_sessions(tx, key, chat.chat_id, new)
    _readdress_messages(tx, chat, new)
    losers = [loser for key, to in keys.items() if (loser := _join(tx, key, to, now))]
    (highest,) = tx.execute(
        "SELECT COALESCE(MAX(sequence), 0) FROM outbox WHERE account = ? AND chat_id = ?"
        " AND state IN ('pending', 'attempting')",
        (chat.account, new),
    ).fetchone()
    return Moved(
        keys,
        _waiting(tx, keys.values()),
        highest,
        _pause(tx, chat, new, now),
        tuple(
            (loser, address)
            for loser in losers
            if (address := _address_of(tx, loser.session_id)) is not None
        ),
    )


def _keys(tx: Tx, prefix: str) -> list[str]:
    """The session keys in use that begin with the parts of `prefix`: it itself, and those with more
    parts. A semicolon is what follows a colon."""
    tables = ("session", "turn", "inbox", "outbox")
    found = " UNION ".join(
        f"SELECT session_key FROM {table} WHERE session_key = :whole"  # noqa: S608 - our own names
        f" OR (session_key >= :whole || ':' AND session_key < :whole || ';')"
        for table in tables
    )
    return [key for (key,) in tx.execute(found, {"whole": prefix}).fetchall()]


# ── addresses ────────────────────────────────────────────────────────────────────────────────────


def _readdress_events(tx: Tx, key: str, old: str, new: str) -> None:
    """Events that are still to be answered, or can be given another chance. Their answers hang on
    nothing, and no edit reaches them: ids of messages belong to the chat that is gone."""
    rows = tx.execute(
        "SELECT sequence, payload FROM inbox WHERE session_key = ?"
        " AND state IN ('waiting', 'running', 'dead')",
        (key,),
    ).fetchall()
    for sequence, payload in rows:
        event = decode_inbound(payload)
        if event is not None and event.address.chat_id == old:
            address = msgspec.structs.replace(event.address, chat_id=new)
            event = msgspec.structs.replace(event, address=address, message_id="")
            tx.execute(
                "UPDATE inbox SET payload = ?, message_id = '' WHERE sequence = ?",
                (encode(event), sequence),
            )


def _readdress_sessions(tx: Tx, key: str, old: str, new: str) -> None:
    rows = tx.execute("SELECT id, address FROM session WHERE session_key = ?", (key,)).fetchall()
    for session_id, stored in rows:
        address = sessions.decode_address(stored)
        if address is not None and address.chat_id == old:
            moved = msgspec.structs.replace(address, chat_id=new)
            tx.execute("UPDATE session SET address = ? WHERE id = ?", (encode(moved), session_id))


def _readdress_messages(tx: Tx, chat: Chat, new: str) -> None:
    """Messages of the chat. What was not delivered yet is sent to the new one, and as a message of
    its own: the preview that it was to complete is in the chat that is gone."""
    rows = tx.execute(
        "SELECT sequence, payload FROM outbox WHERE account = ? AND chat_id = ?"
        " AND state <> 'delivered'",
        chat,
    ).fetchall()
    for sequence, payload in rows:
        message = decode(payload)
        if message is None:
            continue
        address = msgspec.structs.replace(message.address, chat_id=new)
        message = msgspec.structs.replace(message, address=address, reply_to=None)
        tx.execute(
            "UPDATE outbox SET payload = ?, edits = '', unsure = NULL WHERE sequence = ?",
            (encode(message), sequence),
        )
    tx.execute("UPDATE outbox SET chat_id = ? WHERE account = ? AND chat_id = ?", (new, *chat))


def _pause(tx: Tx, chat: Chat, new: str, now: float) -> float:
    """A pause that the platform asked for holds in the new chat as well; the longer one counts."""
    tx.execute(
        "INSERT INTO pause (account, chat_id, seconds, until)"
        " SELECT account, ?, seconds, until FROM pause WHERE account = ? AND chat_id = ?"
        " ON CONFLICT (account, chat_id) DO UPDATE SET seconds = excluded.seconds,"
        " until = excluded.until WHERE excluded.until > pause.until",
        (new, *chat),
    )
    tx.execute("DELETE FROM pause WHERE account = ? AND chat_id = ?", chat)
    row = tx.execute(
        "SELECT seconds, until FROM pause WHERE account = ? AND chat_id = ?", (chat.account, new)
    ).fetchone()
    return 0.0 if row is None else max(0.0, min(row[0], row[1] - now))


# ── sessions ─────────────────────────────────────────────────────────────────────────────────────


def _join(tx: Tx, key: str, to: str, now: float) -> EndedSession | None:
    """Rename one session key. The session that ended by it, if both keys had a current one.

    Where nothing was said under the new key, generations stay as they are. Otherwise those of the
    old key are lifted above those of the new one, so that all sessions stay apart and the
    generation of the new key only rises. The session that began first goes on as the current one,
    the other one ends, and whatever waits under either key is answered in the one that goes on.
    The generation of the old key stays where it is: generations are never taken back.
    """
    mine, theirs = _current(tx, key), _current(tx, to)
    before, last = sessions.generation(tx, to), sessions.generation(tx, key)
    lift = before + 1 if _is_known(tx, to) else 0
    stays = theirs is not None and (mine is None or theirs < mine)
    number = last + lift + int(stays)
    for owner, current, target in ((to, before, number), (key, last, number - lift)):
        tx.execute(
            "UPDATE inbox SET generation = ? WHERE session_key = ? AND generation = ?"
            " AND state = 'waiting'",
            (target, owner, current),
        )
    tx.execute("UPDATE turn SET preview = '', unsure = NULL WHERE session_key = ?", (key,))
    for table in ("session", "inbox", "turn"):
        tx.execute(
            f"UPDATE {table} SET session_key = ?, generation = generation + ?"  # noqa: S608
            " WHERE session_key = ?",
            (to, lift, key),
        )
    tx.execute("UPDATE outbox SET session_key = ? WHERE session_key = ?", (to, key))
    if number:
        tx.execute(
            "INSERT INTO generation (session_key, generation) VALUES (?, ?)"
            " ON CONFLICT (session_key) DO UPDATE SET generation = excluded.generation",
            (to, number),
        )
    if theirs is None:
        return None
    if stays:
        tx.execute("UPDATE session SET generation = ? WHERE id = ?", (number, theirs[1]))
        loser, generation, reason = mine, last + lift, LEFT
    else:
        loser, generation, reason = theirs, before, JOINED
    if loser is None:
        return None
    tx.execute(
        "UPDATE session SET ended_at = ?, end_reason = ? WHERE id = ?", (now, reason, loser[1])
    )
    return EndedSession(loser[1], to, generation, reason)


def _current(tx: Tx, key: str) -> tuple[float, str] | None:
    """Since when the current session of a key is there, and its id."""
    found = sessions.current(tx, key)
    if found is None:
        return None
    row = tx.execute("SELECT created_at, id FROM session WHERE id = ?", (found[0],)).fetchone()
    return float(row[0]), str(row[1])


def _is_known(tx: Tx, key: str) -> bool:
    tables = ("session", "generation")
    found = " UNION ALL ".join(
        f"SELECT 1 FROM {table} WHERE session_key = :key"  # noqa: S608 - our own names
        for table in tables
    )
    return tx.execute(f"{found} LIMIT 1", {"key": key}).fetchone() is not None


def _address_of(tx: Tx, session_id: str) -> Address | None:
    (stored,) = tx.execute("SELECT address FROM session WHERE id = ?", (session_id,)).fetchone()
    return sessions.decode_address(stored)


def _waiting(tx: Tx, keys: Iterable[str]) -> tuple[tuple[str, int], ...]:
    found = []
    for key in dict.fromkeys(keys):
        (highest,) = tx.execute(
            "SELECT MAX(sequence) FROM inbox WHERE session_key = ? AND state = 'waiting'", (key,)
        ).fetchone()
        if highest is not None:
            found.append((key, int(highest)))
    return tuple(found)
