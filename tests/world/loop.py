"""An event loop whose every choice is made by a seed.

Which ready task goes on is chosen at random; time is virtual and moves only when nothing is ready;
what threads do elsewhere (the store's commits) are steps that are chosen like everything else. Two
orders are kept, because asyncio's own primitives rest on them: plain callbacks run
first-in-first-out, and so do the wake-ups that one future schedules.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from asyncio import base_events, events, futures, tasks
from collections import deque
from collections.abc import Callable
from typing import Any

PyTask: Any = tasks._PyTask  # type: ignore[attr-defined]
PyFuture: Any = futures._PyFuture  # type: ignore[attr-defined]

MAX_STEPS = 200_000
"""Steps of one world at most. One that needs more does not come to rest: a fault."""


class DoesNotRest(AssertionError):
    """The world goes on for ever."""


class _NumberedTask(PyTask):  # type: ignore[misc]
    """A task in Python, with a hash that is the same in every replay: sets of tasks order by it."""

    def __init__(self, coroutine: Any, *, number: int, **kwargs: Any) -> None:
        self._number = number
        super().__init__(coroutine, **kwargs)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class _NumberedFuture(PyFuture):  # type: ignore[misc]
    """A future in Python, with a hash that is the same in every replay."""

    def __init__(self, *, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return self is other


class WorldLoop(base_events.BaseEventLoop):
    """Runs one world. `step(kind)` callbacks added by `later` are chosen among the ready tasks."""

    def __init__(self, seed: int | str) -> None:
        super().__init__()
        self.rng = random.Random(seed)  # noqa: S311 - choices, no secrets
        self.steps = 0
        self._limit: int | None = None
        self._now = 1000.0
        self._numbers = 0
        self._outside: deque[Callable[[], object]] = deque()
        self.set_task_factory(self._make_task)
        self.slow_callback_duration = 1e9

    # ── what asyncio needs ───────────────────────────────────────────────────────────────────────

    def time(self) -> float:
        return self._now

    def create_future(self) -> asyncio.Future[Any]:
        self._numbers += 1
        future: asyncio.Future[Any] = _NumberedFuture(number=self._numbers, loop=self)
        return future

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Any,
        context: contextvars.Context | None = None,
        **kwargs: Any,
    ) -> Any:
        self._numbers += 1
        return _NumberedTask(coroutine, loop=loop, context=context, number=self._numbers, **kwargs)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        pass

    # ── the choices ──────────────────────────────────────────────────────────────────────────────

    def outside(self, step: Callable[[], object]) -> None:
        """Something happens elsewhere, at a moment of the loop's choice, after what was added
        before."""
        self._outside.append(step)

    def _run_once(self) -> None:
        self.steps += 1
        if self._limit is not None and self.steps >= self._limit:
            self.stop()
        if self.steps > MAX_STEPS:
            raise DoesNotRest(f"no rest after {MAX_STEPS} steps")
        ready = self._choices()
        count = len(ready) + bool(self._outside)
        if count == 0:
            self._advance()
            return
        chosen = self.rng.randrange(count)
        if chosen == len(ready):
            self._outside.popleft()()
            return
        handle = ready[chosen]
        self._ready.remove(handle)  # type: ignore[attr-defined]
        if not handle.cancelled():
            handle._run()

    def _choices(self) -> list[events.Handle]:
        """The first handle of each group that must keep its order."""
        first: dict[object, events.Handle] = {}
        for handle in self._ready:  # type: ignore[attr-defined]
            first.setdefault(_group(handle), handle)
        return list(first.values())

    def _advance(self) -> None:
        """Nothing is ready: the next timer is due, or everything is over."""
        while self._scheduled:  # type: ignore[attr-defined]
            timer = heapq.heappop(self._scheduled)  # type: ignore[attr-defined]
            timer._scheduled = False
            if not timer._cancelled:
                self._now = max(self._now, timer.when())
                self._ready.append(timer)  # type: ignore[attr-defined]
                return
        self.stop()
        self.resting = True

    resting = False

    def run_to_rest(self) -> None:
        """Run until nothing is ready, nothing is due, and nothing happens elsewhere."""
        self.resting = False
        while not self.resting:
            self.run_forever()

    def run_steps(self, count: int) -> None:
        """Make so many choices, then stop as if the process were gone."""
        self._limit = self.steps + count
        self.run_forever()
        self._limit = None


def _group(handle: Any) -> object:
    owner = getattr(handle._callback, "__self__", None)
    if not isinstance(owner, PyTask):
        return "plain"
    # A wake-up has the future that woke the task as its argument.
    return ("future", id(handle._args[0])) if handle._args else ("task", id(owner))
