"""A queue that a thread fills and a terminal waits for together with its keyboard."""

from __future__ import annotations

import os
import select
from collections import deque
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Items in their order. `put` may be called by any thread, the rest by one."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._writable, False)

    def put(self, item: T) -> None:
        self._items.append(item)
        try:
            os.write(self._writable, b"!")
        except BlockingIOError:
            return  # the pipe is full: the reader has something to wake up for

    def wait(self, *also: int) -> bool:
        """Wait for an item, or for one of the descriptors `also` to be readable: then False."""
        while not self._items:
            ready, _, _ = select.select([self._readable, *also], [], [])
            if self._readable not in ready:
                return False
            os.read(self._readable, 4096)
        return True

    def take(self) -> list[T]:
        """All items there are."""
        items: list[T] = []
        while self._items:
            items.append(self._items.popleft())
        return items

    def __enter__(self) -> Inbox[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._readable)
        os.close(self._writable)
