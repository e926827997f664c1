"""How fast frames may go out, and when they may not.

The relay counts EVENT, REQ and COUNT frames together, per community and key, and keeps counting
over a reconnect: so there is one `Pacing` for the life of an adapter.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import deque

RATE = 8.0
"""Frames a second, below the relay's 10."""
BURST = 10
"""Frames at once. With `RATE` no 5 seconds see more than the relay's 50."""
QUIET = 30
"""EVENT frames in a minute up to which there is room for signs of life. The relay takes 60, and
counts typing and presence like messages."""
MINUTE = 60.0
DEFAULT_WAIT = 2.0
"""Seconds to wait when the relay refuses without saying for how long."""
_RETRY = re.compile(r"retry in (?P<seconds>[0-9]+(?:\.[0-9]+)?) ?s", re.IGNORECASE)
MAX_WAIT = 3600.0
MAX_BACKOFF = 30.0
"""Seconds between two tries at most, for what is tried again and again."""


class Pacing:
    """A token bucket with a gate in front of it. Time is the event loop's."""

    def __init__(self, rate: float = RATE, burst: int = BURST) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._counted_at = 0.0
        self._closed_until = 0.0
        self._order = asyncio.Lock()
        self._events: deque[float] = deque(maxlen=QUIET)

    @property
    def closed_for(self) -> float:
        """Seconds until the gate opens, 0 when it is open."""
        return max(0.0, self._closed_until - asyncio.get_running_loop().time())

    def close(self, seconds: float) -> None:
        """The relay wants a pause."""
        until = asyncio.get_running_loop().time() + seconds
        self._closed_until = max(self._closed_until, until)

    async def event_turn(self) -> None:
        """Wait until one more EVENT frame may go out."""
        await self.turn()
        self._events.append(asyncio.get_running_loop().time())

    async def turn(self) -> None:
        """Wait until one more frame may go out. First come, first served."""
        async with self._order:
            while (pause := self._pause()) > 0:  # noqa: ASYNC110 - time alone ends it
                await asyncio.sleep(pause)
            self._tokens -= 1

    def try_event_turn(self) -> bool:
        """Take a turn for an EVENT frame that is worthless later, if nothing else may need it."""
        if self._order.locked() or self._is_busy() or self._pause() > 0:
            return False
        self._tokens -= 1
        self._events.append(asyncio.get_running_loop().time())
        return True

    def _is_busy(self) -> bool:
        oldest = self._events[0] if len(self._events) == QUIET else None
        return oldest is not None and asyncio.get_running_loop().time() - oldest < MINUTE

    def _pause(self) -> float:
        now = asyncio.get_running_loop().time()
        earned = (now - self._counted_at) * self._rate
        self._tokens = min(float(self._burst), self._tokens + earned)
        self._counted_at = now
        missing = (1 - self._tokens) / self._rate if self._tokens < 1 else 0.0
        return max(missing, self.closed_for)


def retry_after(text: str) -> float:
    """Seconds to wait that a refusal names."""
    match = _RETRY.search(text)
    return min(MAX_WAIT, float(match["seconds"])) if match else DEFAULT_WAIT


def backoff(failures: int) -> float:
    """Seconds until the next try, after so many that failed."""
    return min(MAX_BACKOFF, 2.0 ** (failures - 1)) * random.uniform(0.75, 1.25)  # noqa: S311
