"""First-in-first-out for those that come one after the other to the same place."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable


class Order:
    """Lets callers of one key through in the order in which they came, callers of others beside
    them."""

    def __init__(self) -> None:
        self._tails: dict[Hashable, asyncio.Future[None]] = {}

    def place(self, key: Hashable) -> Place:
        """A place at the end of the line, taken now. Enter it as an async context."""
        return Place(self._tails, key)


class Place:
    """Entering waits for whoever came before; leaving lets whoever came next through.

    A caller that is cancelled while it waits passes its predecessor's place on, not its own.
    """

    __slots__ = ("_before", "_key", "_mine", "_tails")

    def __init__(self, tails: dict[Hashable, asyncio.Future[None]], key: Hashable) -> None:
        self._tails = tails
        self._key = key
        self._before = tails.get(key)
        self._mine = tails[key] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> None:
        if self._before is None:
            return
        try:
            await asyncio.shield(self._before)
        except asyncio.CancelledError:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._leave()

    def _leave(self, _: object = None) -> None:
        if self._before is not None and not self._before.done():
            self._before.add_done_callback(self._leave)
            return
        self._mine.set_result(None)
        if self._tails.get(self._key) is self._mine:
            del self._tails[self._key]
