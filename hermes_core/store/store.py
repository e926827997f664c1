"""`Store`: one profile's database as the rest of the core sees it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import peewee as pw

from hermes_core.errors import HermesError, StoreError, StoreFault
from hermes_core.pauses import doubling
from hermes_core.store.database import (
    Durability,
    Tx,
    cannot_use,
    connection_of,
    empty_log,
    open_reader,
    open_writer,
)
from hermes_core.store.episode import Episode
from hermes_core.store.guard import DAMAGED, Guard, is_damage, refusal, rescue
from hermes_core.store.writer import (
    Op,
    Write,
    WriteQueue,
    begin,
    closed,
    commit_batch,
    complete_batch,
    fail_batch,
    has_room,
)

T = TypeVar("T")
log = logging.getLogger(__name__)

LOCKED = "another process holds the write lock"
LOG_REMOVED = "somebody removed the state database's write-ahead log"
READERS = 2
"""Reader threads per file. Reads are rare: a turn's history, listings."""


class Store:
    """Writes go through one thread that commits them in groups; reads use a few connections."""

    def __init__(self, path: Path, durability: Durability = "full") -> None:
        self.path = path
        self._durability: Durability = durability
        self._queue = WriteQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="hermes-read")
        self._local = threading.local()
        self._reading: list[pw.SqliteDatabase] = []
        self._opened = 0
        self._episode = Episode(path)
        self._refused = ""
        self._emptying = False

    @property
    def trouble(self) -> str:
        """Why nothing can be written, for now or any more; "" as long as all is well."""
        return self._refused or self._episode.reason

    async def open(self) -> None:
        """Open, check and migrate the file. Raises StoreError (see `open_writer`)."""
        self._loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(
            target=self._write_forever, args=(opened,), name="hermes-write", daemon=True
        )
        self._thread.start()
        await opened

    async def close(self) -> None:
        """Commit what is waiting, close every connection."""
        self._queue.close()
        # In a thread of its own: anybody's code may have shut the loop's default executor down.
        closer = ThreadPoolExecutor(1, thread_name_prefix="hermes-close")
        await asyncio.get_running_loop().run_in_executor(closer, self._close)
        closer.shutdown(wait=False)

    def _close(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._readers.shutdown()
        for database in self._reading:
            database.close()
        self._reading.clear()

    def write(self, op: Op[T], on_commit: Callable[[T], None] | None = None) -> asyncio.Future[T]:
        """Submit a write. The order of calls is the order of commits.

        The future resolves after the commit, with the operation's result or its error. `on_commit`
        runs on the loop for every committed operation, also when nobody waits for the future any
        more.
        """
        assert self._loop is not None, "the store is not open"
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(Write(op, future, on_commit))
        return future

    async def persist(self, op: Op[T], on_commit: Callable[[T], None] | None = None) -> T:
        """Write what has happened and must not be forgotten.

        Tries again while the file cannot be written. Raises StoreError when the store is closed,
        StoreFault for an operation that is wrong, and whatever else `op` raises.
        """
        for pause in doubling():
            try:
                return await self.write(op, on_commit)
            except StoreError:
                if self._queue.closed:
                    raise
            await asyncio.sleep(pause)
        raise AssertionError("pauses have no end")

    async def look_again(self) -> None:
        """Find out whether what kept the file from being written is over. Raises StoreError."""
        if self._episode.reason:
            await self.write(lambda _: None)

    async def empty_log(self) -> None:
        """Let nothing stay in the write-ahead log: what was erased is in the older part of it.

        A reader that is in the way puts it off. Raises StoreError.
        """
        self._emptying = True
        await self.write(lambda _: None)

    async def read(self, query: Callable[[pw.SqliteDatabase], T]) -> T:
        """Run a read in a reader thread, against what is committed. Raises StoreError and
        StoreFault."""
        assert self._loop is not None, "the store is not open"
        if self._queue.closed:
            raise closed()
        return await self._loop.run_in_executor(self._readers, self._read, query)

    def _read(self, query: Callable[[pw.SqliteDatabase], T]) -> T:
        try:
            return query(self._reader())
        except (sqlite3.Error, pw.PeeweeException) as error:
            if is_damage(error):
                self._refuse(DAMAGED)
            raise cannot_use(self.path, error) from error

    def _reader(self) -> pw.SqliteDatabase:
        """The connection of this reader thread, made anew when the writer's was."""
        database: pw.SqliteDatabase | None = getattr(self._local, "database", None)
        if database is None or self._local.opened != self._opened:
            self._local.opened = self._opened
            database = self._local.database = open_reader(self.path)
            self._reading.append(database)
        return database

    def _write_forever(self, opened: asyncio.Future[None]) -> None:
        try:
            database = open_writer(self.path, self._durability)
        except Exception as error:
            self._on_loop(_resolve, opened, error)
            return
        guard = Guard(self.path)
        self._on_loop(_resolve, opened, None)
        while batch := self._queue.take():
            try:
                database, guard = self._heal(database, guard)
                self._commit(connection_of(database), guard, batch)
                self._empty_log(connection_of(database))
            except (sqlite3.Error, pw.PeeweeException) as error:
                fail_batch(batch, self._cannot(error))
            self._on_loop(complete_batch, batch)
        database.close()

    def _heal(self, database: pw.SqliteDatabase, guard: Guard) -> tuple[pw.SqliteDatabase, Guard]:
        """Make a new write-ahead log in place of one that was removed. What it held is still open,
        and is brought into the file first."""
        if self._refused or guard.trouble() or not guard.log_is_gone:
            return database, guard
        try:
            (busy, *_) = (
                connection_of(database).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            )
            if busy:  # somebody reads: the next write tries again
                return database, guard
            self._opened += 1
            database.close()
            database = open_writer(self.path, self._durability)
        except (sqlite3.Error, HermesError) as error:
            self._refuse(f"{LOG_REMOVED}, and cannot be made again: {error}")
            return database, guard
        log.error("%s; nothing of it was lost", LOG_REMOVED, extra={"path": str(self.path)})
        return database, Guard(self.path)

    def _commit(self, connection: Tx, guard: Guard, batch: list[Write[Any]]) -> None:
        if not self._refused and (found := guard.trouble()):
            self._refuse(found)
            self._rescue(connection)
        if self._refused:
            fail_batch(batch, refusal(self._refused, self.path))
            return
        try:
            self._begin(connection)
        except sqlite3.Error as error:
            fail_batch(batch, self._cannot(error))
        else:
            commit_batch(connection, batch, self._cannot)
            if self._episode.reason and has_room(connection):
                self._episode.end()

    def _empty_log(self, connection: Tx) -> None:
        if not self._emptying or self._refused:
            return
        self._emptying = False
        try:
            empty_log(connection)
        except sqlite3.Error as error:  # nothing is lost: the next commits find out what is wrong
            log.warning("the write-ahead log was not emptied: %s", error)

    def _cannot(self, error: Exception) -> StoreError | StoreFault:
        """What a write failed by, for whoever asked for it; said in the log unless it blames the
        operation."""
        cannot = cannot_use(self.path, error)
        cannot.__cause__ = error
        if is_damage(error):
            self._refuse(DAMAGED)
        elif isinstance(cannot, StoreError):
            self._episode.begin(cannot.what)
        return cannot

    def _refuse(self, trouble: str) -> None:
        """From now on nothing is written. Said once."""
        if not self._refused:
            self._refused = trouble
            log.error("nothing is written any more: %s", refusal(trouble, self.path))

    def _rescue(self, connection: Tx) -> None:
        try:
            copy = rescue(connection, self.path)
        except (sqlite3.Error, OSError) as error:
            log.error("what was in it could not be copied: %s", error)
        else:
            log.error("what was in it is kept in %s", copy)

    def _begin(self, connection: Tx) -> None:
        """Open the transaction, however long another process keeps it from being opened."""
        while not begin(connection):
            self._episode.begin(LOCKED)

    def _on_loop(self, call: Callable[..., object], *args: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the loop was closed under us: nobody is left to tell
            log.debug("the event loop closed before a write was reported")


def _resolve(opened: asyncio.Future[None], error: Exception | None) -> None:
    if opened.done():  # nobody waits for it any more
        return
    if error is None:
        opened.set_result(None)
    else:
        opened.set_exception(error)
