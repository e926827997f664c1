"""Deliveries that survive restarts and crashes: rows in the plugin's own table."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from hermes_core import HermesError, Tables
from hermes_outbound_webhooks.delivery import Delivery
from hermes_outbound_webhooks.targets import Target

log = logging.getLogger(__name__)

BATCH = 50
KEPT = 7 * 86400.0
"""Seconds for which ended deliveries stay, for the listing and for replays."""
_IDLE_CHECK = 60.0
_COLUMNS = "sequence, id, event, hook, payload, body, attempts, status, reason, created_at, state"


def insert(tx: sqlite3.Connection, target: str, delivery: Delivery) -> None:
    """Store a delivery that waits. Within the transaction that makes it known."""
    tx.execute(
        "INSERT INTO webhook_delivery (id, target, event, hook, payload, body, state, attempts,"
        " status, reason, created_at, due_at) VALUES (?, ?, ?, ?, ?, ?, 'pending', 0, 0, '', ?, 0)",
        (
            delivery.id,
            target,
            delivery.event,
            delivery.hook,
            msgspec.json.encode(delivery.values),
            b"",
            delivery.created_at,
        ),
    )


def listing(tx: sqlite3.Connection, *, failed: bool, limit: int) -> list[dict[str, Any]]:
    """The latest durable deliveries, as rows for people."""
    state = "('failed')" if failed else "('pending', 'delivered', 'failed')"
    found = tx.execute(
        "SELECT id, target, event, state, attempts, status, reason, created_at"  # noqa: S608
        f" FROM webhook_delivery WHERE state IN {state} ORDER BY sequence DESC LIMIT ?",
        (limit,),
    ).fetchall()
    names = ("id", "target", "event", "state", "attempts", "status", "reason", "created_at")
    return [dict(zip(names, row, strict=True)) for row in found]


def replay(tx: sqlite3.Connection, delivery_id: str) -> str | None:
    """Let an ended delivery wait again, under its id. The name of its target, None without one."""
    row = tx.execute(
        "UPDATE webhook_delivery SET state = 'pending', attempts = 0, due_at = 0, ended_at = NULL"
        " WHERE id = ? AND state != 'pending' RETURNING target",
        (delivery_id,),
    ).fetchone()
    return None if row is None else str(row[0])


class DurableBacklog:
    """The rows of one target that wait. Every change is a write, so reads see them in order."""

    def __init__(self, target: Target, tables: Tables, wall: Callable[[], float]) -> None:
        self._target = target
        self._tables = tables
        self._wall = wall
        self._batch: deque[Delivery] = deque()
        self._waiting = 0
        self._changed = asyncio.Event()

    def added(self) -> None:
        """Rows were committed."""
        self._changed.set()

    async def take(self) -> Delivery:
        while not self._batch:
            self._changed.clear()
            rows, self._waiting, due = await self._tables.write(self._due)
            self._batch.extend(rows)
            if not rows:
                await self._wait(_IDLE_CHECK if due is None else max(due - self._wall(), 0.01))
        return self._batch.popleft()

    def put_back(self, delivery: Delivery, seconds: float) -> bool:
        now = self._wall()
        if now + seconds > delivery.created_at + self._target.settings.max_age:
            return False
        values = (delivery.attempts, delivery.status, delivery.reason, now + seconds, delivery.body)
        self._write(
            "UPDATE webhook_delivery SET attempts = ?, status = ?, reason = ?, due_at = ?, body = ?"
            " WHERE sequence = ?",
            (*values, delivery.sequence),
        )
        return True

    def settle(self, delivery: Delivery) -> None:
        self._waiting = max(self._waiting - 1, 0)
        body = b"" if delivery.state == "delivered" else delivery.body
        self._write(
            "UPDATE webhook_delivery SET state = ?, attempts = ?, status = ?, reason = ?, body = ?,"
            " ended_at = ? WHERE sequence = ?",
            (
                delivery.state,
                delivery.attempts,
                delivery.status,
                delivery.reason,
                body,
                self._wall(),
                delivery.sequence,
            ),
        )

    def waiting(self) -> int:
        return max(self._waiting, len(self._batch))

    def _due(self, tx: sqlite3.Connection) -> tuple[list[Delivery], int, float | None]:
        now = self._wall()
        self._expire(tx, now)
        found = tx.execute(
            f"SELECT {_COLUMNS} FROM webhook_delivery WHERE target = ?"  # noqa: S608
            " AND state = 'pending' AND due_at <= ? ORDER BY sequence LIMIT ?",
            (self._target.name, now, BATCH),
        ).fetchall()
        waiting, due = tx.execute(
            "SELECT COUNT(*), MIN(due_at) FROM webhook_delivery"
            " WHERE target = ? AND state = 'pending'",
            (self._target.name,),
        ).fetchone()
        return [_delivery(row) for row in found], int(waiting), due

    def _expire(self, tx: sqlite3.Connection, now: float) -> None:
        tx.execute(
            "UPDATE webhook_delivery SET state = 'failed', ended_at = ?,"
            " reason = 'too old; last: ' || reason"
            " WHERE target = ? AND state = 'pending' AND created_at < ?",
            (now, self._target.name, now - self._target.settings.max_age),
        )
        tx.execute(
            "DELETE FROM webhook_delivery WHERE target = ? AND state != 'pending' AND ended_at < ?",
            (self._target.name, now - KEPT),
        )

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(min(seconds, _IDLE_CHECK)):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _write(self, sql: str, values: Sequence[Any]) -> None:
        """Submit a write. If a crash comes first, the delivery is repeated, under its id."""
        try:
            self._tables.write(lambda tx: tx.execute(sql, values)).add_done_callback(_report)
        except HermesError as error:
            log.warning("a delivery cannot be written down: %s", error)


def _delivery(row: Sequence[Any]) -> Delivery:
    sequence, id_, event, hook, payload, body, attempts, status, reason, created_at, state = row
    return Delivery(
        event=event,
        hook=hook,
        created_at=created_at,
        values=msgspec.json.decode(payload),
        id=id_,
        body=body,
        attempts=attempts,
        state=state,
        reason=reason,
        status=status,
        sequence=sequence,
    )


def _report(write: asyncio.Future[Any]) -> None:
    if not write.cancelled() and (error := write.exception()) is not None:
        log.error("a delivery cannot be written down: %s", error)
