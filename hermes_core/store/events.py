"""Operations on durable events: written with what they tell of, read by cursors, then deleted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hermes_core.store.database import Tx


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event on its way. `payload` is a JSON array: the arguments of the hook by name, and
    whether something was left out of them."""

    hook: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Row:
    """A stored event."""

    sequence: int
    hook: str
    payload: bytes
    created_at: float


def append(tx: Tx, events: Sequence[NewEvent], now: float) -> None:
    """Store events, in order."""
    for event in events:
        tx.execute(
            "INSERT INTO event (hook, payload, created_at) VALUES (?, ?, ?)",
            (event.hook, event.payload, now),
        )


def open_cursor(tx: Tx, owner: str) -> int:
    """The position of a cursor; a new one begins behind everything that is there."""
    tx.execute(
        "INSERT INTO event_cursor (owner, position)"
        " SELECT ?, COALESCE(MAX(sequence), 0) FROM event WHERE true ON CONFLICT DO NOTHING",
        (owner,),
    )
    (position,) = tx.execute(
        "SELECT position FROM event_cursor WHERE owner = ?", (owner,)
    ).fetchone()
    return int(position)


def read(tx: Tx, position: int, hooks: Collection[str], limit: int) -> list[Row]:
    """The next events of `hooks` behind `position`, oldest first."""
    marks = ", ".join("?" for _ in hooks)
    found = tx.execute(
        "SELECT sequence, hook, payload, created_at FROM event"  # noqa: S608 - question marks only
        f" WHERE sequence > ? AND hook IN ({marks}) ORDER BY sequence LIMIT ?",
        (position, *hooks, limit),
    ).fetchall()
    return [Row(*row) for row in found]


def move(tx: Tx, owner: str, position: int) -> None:
    """Move a cursor on and delete what every cursor is behind of."""
    tx.execute(
        "UPDATE event_cursor SET position = ? WHERE owner = ? AND position < ?",
        (position, owner, position),
    )
    tx.execute("DELETE FROM event WHERE sequence <= (SELECT MIN(position) FROM event_cursor)")


def expire(tx: Tx, before: float) -> int:
    """Delete what is older than `before`, read or not. How many that were."""
    return tx.execute("DELETE FROM event WHERE created_at < ?", (before,)).rowcount
