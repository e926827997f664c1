"""A drain that somebody asked for: for a while no turn begins. It has an owner and an end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

MAX_SECONDS = 86_400.0


class Drain:
    """Pauses the start of turns. It ends by itself: a request that is forgotten blocks nobody for
    ever."""

    def __init__(
        self, pause: Callable[[], None], resume: Callable[[], None], wall: Callable[[], float]
    ) -> None:
        self._pause = pause
        self._resume = resume
        self._wall = wall
        self._owner = ""
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, owner: str, seconds: float) -> None:
        """Begin, or replace the one that is; 0 seconds end it."""
        self.end()
        if seconds <= 0:
            return
        self._owner = owner[:200]
        self._since = self._wall()
        self._pause()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(seconds, MAX_SECONDS), self.end)

    def end(self) -> None:
        """Turns begin again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._resume()

    def status(self) -> dict[str, object] | None:
        """Who asked, since when, and the seconds left; None without a drain."""
        if self._timer is None:
            return None
        left = self._timer.when() - asyncio.get_running_loop().time()
        return {"owner": self._owner, "since": self._since, "seconds_left": round(left, 1)}
