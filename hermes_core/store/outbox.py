"""Operations on messages to be sent, first-in-first-out per (account, chat)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from hermes_core.messages import Outbound, encode
from hermes_core.store.database import Tx

_decode = msgspec.json.Decoder(Outbound).decode


class Chat(NamedTuple):
    """What deliveries are ordered by."""

    account: str
    chat_id: str


@dataclass(frozen=True, slots=True)
class NewRow:
    """A message that is decided to be sent. `edits` is the platform id of the preview it completes."""

    message: Outbound
    session_key: str
    turn_id: str | None
    expires_at: float
    edits: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A row whose attempt is committed: the adapter may be called for it, once."""

    sequence: int
    message: Outbound
    session_key: str
    turn_id: str | None
    attempts: int
    edits: str
    expires_at: float


@dataclass(frozen=True, slots=True)
class Appended:
    """What `append` did: rows up to `highest` are there; `claimed` may be sent at once."""

    chat: Chat
    highest: int
    claimed: Row | None


Ended = Literal["delivered", "failed", "expired"]


def append(tx: Tx, rows: Sequence[NewRow], *, claim_first: bool) -> Appended | None:
    """Add rows of one chat. With `claim_first` and nothing before it, the first is claimed right here,
    which saves the transaction that would otherwise only say so."""
    if not rows:
        return None
    address = rows[0].message.address
    chat = Chat(address.account_key, address.chat_id)
    free = claim_first and not _has_open(tx, chat)
    claimed: Row | None = None
    highest = 0
    for new in rows:
        claim = free and claimed is None
        highest = _insert(tx, chat, new, claim=claim)
        if claim:
            claimed = Row(
                highest, new.message, new.session_key, new.turn_id, 1, new.edits, new.expires_at
            )
    return Appended(chat, highest, claimed)


def claim(tx: Tx, chat: Chat) -> Row | None:
    """Commit the attempt of the oldest open row of a chat; None when there is none."""
    found = tx.execute(
        "SELECT sequence, payload, session_key, turn_id, attempts, edits, expires_at FROM outbox"
        " WHERE account = ? AND chat_id = ? AND state = 'pending' ORDER BY sequence LIMIT 1",
        chat,
    ).fetchone()
    if found is None:
        return None
    sequence, payload, session_key, turn_id, attempts, edits, expires_at = found
    tx.execute(
        "UPDATE outbox SET state = 'attempting', attempts = attempts + 1 WHERE sequence = ?",
        (sequence,),
    )
    return Row(sequence, _decode(payload), session_key, turn_id, attempts + 1, edits, expires_at)


def settle(tx: Tx, sequence: int, state: Ended, now: float, message_id: str, reason: str) -> None:
    """Commit how a row ended."""
    tx.execute(
        "UPDATE outbox SET state = ?, message_id = ?, reason = ?, ended_at = ? WHERE sequence = ?",
        (state, message_id, reason, now, sequence),
    )


def put_back(tx: Tx, row: Row, *, message: Outbound | None = None, spent: bool, edits: str) -> None:
    """Make a row pending again: with a changed `message`, and with or without the attempt counted."""
    tx.execute(
        "UPDATE outbox SET state = 'pending', attempts = ?, payload = ?, edits = ? WHERE sequence = ?",
        (row.attempts - (not spent), encode(message or row.message), edits, row.sequence),
    )


def unfinished(tx: Tx) -> list[Row]:
    """Rows whose attempt was cut by a crash: what became of them is unknown. For recovery."""
    return [
        Row(sequence, _decode(payload), session_key, turn_id, attempts, edits, expires_at)
        for sequence, payload, session_key, turn_id, attempts, edits, expires_at in tx.execute(
            "SELECT sequence, payload, session_key, turn_id, attempts, edits, expires_at"
            " FROM outbox WHERE state = 'attempting' ORDER BY sequence"
        ).fetchall()
    ]


def open_chats(tx: Tx, account: str) -> list[tuple[Chat, int]]:
    """The chats of an account that have something to send, and their highest sequence."""
    found = tx.execute(
        "SELECT chat_id, MAX(sequence) FROM outbox WHERE account = ?"
        " AND state IN ('pending', 'attempting') GROUP BY chat_id ORDER BY MIN(sequence)",
        (account,),
    ).fetchall()
    return [(Chat(account, chat_id), highest) for chat_id, highest in found]


def _has_open(tx: Tx, chat: Chat) -> bool:
    return (
        tx.execute(
            "SELECT 1 FROM outbox WHERE account = ? AND chat_id = ?"
            " AND state IN ('pending', 'attempting') LIMIT 1",
            chat,
        ).fetchone()
        is not None
    )


def _insert(tx: Tx, chat: Chat, new: NewRow, *, claim: bool) -> int:
    cursor = tx.execute(
        "INSERT INTO outbox (id, account, chat_id, session_key, turn_id, payload, state, attempts,"
        " edits, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            new.message.id,
            chat.account,
            chat.chat_id,
            new.session_key,
            new.turn_id,
            encode(new.message),
            "attempting" if claim else "pending",
            int(claim),
            new.edits,
            new.message.created_at,
            new.expires_at,
        ),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid
