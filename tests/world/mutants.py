"""Faults of the kinds on record, put back into the rooms one at a time. The worlds must find each.

Every mutant is what a well-meant simplification would do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from hermes_core import delivery, intake
from hermes_core.attempts import Over
from hermes_core.lanes import Lane, Lanes, Run
from hermes_core.store import inbox
from hermes_core.store import turns as stored_turns

Mutant = Callable[[], Any]


def single_slot() -> Any:
    """One waiting message per session: the next one takes its place."""
    insert = inbox.insert

    def one_slot(tx: Any, arrival: Any) -> Any:
        tx.execute(
            "DELETE FROM inbox WHERE session_key = ? AND state = 'waiting'", (arrival.session_key,)
        )
        return insert(tx, arrival)

    return mock.patch.object(inbox, "insert", one_slot)


def guard_released_before_the_drain() -> Any:
    """A lane that has seen its queue empty goes away after its clean-up, which takes a moment."""

    async def early(self: Lanes, lane: Lane) -> None:
        try:
            while lane.highest > lane.seen and self.may_start():
                mark = lane.highest
                async with self._slots:
                    ended = await self._run_next(lane)
                lane.seen = mark if ended is None else ended
            await asyncio.sleep(0.3)
        finally:
            del self._lanes[lane.session_key]

    return mock.patch.object(Lanes, "_drain", early)


def enqueue_after_the_awaited_write() -> Any:
    """The coroutine that asked for the write tells the lane, after the await."""

    async def submit(self: Any, admitted: Any, key: str, payload: bytes) -> Any:
        plan = self._plan(admitted, key, payload)
        result = await self._store.write(lambda tx: self._write(tx, plan))
        self._committed(plan, result)
        return result

    return mock.patch.object(intake.Intake, "submit", submit)


def queue_cleared_on_cancel() -> Any:
    """Who stops a turn loses what waits behind it."""
    cancel = stored_turns.cancel

    def clearing(tx: Any, session_key: str, reason: str, now: float, owner: Any = None) -> Any:
        found = cancel(tx, session_key, reason, now, owner)
        tx.execute("DELETE FROM inbox WHERE session_key = ? AND state = 'waiting'", (session_key,))
        return found

    return mock.patch.object(stored_turns, "cancel", clearing)


def answer_orphaned_by_a_second_stop() -> Any:
    """Every stop cancels whatever the lane does, the commit of an answer included."""
    supervise, transact = Lane.supervise, intake._transact

    async def together(self: Lane, run: Run, work: Any) -> Any:
        try:
            return await supervise(self, run, work)
        finally:
            self.run = Run(run.turn_id, run.owner, run.limits, task=asyncio.current_task())

    def cancel(self: Lanes, session_key: str, turn_id: str) -> bool:
        lane = self._lanes.get(session_key)
        if lane is None or lane.run is None or lane.run.task is None:
            return False
        lane.run.cancelled = "stopped"
        return lane.run.task.cancel()

    def always(tx: Any, call: Any) -> Any:
        effect = transact(tx, call)
        if call.command.name != "stop":
            return effect
        return replace(effect, cancelled=effect.cancelled or "whatever runs")

    return _patched(
        mock.patch.object(Lane, "supervise", together),
        mock.patch.object(Lanes, "cancel", cancel),
        mock.patch.object(intake, "_transact", always),
    )


def receipt_before_the_commit() -> Any:
    """`receive` returns when the write was submitted."""

    def submit(self: Any, admitted: Any, key: str, payload: bytes) -> Any:
        plan = self._plan(admitted, key, payload)
        self._numbers = getattr(self, "_numbers", 1000) + 1
        promised = intake.Result(inbox.Stored("accepted", self._numbers))
        self._store.write(
            lambda tx: self._write(tx, plan), lambda result: self._committed(plan, result)
        )
        future: Any = asyncio.get_running_loop().create_future()
        future.set_result(promised)
        return future

    return mock.patch.object(intake.Intake, "submit", submit)


def delivered_is_a_boolean() -> Any:
    """Whatever was called once was delivered."""

    async def once(row: Any, link: Any, wall: Any) -> Any:
        try:
            receipt = await link.send(row.message)
        except Exception:
            return Over("delivered")
        return Over("delivered", receipt.message_id)

    return mock.patch.object(delivery, "attempt", once)


def drop_on_drain() -> Any:
    """Turns that a stop cuts are over."""

    def dropped(tx: Any, now: float, reason: str, *rest: Any, **options: Any) -> Any:
        tx.execute("UPDATE inbox SET state = 'done', reason = ? WHERE state = 'running'", (reason,))
        tx.execute("UPDATE turn SET state = 'interrupted' WHERE state = 'running'")
        return []

    return mock.patch.object(stored_turns, "interrupt", dropped)


@contextmanager
def _patched(*patches: Any) -> Iterator[None]:
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


MUTANTS: tuple[Mutant, ...] = (
    single_slot,
    guard_released_before_the_drain,
    enqueue_after_the_awaited_write,
    queue_cleared_on_cancel,
    answer_orphaned_by_a_second_stop,
    receipt_before_the_commit,
    delivered_is_a_boolean,
    drop_on_drain,
)
