"""The real store without its threads: each commit is a step that the loop chooses the moment of."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import peewee as pw

from hermes_core.errors import StoreError
from hermes_core.store import Store
from hermes_core.store.database import Durability, cannot_use, connection_of, open_writer
from hermes_core.store.writer import Op, Write, begin, commit_batch, complete_batch
from tests.world.loop import WorldLoop

T = TypeVar("T")


class SteppedStore(Store):
    """Real SQLite. A batch of random size is committed in one step and told in a later one."""

    def __init__(self, path: Path, durability: Durability = "normal") -> None:
        super().__init__(path, durability)
        self._waiting: deque[Write[Any]] = deque()
        self._database: pw.SqliteDatabase | None = None
        self._ended = False

    async def open(self) -> None:
        self._database = open_writer(self.path, "normal")
        connection_of(self._database).execute("PRAGMA synchronous = OFF")

    async def close(self) -> None:
        self._ended = True
        while self._waiting:  # noqa: ASYNC110 - the loop chooses when the commits come
            await asyncio.sleep(0)
        self.abandon()

    def abandon(self) -> None:
        """As if the process were gone: what is not committed is lost."""
        self._ended = True
        self._waiting.clear()
        if self._database is not None:
            self._database.close()
            self._database = None

    def write(self, op: Op[T], on_commit: Callable[[T], None] | None = None) -> asyncio.Future[T]:
        if self._ended:
            raise StoreError("the state database is closed")
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WorldLoop)
        future: asyncio.Future[T] = loop.create_future()
        self._waiting.append(Write(op, future, on_commit))
        if len(self._waiting) == 1:
            loop.outside(lambda: self._step(loop))
        return future

    async def read(self, query: Callable[[pw.SqliteDatabase], T]) -> T:
        assert self._database is not None
        await asyncio.sleep(0)
        return query(self._database)

    def _step(self, loop: WorldLoop) -> None:
        if self._database is None or not self._waiting:
            return
        count = loop.rng.randint(1, len(self._waiting))
        batch = [self._waiting.popleft() for _ in range(count)]
        connection = connection_of(self._database)
        assert begin(connection)
        commit_batch(connection, batch, lambda error: cannot_use(self.path, error))
        loop.outside(partial(loop.call_soon, complete_batch, batch))
        if self._waiting:
            loop.outside(lambda: self._step(loop))
