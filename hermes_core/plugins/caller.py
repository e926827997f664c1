"""Run code of plugins: timed, limited, contained and accounted. Nothing else calls an
implementation.

Plain code runs where it is called, on the event loop. No limit can stop it; it is timed and, when
it holds the loop, named. Async code runs in a task of its own, so that a late call can be cancelled
and left behind without anybody having to wait for it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from hermes_core.hookkinds import Spec
from hermes_core.plugins.inspection import Implementation, parameters
from hermes_core.plugins.ledger import MAX_ABANDONED, Breaker, Ledger
from hermes_core.plugins.model import Abandoned, Plugin, Running, contained

T = TypeVar("T")
R = TypeVar("R")

SLOW = 0.1
"""Seconds for which plugin code may hold the event loop before it is named in the log."""

_log = logging.getLogger(__name__)
_trace = logging.getLogger("hermes_core.trace")


class Late(TimeoutError):
    """A call of a plugin was not done within its time limit."""


class Call:
    """How arguments of a call become named values. Defaults of the spec are filled in."""

    def __init__(self, spec: Spec[..., object]) -> None:
        known = parameters(spec.function)
        self._names = tuple(known)
        self._defaults = {
            name: parameter.default
            for name, parameter in known.items()
            if parameter.default is not parameter.empty
        }

    def values(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Mapping[str, object]:
        """The arguments by name."""
        if not args and not self._defaults:
            return kwargs
        return {**self._defaults, **dict(zip(self._names, args, strict=False)), **kwargs}


class Site:
    """One implementation of one hook: where a call goes, and its account."""

    def __init__(self, plugin: Plugin, hook: Implementation, ledger: Ledger) -> None:
        self.plugin = plugin
        self.spec: Spec[..., object] = hook.spec
        self.name = f"{plugin.name}.{hook.spec.name}"
        self.tally = ledger.tally(plugin.name, hook.spec.name)
        self.breaker = Breaker(self.tally)
        self.reported: set[type[BaseException]] = set()
        self.lingering = 0
        self._function = hook.function
        self._arguments = hook.arguments

    def run(self, values: Mapping[str, object]) -> object:
        """Call the implementation with those of `values` that it asks for."""
        return self._function(**{name: values[name] for name in self._arguments})

    @property
    def is_clogged(self) -> bool:
        """Whether so many late calls linger that another one would be one too many."""
        return self.lingering >= MAX_ABANDONED


class Caller:
    """Makes the calls, on one event loop, and knows what is going on."""

    def __init__(self, *, trace: bool = False) -> None:
        self.ledger = Ledger()
        self._trace = trace
        self._running: tuple[Site, float] | None = None
        self._abandoned: dict[asyncio.Task[object], tuple[Site, float]] = {}

    @property
    def abandoned(self) -> tuple[Abandoned, ...]:
        """The late calls that have not ended."""
        now = time.monotonic()
        return tuple(
            Abandoned(site.plugin.name, site.spec.name, now - since)
            for site, since in self._abandoned.values()
        )

    @property
    def running(self) -> Running | None:
        """The plugin code that holds the event loop at this moment. Safe to ask from any thread."""
        running = self._running
        if running is None:
            return None
        site, since = running
        return Running(site.plugin.name, site.spec.name, time.perf_counter() - since)

    async def call(self, site: Site, values: Mapping[str, object]) -> object:
        """Call one implementation, plain or async, within the limit of its spec.

        Raises what it raises, `Late` when it is not done in time, and `PluginError` in place of
        what would end more than this call (SystemExit, KeyboardInterrupt, a cancellation of its
        own).
        """
        with self._accounted(site):
            result = self._plain(site, values)
            if not inspect.isawaitable(result):
                return result
            coroutine = result if inspect.iscoroutine(result) else _awaited(result)
            if site.spec.limit is None:
                return await self._unlimited(site, coroutine)
            return await self._within(site.spec.limit, site, coroutine)

    def call_plain(self, site: Site, values: Mapping[str, object]) -> object:
        """Call an implementation that is not async. Raises as `call` does."""
        with self._accounted(site):
            return self._plain(site, values)

    @contextmanager
    def _accounted(self, site: Site) -> Iterator[None]:
        began = time.perf_counter()
        site.tally.calls += 1
        outcome = "ok"
        try:
            yield
        except BaseException as error:
            outcome = type(error).__name__
            site.tally.timeouts += isinstance(error, Late)
            site.tally.errors += isinstance(error, Exception) and not isinstance(error, Late)
            raise
        finally:
            seconds = time.perf_counter() - began
            site.tally.seconds += seconds
            if self._trace:
                _trace.info("%s: %s in %.6f s", site.name, outcome, seconds)

    def _plain(self, site: Site, values: Mapping[str, object]) -> object:
        try:
            return self._hold(site, site.run, values)
        except Exception:
            raise
        except BaseException as error:
            raise contained(error) from error

    async def _unlimited(self, site: Site, coroutine: Coroutine[Any, Any, object]) -> object:
        try:
            return await self._steps(site, coroutine)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            raise contained(error) from error

    async def _within(
        self, limit: float, site: Site, coroutine: Coroutine[Any, Any, object]
    ) -> object:
        task = asyncio.create_task(self._settled(site, coroutine), name=f"hook {site.name}")
        try:
            done, _ = await asyncio.wait({task}, timeout=limit)
        except asyncio.CancelledError:
            self._abandon(site, task, coroutine)
            raise
        if not done:
            self._abandon(site, task, coroutine)
            raise Late(f"not done within {limit:g} s")
        result, error = task.result()
        if error is not None:
            raise error
        return result

    async def _settled(
        self, site: Site, coroutine: Coroutine[Any, Any, object]
    ) -> tuple[object, Exception | None]:
        """The end of `coroutine` as a value: a task that raises SystemExit would end the loop."""
        try:
            return await self._steps(site, coroutine), None
        except Exception as error:
            return None, error
        except BaseException as error:
            problem = contained(error)
            problem.__cause__ = error
            return None, problem

    @types.coroutine
    def _steps(
        self, site: Site, coroutine: Coroutine[Any, Any, object]
    ) -> Generator[Any, Any, object]:
        """Await `coroutine`, and know at each of its steps that it holds the loop."""
        move: Callable[[Any], Any] = coroutine.send
        value: Any = None
        while True:
            try:
                waiting = self._hold(site, move, value)
            except StopIteration as end:
                return end.value
            try:
                value = yield waiting
                move = coroutine.send
            except BaseException as error:
                value, move = error, coroutine.throw

    def _hold(self, site: Site, function: Callable[[T], R], argument: T) -> R:
        """Run code that holds the loop until it returns."""
        outer, began = self._running, time.perf_counter()
        self._running = (site, began)
        try:
            return function(argument)
        finally:
            self._running = outer
            seconds = time.perf_counter() - began
            if seconds > SLOW:
                _log.warning(
                    "plugin %s held the event loop for %.2f s in %s",
                    site.plugin.label,
                    seconds,
                    site.spec.name,
                )

    def _abandon(
        self,
        site: Site,
        task: asyncio.Task[Any],
        coroutine: Coroutine[Any, Any, object],
    ) -> None:
        """Cancel a call and leave it to itself: nobody waits for it, and its result is lost."""

        def gone(_: object) -> None:
            coroutine.close()  # in case that it never began
            del self._abandoned[task]
            site.lingering -= 1
            site.tally.abandoned -= 1

        task.cancel()
        site.lingering += 1
        site.tally.abandoned += 1
        self._abandoned[task] = (site, time.monotonic())
        task.add_done_callback(gone)


async def _awaited(awaitable: Awaitable[object]) -> object:
    return await awaitable
