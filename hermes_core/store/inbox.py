"""Operations on accepted events. Each runs inside the writer's transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hermes_core.store.database import Tx


@dataclass(frozen=True, slots=True)
class Arrival:
    """An admitted event on its way to the inbox.

    `ended` is empty for one that waits for a turn, else why it is done as soon as it is stored."""

    account: str
    chat_id: str
    event_id: str
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


def insert(tx: Tx, arrival: Arrival) -> Stored:
    """Store an event once. The unique constraint is the only check for repeats."""
    if not arrival.ended and _is_full(tx, arrival):
        found = _find(tx, arrival)
        return Stored("duplicate", found) if found else Stored("full", 0)
    cursor = tx.execute(
        "INSERT INTO inbox (account, chat_id, event_id, type, session_key, generation, payload,"
        " state, reason, received_at) VALUES (?, ?, ?, ?, ?,"
        " COALESCE((SELECT generation FROM generation WHERE session_key = ?), 0), ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        (
            arrival.account,
            arrival.chat_id,
            arrival.event_id,
            arrival.type,
            arrival.session_key,
            arrival.session_key,
            arrival.payload,
            "done" if arrival.ended else "waiting",
            arrival.ended,
            arrival.received_at,
        ),
    )
    if cursor.rowcount == 1 and cursor.lastrowid is not None:
        return Stored("accepted", cursor.lastrowid)
    return Stored("duplicate", _find(tx, arrival))


def waiting_keys(tx: Tx) -> list[tuple[str, int]]:
    """Every session with waiting rows, and its highest waiting sequence. For recovery."""
    return tx.execute(
        "SELECT session_key, MAX(sequence) FROM inbox WHERE state = 'waiting'"
        " GROUP BY session_key ORDER BY MIN(sequence)"
    ).fetchall()


def count_waiting(tx: Tx, session_key: str) -> int:
    """How many messages of a session wait for a turn."""
    (count,) = tx.execute(
        "SELECT COUNT(*) FROM inbox WHERE session_key = ? AND state = 'waiting'", (session_key,)
    ).fetchone()
    return int(count)


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
