"""What is asked of the relay: a REQ, the events stored so far, their end, and what follows."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from hermes_buzz.events import Event

Filter: TypeAlias = Mapping[str, object]
PAGE = 200
"""Events asked for at once: less than any relay gives, so that a full page means more."""
MAX_WAITING = 1000
"""Live events of one subscription that wait to be handled. Beyond it the channel is read again."""
_ids = itertools.count(1)


class Subscription:
    """One REQ. Whoever made it awaits `opened`, takes `stored`, and then `next_batch` for ever."""

    def __init__(self, query: Filter) -> None:
        self.id = f"h{next(_ids)}"
        self.query = query
        self.stored: list[Event] = []
        """What the relay had, at most `MAX_WAITING`; a `PAGE` or more means: there may be more."""
        self.closed: str | None = None
        """Why the relay closed it; None while it is open."""
        self.overflowed = False
        self._live: deque[Event] = deque()
        self._is_open = False
        self._change = asyncio.Event()

    @property
    def request(self) -> str:
        """The REQ frame."""
        return msgspec.json.encode(["REQ", self.id, self.query]).decode()

    @property
    def is_complete(self) -> bool:
        """All stored events are there, whatever came afterwards."""
        return self._is_open

    # ── from the connection ──────────────────────────────────────────────────────────────────────

    def take(self, event: Event) -> None:
        """An authentic event came in."""
        waiting = self._live if self._is_open else self.stored
        if len(waiting) < MAX_WAITING:
            waiting.append(event)
        elif self._is_open:
            self.overflowed = True
        self._change.set()

    def end_of_stored(self) -> None:
        """What follows is new."""
        self._is_open = True
        self._change.set()

    def close(self, reason: str) -> None:
        """The relay ended it."""
        self.closed = reason
        self._change.set()

    def restart(self) -> None:
        """It is asked for again from the beginning, because the relay may have hidden events."""
        self._is_open, self.closed = False, None

    # ── for whoever reads it ─────────────────────────────────────────────────────────────────────

    async def opened(self) -> None:
        """Wait for the end of the stored events, or for the end of the subscription."""
        while not self._is_open and self.closed is None:
            await self._changed()

    async def next_batch(self, limit: int) -> list[Event]:
        """Wait for live events; at most `limit` of them. Empty: closed, or some were dropped."""
        while not self._live and self.closed is None and not self.overflowed and self._is_open:
            await self._changed()
        count = min(limit, len(self._live))
        return [self._live.popleft() for _ in range(count)]

    async def _changed(self) -> None:
        self._change.clear()
        await self._change.wait()
