"""How fast frames may go out, and when they may not.

The relay counts EVENT, REQ and COUNT frames together, per community and key, and keeps counting
over a reconnect: so there is one `Pacing` for the life of an adapter.
"""

from __future__ import annotations

import asyncio
import re

RATE = 8.0
"""Frames a second, below the relay's 10."""
BURST = 10
"""Frames at once. With `RATE` no 5 seconds see more than the relay's 50."""
DEFAULT_WAIT = 2.0
"""Seconds to wait when the relay refuses without saying for how long."""
_RETRY = re.compile(r"retry in (?P<seconds>[0-9]+(?:\.[0-9]+)?) ?s", re.IGNORECASE)
MAX_WAIT = 3600.0


class Pacing:
    """A token bucket with a gate in front of it. Time is the event loop's."""

    def __init__(self, rate: float = RATE, burst: int = BURST) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._counted_at = 0.0
        self._closed_until = 0.0
        self._order = asyncio.Lock()

    @property
    def closed_for(self) -> float:
        """Seconds until the gate opens, 0 when it is open."""
        return max(0.0, self._closed_until - asyncio.get_running_loop().time())

    def close(self, seconds: float) -> None:
        """The relay wants a pause."""
        until = asyncio.get_running_loop().time() + seconds
        self._closed_until = max(self._closed_until, until)

    async def turn(self) -> None:
        """Wait until one more frame may go out. First come, first served."""
        async with self._order:
            while (pause := self._pause()) > 0:  # noqa: ASYNC110 - time alone ends it
                await asyncio.sleep(pause)
            self._tokens -= 1

    def try_turn(self) -> bool:
        """Take a turn if there is one at once: for what is worthless later."""
        if self._order.locked() or self._pause() > 0:
            return False
        self._tokens -= 1
        return True

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
