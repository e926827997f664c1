"""Deliveries that survive restarts and crashes: rows in the plugin's own table."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from hermes_core import HermesError, Tables
from hermes_outbound_webhooks.delivery import Delivery
from hermes_outbound_webhooks.retry import LONGEST_PAUSE
from hermes_outbound_webhooks.targets import Target

log = logging.getLogger(__name__)

BATCH = 50
KEPT = 7 * 86400.0
"""Seconds for which ended deliveries stay at most, for the listing and for replays."""
AFTER_FAULT = 5.0
"""Seconds until the database is tried again that could not be used."""
_IDLE_CHECK = 60.0
_FURTHEST = LONGEST_PAUSE * 1.5
"""Seconds to the next attempt at most. What waits for longer waits for a clock that was wrong."""
ERASED = 500
"""Ended deliveries that one transaction deletes at most: 2 ms of the writer."""
_COLUMNS = (
    *("sequence", "id", "event", "hook", "payload", "truncated", "body", "attempts", "status"),
    *("reason", "created_at", "state", "since"),
)


def insert(tx: sqlite3.Connection, target: str, delivery: Delivery) -> None:
    """Store a delivery that waits. Within the transaction that makes it known."""
    tx.execute(
        "INSERT INTO webhook_delivery (id, target, event, hook, payload, truncated, body, state,"
        " attempts, status, reason, created_at, since, due_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'pending', 0, 0, '', ?, ?, 0)",
        (
            delivery.id,
            target,
            delivery.event,
            delivery.hook,
            msgspec.json.encode(delivery.values),
            delivery.truncated,
            b"",
            delivery.created_at,
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


def replay(
    tx: sqlite3.Connection, delivery_id: str, targets: Collection[str], now: float
) -> str | None:
    """Let an ended delivery wait again, under its id, for as long as a new one.

    The name of its target, None without such a delivery. Raises HermesError when its target is not
    one of `targets`.
    """
    row = tx.execute(
        "UPDATE webhook_delivery SET state = 'pending', attempts = 0, reason = '', since = ?,"
        " due_at = 0, ended_at = NULL WHERE id = ? AND state != 'pending' RETURNING target",
        (now, delivery_id),
    ).fetchone()
    if row is not None and row[0] not in targets:
        raise no_target(row[0])
    return None if row is None else str(row[0])


def no_target(name: str) -> HermesError:
    """A delivery cannot be replayed, because nothing is sent to its target."""
    return HermesError(
        f"nothing is sent to {name} now",
        remedy="`hermes webhooks list` says why, and what there is",
    )


def sweep(tx: sqlite3.Connection, ages: Mapping[str, float], now: float, kept: float) -> bool:
    """Give up what waits for a target that is not durable any more, or for too long, and delete
    what ended more than `kept` seconds ago. Whether there is more of that. `ages` are the longest
    ones, by target."""
    waiting = tx.execute(
        "SELECT DISTINCT target FROM webhook_delivery WHERE state = 'pending'"
    ).fetchall()
    for (target,) in waiting:
        if target in ages:
            _expire(tx, target, now - ages[target], now)
        else:
            tx.execute(
                "UPDATE webhook_delivery SET state = 'failed', ended_at = ?,"
                " reason = 'there is no durable target of that name'"
                " WHERE target = ? AND state = 'pending'",
                (now, target),
            )
    erased = tx.execute(
        "DELETE FROM webhook_delivery WHERE sequence IN"
        " (SELECT sequence FROM webhook_delivery WHERE ended_at < ? LIMIT ?)",
        (now - kept, ERASED),
    )
    return erased.rowcount == ERASED


def _expire(tx: sqlite3.Connection, target: str, before: float, now: float) -> None:
    tx.execute(
        "UPDATE webhook_delivery SET state = 'failed', ended_at = ?,"
        " reason = CASE reason WHEN '' THEN 'too old' ELSE 'too old; last: ' || reason END"
        " WHERE target = ? AND state = 'pending' AND since < ?",
        (now, target, before),
    )


class DurableBacklog:
    """The rows of one target that wait. Every change is a write, so reads see them in order."""

    def __init__(self, target: Target, tables: Tables, wall: Callable[[], float]) -> None:
        self._target = target
        self._tables = tables
        self._wall = wall
        self._batch: deque[Delivery] = deque()
        self._unwritten: dict[int, tuple[str, Sequence[Any]]] = {}
        """By row: what could not be written down. Nothing new is taken before it is."""
        self._waiting = 0
        self._changed = asyncio.Event()

    def added(self) -> None:
        """Rows were committed."""
        self._changed.set()

    async def take(self) -> Delivery:
        while not self._batch:
            self._changed.clear()
            try:
                due = await self._read()
            except HermesError as error:
                log.warning("webhook %s waits for the database: %s", self._target.name, error)
                await asyncio.sleep(AFTER_FAULT)
                continue
            if not self._batch:
                await self._wait(_IDLE_CHECK if due is None else max(due - self._wall(), 0.01))
        return self._batch.popleft()

    async def _read(self) -> float | None:
        """Fill the batch. When the next one is due, None when none waits. Raises HermesError."""
        left = list(self._unwritten.items())
        rows, self._waiting, due = await self._tables.write(
            lambda tx: self._due(tx, [change for _, change in left])
        )
        for sequence, _ in left:
            del self._unwritten[sequence]
        # What failed to be written meanwhile was read as it was before.
        self._batch.extend(row for row in rows if row.sequence not in self._unwritten)
        return due

    def put_back(self, delivery: Delivery, seconds: float) -> bool:
        now = self._wall()
        if now + seconds > delivery.since + self._target.settings.max_age:
            return False
        values = (delivery.attempts, delivery.status, delivery.reason, now + seconds, delivery.body)
        self._write(
            delivery.sequence,
            "UPDATE webhook_delivery SET attempts = ?, status = ?, reason = ?, due_at = ?, body = ?"
            " WHERE sequence = ?",
            (*values, delivery.sequence),
        )
        return True

    def settle(self, delivery: Delivery) -> None:
        self._waiting = max(self._waiting - 1, 0)
        body = b"" if delivery.state == "delivered" else delivery.body
        self._write(
            delivery.sequence,
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

    def _due(
        self, tx: sqlite3.Connection, left: Sequence[tuple[str, Sequence[Any]]]
    ) -> tuple[list[Delivery], int, float | None]:
        for sql, values in left:
            tx.execute(sql, values)
        now, target = self._wall(), self._target.name
        _expire(tx, target, now - self._target.settings.max_age, now)
        found = tx.execute(
            f"SELECT {', '.join(_COLUMNS)} FROM webhook_delivery WHERE target = ?"  # noqa: S608
            " AND state = 'pending' AND (due_at <= ? OR due_at > ?) ORDER BY sequence LIMIT ?",
            (target, now, now + _FURTHEST, BATCH),
        ).fetchall()
        waiting, due = tx.execute(
            "SELECT COUNT(*), MIN(due_at) FROM webhook_delivery"
            " WHERE target = ? AND state = 'pending'",
            (target,),
        ).fetchone()
        return [_delivery(row) for row in found], int(waiting), due

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(min(seconds, _IDLE_CHECK)):
                await self._changed.wait()
        except TimeoutError:
            pass

    def _write(self, sequence: int, sql: str, values: Sequence[Any]) -> None:
        """Submit a write. If a crash comes first, the delivery is repeated, under its id."""
        try:
            write = self._tables.write(lambda tx: tx.execute(sql, values))
        except HermesError as error:
            self._keep(sequence, sql, values, error)
            return
        write.add_done_callback(lambda done: self._written(done, sequence, sql, values))

    def _written(
        self, write: asyncio.Future[Any], sequence: int, sql: str, values: Sequence[Any]
    ) -> None:
        if not write.cancelled() and (error := write.exception()) is not None:
            self._keep(sequence, sql, values, error)

    def _keep(self, sequence: int, sql: str, values: Sequence[Any], error: BaseException) -> None:
        if not self._unwritten:
            log.warning(
                "webhook %s: a delivery cannot be written down: %s", self._target.name, error
            )
        self._unwritten[sequence] = sql, values


def _delivery(row: Sequence[Any]) -> Delivery:
    facts = dict(zip(_COLUMNS, row, strict=True))
    values, truncated = msgspec.json.decode(facts.pop("payload")), bool(facts.pop("truncated"))
    return Delivery(values=values, truncated=truncated, **facts)
