"""Lanes: one turn at a time for each session, in order, whatever happens to the turns.

A lane exists only while its session has work. It knows its queue by one integer, the highest
committed sequence, which the store's completion callback raises. The rows themselves stay in the
inbox: a long queue costs no memory, and there is no state to hand over, to lose or to restore.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_core.errors import StoreError
from hermes_core.pauses import doubling

if TYPE_CHECKING:
    from hermes_core.agents import TurnMessage
    from hermes_core.messages import Message

log = logging.getLogger(__name__)
T = TypeVar("T")

CANCEL_GRACE = 5.0
"""Seconds that a cancelled run has to end before it is revoked and left behind."""

STOPPED = "stopped"
"""A person cancelled the turn: it is over."""
TIMED_OUT = "timed out"
"""The run was silent, or at work, for too long."""
SHUTDOWN = "shutdown"
"""The gateway stops: the turn is run again after the next start."""


class Revoked(Exception):
    """A run did not end within the grace after its cancellation. It can do nothing any more."""


@dataclass(frozen=True)
class Limits:
    """How long a run may be silent, and how long it may take in all, in seconds."""

    inactivity: float = 1800.0
    total: float | None = None


@dataclass(eq=False)
class Run:
    """One run of agent code. `live` is its fence: once False, whatever it still says is dropped.

    `owner` is the sender it answers. `cancelled` says why it was cancelled, "" while it was not.
    `heard` is the loop's time of its last sign of life, `events` how many there were.
    `offered` are the messages that were handed to it while it ran, `consumed` which of them it
    took.
    """

    turn_id: str
    owner: str
    limits: Limits
    live: bool = True
    cancelled: str = ""
    dropped: int = 0
    events: int = 0
    heard: float = 0.0
    offered: dict[str, Message] = field(default_factory=dict)
    consumed: list[str] = field(default_factory=list)
    task: asyncio.Task[Any] | None = None
    over: asyncio.Future[None] | None = field(default=None, repr=False)
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)
    watch: asyncio.TimerHandle | None = field(default=None, repr=False)

    @cached_property
    def steering(self) -> asyncio.Queue[TurnMessage]:
        """Messages that were handed to it while it ran."""
        return asyncio.Queue()

    def end(self, _: object = None) -> None:
        """Nobody waits for it any more: it has ended, or was revoked."""
        if self.over is not None and not self.over.done():
            self.over.set_result(None)

    def revoke(self) -> None:
        """Its time is up: from now on it can do nothing."""
        self.live = False
        self.end()


class Lane:
    """The worker of one session while it has work."""

    def __init__(self, session_key: str, grace: float, abandoned: set[Run]) -> None:
        self.session_key = session_key
        self.highest = 0
        self.seen = 0
        self.joins = 0
        self.task: asyncio.Task[None] | None = None
        self.first: list[asyncio.Task[None]] = []
        self.run: Run | None = None
        self._condemned: dict[str | None, str] = {}
        self._grace = grace
        self._abandoned = abandoned

    async def supervise(self, run: Run, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in a task of its own and wait for its end, or for its revocation.

        Raises Revoked when it was cancelled and did not end in time, CancelledError when it ended
        cancelled; otherwise returns its result or raises its error. Cancelling `run` never cancels
        the lane.
        """
        loop = asyncio.get_running_loop()
        run.cancelled = self._condemned.get(None) or self._condemned.get(run.turn_id, "")
        self._condemned.pop(run.turn_id, None)
        if run.cancelled:
            work.close()
            raise asyncio.CancelledError
        run.over = loop.create_future()
        run.task = loop.create_task(
            work, name=f"turn {run.turn_id}", context=contextvars.copy_context()
        )
        run.task.add_done_callback(run.end)
        self.run = run
        run.heard = started = loop.time()
        self._watch(run, started)
        try:
            await run.over
        finally:
            self.run = None
            run.live = False
            for handle in (run.timer, run.watch):
                if handle is not None:
                    handle.cancel()
            if not run.task.done():
                self._leave_behind(run)
        if not run.task.done():
            raise Revoked
        if run.task.cancelled():
            raise asyncio.CancelledError
        result: T = run.task.result()
        return result

    def cancel(self, why: str, turn_id: str | None = None) -> bool:
        """Cancel the running turn (only if it is `turn_id`, when given). False when it does not
        run: then it does not begin either."""
        run = self.run
        if run is None or run.task is None or (turn_id is not None and run.turn_id != turn_id):
            self._condemned[turn_id] = why
            return False
        if run.task.done():
            return False
        if not run.cancelled:
            run.cancelled = why
            run.timer = asyncio.get_running_loop().call_later(self._grace, run.revoke)
        run.task.cancel()
        return True

    def offer(self, message: TurnMessage, event: Message, *, admin: bool) -> bool:
        """Hand a waiting message to the running turn, if it belongs to the same sender (or to an
        admin).

        It stays in the inbox until the agent says that it took it.
        """
        run = self.run
        if run is None or run.cancelled or not (admin or run.owner == event.sender.id):
            return False
        run.offered[message.token] = event
        run.steering.put_nowait(message)
        return True

    def _watch(self, run: Run, started: float) -> None:
        """Cancel a run that is silent, or at work, for too long. Looks again when that could be
        so."""
        loop = asyncio.get_running_loop()
        due = run.heard + run.limits.inactivity
        if run.limits.total is not None:
            due = min(due, started + run.limits.total)
        if due <= loop.time():
            self.cancel(TIMED_OUT, run.turn_id)
        else:
            run.watch = loop.call_at(due, self._watch, run, started)

    def _leave_behind(self, run: Run) -> None:
        assert run.task is not None
        run.task.cancel()
        self._abandoned.add(run)
        run.task.add_done_callback(lambda task: self._returned(run, task))
        log.error("a cancelled run did not end; it is left behind", extra={"turn": run.turn_id})

    def _returned(self, run: Run, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(run)
        if not task.cancelled() and task.exception() is not None:
            log.info("a run that was left behind ended", extra={"turn": run.turn_id})


class Lanes:
    """All lanes of one profile. `run_next` runs the next turn of a lane and returns the highest
    sequence it ended, or None when nothing was waiting."""

    def __init__(
        self,
        run_next: Callable[[Lane], Awaitable[int | None]],
        slots: asyncio.Semaphore,
        *,
        grace: float = CANCEL_GRACE,
    ) -> None:
        """`slots` limits the running turns of the whole gateway."""
        self._run_next = run_next
        self._slots = slots
        self._grace = grace
        self._lanes: dict[str, Lane] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._open = asyncio.Event()
        self._open.set()
        self.abandoned: set[Run] = set()
        self.waiting = 0

    def committed(self, session_key: str, sequence: int, count: int = 1) -> None:
        """`count` more rows wait, up to `sequence`. Called on the event loop, in the order of the
        commits."""
        self.waiting += count
        lane = self._lanes.get(session_key)
        if lane is not None:
            lane.highest = max(lane.highest, sequence)
            return
        if self._stopping:
            return
        lane = self._lanes[session_key] = Lane(session_key, self._grace, self.abandoned)
        lane.highest = sequence
        lane.task = task = asyncio.get_running_loop().create_task(
            self._drain(lane), name=f"lane {session_key}", context=contextvars.Context()
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def move(self, old: str, new: str) -> None:
        """The rows of one session are those of another now. Called on the event loop, on the
        commit.

        Its lane goes on with that one. Should that one have a lane of its own, its next turn waits
        until the first lane has ended: one turn at a time.
        """
        lane, other = self._lanes.get(old), self._lanes.get(new)
        if other is None and lane is not None:
            del self._lanes[old]
            self._lanes[new] = other = lane
            lane.session_key = new
        elif other is not None and lane is not None and lane.task is not None:
            other.first.append(lane.task)
        if other is not None:
            other.joins += 1
            other.seen = 0  # what came may be older than what was seen

    def cancel(self, session_key: str, turn_id: str) -> bool:
        """Cancel a turn that runs. The lane goes on with what waits."""
        lane = self._lanes.get(session_key)
        return lane is not None and lane.cancel(STOPPED, turn_id)

    def offer(self, session_key: str, message: TurnMessage, event: Message, *, admin: bool) -> bool:
        """Hand a committed message to the turn that runs. False when there is none that may take
        it."""
        lane = self._lanes.get(session_key)
        return lane is not None and lane.offer(message, event, admin=admin)

    def run_of(self, session_key: str) -> Run | None:
        """What runs in a session now."""
        lane = self._lanes.get(session_key)
        return None if lane is None else lane.run

    def freed(self, count: int) -> None:
        """So many rows do not wait any more."""
        self.waiting -= count

    def may_start(self) -> bool:
        """Whether turns may begin."""
        return not self._stopping

    @property
    def busy(self) -> list[str]:
        """The keys of the sessions that have work, in the order they got it."""
        return list(self._lanes)

    @property
    def running(self) -> list[Run]:
        return [lane.run for lane in self._lanes.values() if lane.run is not None]

    def pause(self) -> None:
        """Let no turn begin until `resume`. What runs goes on."""
        self._open.clear()

    def resume(self) -> None:
        """Let turns begin again."""
        self._open.set()

    async def stop(self, grace: float) -> None:
        """Start no more turns, wait up to `grace` seconds for those that run, then cancel them.

        Rows that were not run stay in the inbox.
        """
        self._stopping = True
        self._open.set()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for lane in list(self._lanes.values()):
            lane.cancel(SHUTDOWN)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._grace + 1.0)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _drain(self, lane: Lane) -> None:
        """Run turns while rows wait. Nothing is awaited between the last look and the
        retirement."""
        pauses, held_up = doubling(), False
        try:
            while lane.highest > lane.seen and self.may_start():
                mark, joins = lane.highest, lane.joins
                await self._open.wait()
                while lane.first:
                    await asyncio.wait([lane.first.pop()])
                try:
                    async with self._slots:
                        if not self.may_start():
                            break
                        if not self._open.is_set():
                            continue  # a pause has begun while it waited for its slot
                        ended = await self._run_next(lane)
                except Exception as error:
                    held_up = held_up or _held_up(lane, error)
                    await asyncio.sleep(next(pauses))
                    continue
                pauses, held_up = doubling(), False
                if lane.joins == joins:
                    lane.seen = mark if ended is None else ended
        finally:
            del self._lanes[lane.session_key]


def _held_up(lane: Lane, error: Exception) -> bool:
    """Say that a lane cannot go on. What keeps the database from being written, it says itself."""
    if isinstance(error, StoreError):
        return False
    log.error("a session is held up", extra={"session": lane.session_key}, exc_info=error)
    return True
