"""When to trim: not too often, in a thread, with a history."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import msgspec

from hermes_memory_trim import TrimSettings, memory

if TYPE_CHECKING:
    from hermes_core import ServiceContext

log = logging.getLogger(__name__)

FLOOR = 5.0
"""Seconds between two trims, forced ones included."""
LONG = 0.1
"""Seconds of a collection after which only the young generations are collected: it holds Python's
lock, and with it everybody, in whatever thread it runs."""
FAILURES = 3
"""Failures in a row after which no more is tried."""
HISTORY = 50
_MIB = 1 << 20

_running: dict[str, Trimming] = {}
"""The services that run, by the uuid of their profile."""


class Trimmer:
    """Trims the process. All profiles share it: there is one heap."""

    def __init__(self, find: Callable[[], memory.Release | None] = memory.find_release) -> None:
        self.history: deque[memory.Trim] = deque(maxlen=HISTORY)
        self.count = 0
        self.failures = 0
        self.reason = ""
        self._find = find
        self._release: memory.Release | None = None
        self._looked = False
        self._last: float | None = None
        self._busy = False
        self._generation = memory.OLDEST

    @property
    def state(self) -> str:
        """`ready`, `unsupported` or `off` after failures."""
        if self.failures >= FAILURES:
            return "off"
        return "ready" if self._release is not None or not self._looked else "unsupported"

    def look(self) -> None:
        """Find the system's call, once."""
        if not self._looked:
            self._looked = True
            self._release = self._find()
            if self._release is None:
                log.info("this system has no call to give memory back; memory is not trimmed")

    def claim(self, cooldown: float) -> bool:
        """Whether a trim may be made now; it is the caller's then, and nobody else's before the
        cooldown is over. Times are the event loop's."""
        if self._busy or self._release is None or self.failures >= FAILURES:
            return False
        now = asyncio.get_running_loop().time()
        if self._last is not None and now - self._last < max(cooldown, FLOOR):
            return False
        self._last = now
        return True

    async def trim(
        self, settings: TrimSettings, reason: str, wall: float, *, forced: bool = False
    ) -> memory.Trim | None:
        """Trim in a thread. None when it failed. Call it only after a `claim`."""
        release = self._release
        assert release is not None
        loop = asyncio.get_running_loop()
        self._busy = True
        pool = ThreadPoolExecutor(1, thread_name_prefix="hermes-trim")
        try:
            done = await loop.run_in_executor(
                pool, memory.trim, release, reason, wall, self._generation
            )
        except Exception as error:
            self._failed(error)
            return None
        finally:
            self._busy = False
            pool.shutdown(wait=False)
        self.failures, self.reason = 0, ""
        self.count += 1
        if done.collecting > LONG:
            self._generation = memory.YOUNG
        self.history.append(done)
        self._report(done, settings, forced=forced)
        return done

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self.reason = f"{type(error).__name__}: {error}"
        log.debug("memory could not be trimmed: %s", self.reason)
        if self.failures == FAILURES:
            log.warning("memory is not trimmed any more, after %d failures", FAILURES)

    def _report(self, done: memory.Trim, settings: TrimSettings, *, forced: bool) -> None:
        wanted = (
            self.count % settings.log_every_n == 0
            and done.delta >= settings.info_log_min_delta_mb * _MIB
        )
        log.log(
            logging.INFO if forced or wanted else logging.DEBUG,
            "memory trim: reason=%s released=%s resident_mib=%s->%s anonymous_mib=%s->%s"
            " threads=%s duration_ms=%.1f",
            done.reason,
            done.released,
            _mib(done.before.resident),
            _mib(done.after.resident),
            _mib(done.before.anonymous),
            _mib(done.after.anonymous),
            done.after.threads,
            done.duration * 1000,
        )


_shared = Trimmer()


def trim(uuid: str, reason: str) -> None:
    """Trim if the profile's settings and the clock allow it. Returns at once."""
    if (service := _running.get(uuid)) is not None:
        service.trim(reason)


class Trimming:
    """The service of one profile."""

    def __init__(self, context: ServiceContext, trimmer: Trimmer | None = None) -> None:
        self._context = context
        self._trimmer = trimmer or _shared

    async def start(self) -> None:
        self._trimmer.look()
        _running[self._context.scope.uuid] = self

    async def stop(self) -> None:
        _running.pop(self._context.scope.uuid, None)

    def trim(self, reason: str) -> None:
        """Begin a trim, if it is due."""
        settings = self._settings()
        if settings.enabled and self._trimmer.claim(settings.cooldown_seconds):
            self._context.spawn(self._trim(settings, reason), "trim")

    async def request(self, request: Mapping[str, object]) -> Mapping[str, object]:
        """The figures and the history; with `trim`, after a trim now."""
        done = None
        if request.get("trim") and self._trimmer.claim(FLOOR):
            now = self._context.wall()
            done = await self._trimmer.trim(self._settings(), "asked for", now, forced=True)
        return {
            "state": self._trimmer.state,
            "reason": self._trimmer.reason,
            "enabled": self._settings().enabled,
            "now": msgspec.to_builtins(memory.figures()),
            "count": self._trimmer.count,
            "trimmed": done is not None,
            "trims": [msgspec.to_builtins(one) for one in reversed(self._trimmer.history)],
        }

    async def _trim(self, settings: TrimSettings, reason: str) -> None:
        await self._trimmer.trim(settings, reason, self._context.wall())

    def _settings(self) -> TrimSettings:
        return self._context.section("memory_trim", TrimSettings)


def _mib(size: int | None) -> str:
    return "?" if size is None else f"{size / _MIB:.1f}"
