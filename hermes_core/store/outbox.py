"""Operations on messages to be sent, first-in-first-out per (account, chat)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from hermes_core.messages import Outbound, OutboundAttachment, encode
from hermes_core.store.database import Tx

log = logging.getLogger(__name__)

UNREADABLE = "what is stored of it cannot be read"
_decoder = msgspec.json.Decoder(Outbound)


def decode(payload: bytes) -> Outbound | None:
    """A stored message; None when there is none in it: it was erased, or damaged."""
    try:
        return _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class Chat(NamedTuple):
    """What deliveries are ordered by."""

    account: str
    chat_id: str


@dataclass(frozen=True, slots=True)
class Shown:
    """The message that shows an answer while it is written, if there is one.

    `message_id` is its id on the platform. While nobody knows whether it arrived there is only
    `unsure`, the message as it was handed to the platform: by that it can be looked for.
    """

    message_id: str = ""
    unsure: Outbound | None = None

    @classmethod
    def of(cls, message_id: str, unsure: bytes | None) -> Shown:
        """From its two columns."""
        return cls(message_id, None if unsure is None else decode(unsure))

    @property
    def columns(self) -> tuple[str, bytes | None]:
        return self.message_id, None if self.unsure is None else encode(self.unsure)


@dataclass(frozen=True, slots=True)
class NewRow:
    """A message that is decided to be sent. It completes what was `shown` before it."""

    message: Outbound
    session_key: str
    turn_id: str | None
    expires_at: float
    shown: Shown = Shown()


@dataclass(frozen=True, slots=True)
class Row:
    """A row whose attempt is committed: the adapter may be called for it, once.

    `doubtful` says that an earlier attempt may have arrived.
    """

    sequence: int
    message: Outbound
    session_key: str
    turn_id: str | None
    attempts: int
    shown: Shown
    doubtful: bool
    expires_at: float


@dataclass(frozen=True, slots=True)
class Appended:
    """What `append` did: rows up to `highest` are there; `claimed` may be sent at once."""

    chat: Chat
    highest: int
    claimed: Row | None


Ended = Literal["delivered", "failed", "expired", "unknown"]
"""`failed`: not sent, and it will not be. `expired`: too old to be sent. `unknown`: nobody can
tell."""


def append(tx: Tx, rows: Sequence[NewRow], *, claim_first: bool) -> Appended | None:
    """Add rows of one chat. With `claim_first` and nothing before it, the first is claimed right
    here, which saves the transaction that would otherwise only say so."""
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
                highest,
                new.message,
                new.session_key,
                new.turn_id,
                1,
                new.shown,
                False,
                new.expires_at,
            )
    return Appended(chat, highest, claimed)


def claim(tx: Tx, chat: Chat, now: float) -> Row | None:
    """Commit the attempt of the oldest open row of a chat; None when there is none. One that cannot
    be read has failed: it holds up nothing behind it."""
    while (row := _oldest(tx, chat)) is not None:
        if isinstance(row, Row):
            tx.execute(
                "UPDATE outbox SET state = 'attempting', attempts = attempts + 1"
                " WHERE sequence = ?",
                (row.sequence,),
            )
            return row
        settle(tx, row, "failed", now, reason=UNREADABLE)
        log.error("a message is not sent (outbox:%d): %s", row, UNREADABLE)
    return None


def _oldest(tx: Tx, chat: Chat) -> Row | int | None:
    """The oldest open row of a chat as it is once it is claimed; just its sequence when it cannot
    be read."""
    found = tx.execute(
        "SELECT sequence, payload, session_key, turn_id, attempts, edits, unsure, doubtful,"
        " expires_at FROM outbox WHERE account = ? AND chat_id = ? AND state = 'pending'"
        " ORDER BY sequence LIMIT 1",
        chat,
    ).fetchone()
    if found is None:
        return None
    sequence, payload, session_key, turn_id, attempts, edits, unsure, doubtful, expires_at = found
    message = decode(payload)
    if message is None:
        return int(sequence)
    return Row(
        sequence,
        message,
        session_key,
        turn_id,
        attempts + 1,
        Shown.of(edits, unsure),
        bool(doubtful),
        expires_at,
    )


def settle(
    tx: Tx, sequence: int, state: Ended, now: float, *, message_id: str = "", reason: str = ""
) -> None:
    """Commit how a row ended."""
    tx.execute(
        "UPDATE outbox SET state = ?, message_id = ?, reason = ?, ended_at = ?, unsure = NULL"
        " WHERE sequence = ?",
        (state, message_id, reason, now, sequence),
    )


def put_back(tx: Tx, row: Row) -> None:
    """Make a row pending again, as it is now."""
    tx.execute(
        "UPDATE outbox SET state = 'pending', attempts = ?, payload = ?, edits = ?, unsure = ?,"
        " doubtful = ? WHERE sequence = ?",
        (
            row.attempts,
            encode(row.message),
            *row.shown.columns,
            int(row.doubtful),
            row.sequence,
        ),
    )


def doubt_unfinished(tx: Tx) -> int:
    """After a crash: what became of the attempts it cut is unknown. How many there are."""
    cursor = tx.execute(
        "UPDATE outbox SET state = 'pending', doubtful = 1 WHERE state = 'attempting'"
    )
    return cursor.rowcount


def pause(tx: Tx, chat: Chat, seconds: float, now: float) -> None:
    """Remember a pause that the platform asked for; `chat_id` is "" for the whole account."""
    tx.execute(
        "INSERT INTO pause (account, chat_id, seconds, until) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (account, chat_id)"
        " DO UPDATE SET seconds = excluded.seconds, until = excluded.until",
        (*chat, seconds, now + seconds),
    )


def pauses(tx: Tx, now: float) -> list[tuple[str, str, float]]:
    """Account, chat and the seconds left of every pause; those that are over are deleted.

    A clock that was set back does not make a pause longer than it was.
    """
    tx.execute("DELETE FROM pause WHERE until <= ?", (now,))
    return [
        (account, chat_id, min(seconds, until - now))
        for account, chat_id, seconds, until in tx.execute(
            "SELECT account, chat_id, seconds, until FROM pause"
        ).fetchall()
    ]


def files(tx: Tx) -> list[OutboundAttachment]:
    """The files of every message that was not delivered, and may be sent (again)."""
    found = tx.execute(
        "SELECT payload FROM outbox WHERE files = 1 AND state <> 'delivered'"
    ).fetchall()
    messages = [decode(payload) for (payload,) in found]
    return [file for message in messages if message for file in message.attachments]


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
        " edits, unsure, files, created_at, expires_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            new.message.id,
            chat.account,
            chat.chat_id,
            new.session_key,
            new.turn_id,
            encode(new.message),
            "attempting" if claim else "pending",
            int(claim),
            *new.shown.columns,
            int(bool(new.message.attachments)),
            new.message.created_at,
            new.expires_at,
        ),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid
