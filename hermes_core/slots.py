"""The places for running turns, for the whole gateway."""

from __future__ import annotations

import asyncio


class Slots(asyncio.Semaphore):
    """A semaphore whose limit can change while it is in use."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._limit = limit
        self._owed = 0

    async def resize(self, limit: int) -> None:
        """Set another limit. Those that are in use above it are given up as they are released."""
        more, self._limit = limit - self._limit, limit
        while more > 0 and self._owed > 0:
            more, self._owed = more - 1, self._owed - 1
        for _ in range(more):
            super().release()
        while more < 0 and not self.locked():
            await self.acquire()  # returns at once: one is free
            more += 1
        self._owed -= min(more, 0)

    def release(self) -> None:
        if self._owed > 0:
            self._owed -= 1
        else:
            super().release()
