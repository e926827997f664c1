"""Tell a plugin what happened, in order, without the path having to wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from hermes_core.plugins.caller import Site
from hermes_core.plugins.model import Plugin

QUEUE = 1000
"""Notifications that may wait for one plugin. When it is full the newest is dropped and counted."""

Told = Callable[[Site, Mapping[str, object]], Awaitable[object]]
"""Makes one call and never raises an Exception."""

_log = logging.getLogger(__name__)


class Worker:
    """The queue and the task of one plugin. Used on the event loop's thread only."""

    def __init__(self, plugin: Plugin, tell: Told, *, size: int = QUEUE) -> None:
        self.plugin = plugin
        self._tell = tell
        self._queue: asyncio.Queue[tuple[Site, Mapping[str, object]] | None] = asyncio.Queue()
        self._size = size
        self._closed = False
        self._is_dropping = False
        self._task: asyncio.Task[None] | None = None

    def put(self, site: Site, values: Mapping[str, object]) -> None:
        """Queue a call of `site`, or drop it when the queue is full or closed."""
        if self._closed or self._queue.qsize() >= self._size:
            self._drop(site)
            return
        self._queue.put_nowait((site, values))

    def start(self) -> None:
        """Begin to work off the queue."""
        if self._task is None:
            self._task = asyncio.create_task(self._work(), name=f"notify {self.plugin.name}")

    def close(self) -> asyncio.Task[None] | None:
        """Take nothing more. The task ends when the queue is empty; None if there is no task."""
        if not self._closed:
            self._closed = True
            self._queue.put_nowait(None)
        return self._task

    def abandon(self) -> int:
        """Forget what waits. Returns how many calls that were."""
        count = 0
        while not self._queue.empty():
            if entry := self._queue.get_nowait():
                entry[0].tally.dropped += 1
                count += 1
        return count

    async def _work(self) -> None:
        while entry := await self._queue.get():
            await self._tell(*entry)
            self._is_dropping = self._is_dropping and not self._queue.empty()
            await asyncio.sleep(0)  # plain implementations do not let others run in between

    def _drop(self, site: Site) -> None:
        site.tally.dropped += 1
        if not self._closed and not self._is_dropping:
            self._is_dropping = True
            _log.warning(
                "plugin %s does not keep up: %d notifications wait, newer ones are dropped",
                self.plugin.label,
                self._size,
            )
