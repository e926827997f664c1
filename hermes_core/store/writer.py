"""The one writer: many waiting writes, one transaction, one fsync.

An operation is a function of the open transaction. One that fails takes nobody else with it: the
batch is rolled back and run again with a savepoint around each, so operations must bear to be run
twice. When the transaction is committed, each operation's `on_commit`
runs on the event loop, in the order of submission, and then its future is resolved: whoever needs
to know that a row exists learns it there, even if the coroutine that asked for the write is gone by
then.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import peewee as pw

from hermes_core.errors import HermesError, PluginError, StoreError, StoreFault, described
from hermes_core.store.database import Tx, primary_code
from hermes_core.store.guard import is_damage

log = logging.getLogger(__name__)
T = TypeVar("T")
Op = Callable[[Tx], T]
Failed = Callable[[Exception], StoreError | StoreFault]
"""Translates an error of SQLite."""

_OF_SQLITE = (sqlite3.Error, pw.DatabaseError, pw.InterfaceError)
BATCH = 512
"""Operations in one transaction at most: bounds how long the first of them waits."""


class Write(Generic[T]):
    """One operation on its way."""

    __slots__ = ("error", "future", "on_commit", "op", "result")

    def __init__(
        self, op: Op[T], future: asyncio.Future[T], on_commit: Callable[[T], None] | None
    ) -> None:
        self.op = op
        self.future = future
        self.on_commit = on_commit
        self.result: T | None = None
        self.error: Exception | None = None


class WriteQueue:
    """What is waiting to be written, in order. Filled and closed by the loop, emptied by the
    writer."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Write[Any] | None] = queue.SimpleQueue()
        self._closed = False

    def put(self, write: Write[Any]) -> None:
        if self._closed:
            raise closed()
        self._waiting.put(write)

    def take(self) -> list[Write[Any]]:
        """The next batch; waits for one. Empty once the queue is closed and drained."""
        batch: list[Write[Any]] = []
        write = self._waiting.get()
        while write is not None:
            batch.append(write)
            if len(batch) == BATCH or self._waiting.empty():
                return batch
            write = self._waiting.get()
        self._waiting.put(None)  # for the next call: what came before it is handed out first
        return batch

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._waiting.put(None)


def closed() -> StoreError:
    """The error of whoever comes after the end."""
    return StoreError("the state database is closed")


def begin(connection: Tx) -> bool:
    """Open the transaction. False when another process holds the lock past the busy time-out.

    Raises sqlite3.Error for whatever else is wrong: without a transaction around them, savepoints
    would commit one by one.
    """
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if primary_code(error) != sqlite3.SQLITE_BUSY:
            raise
        return False
    return True


def commit_batch(connection: Tx, batch: list[Write[Any]], failed: Failed) -> None:
    """Run a batch in the open transaction, commit, and leave a result or an error in each write.

    A full disk makes SQLite drop the whole transaction, savepoints included; then the whole batch
    failed.
    """
    try:
        connection.execute("SAVEPOINT batch")
        if not _run_all(connection, batch, failed):
            connection.execute("ROLLBACK TO batch")
            for write in batch:
                _run_one(connection, write, failed)
        connection.execute("COMMIT")
    except (sqlite3.Error, HermesError) as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        fail_batch(batch, error if isinstance(error, HermesError) else failed(error))


def has_room(connection: Tx) -> bool:
    """Whether the file takes as much as a long message needs, by writing it. Small changes find
    room where others do not."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO kv (owner, key, value) VALUES ('', '', zeroblob(65536))")
        connection.execute("DELETE FROM kv WHERE owner = ''")
        connection.execute("COMMIT")
    except sqlite3.Error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        return False
    return True


def _run_all(connection: Tx, batch: list[Write[Any]], failed: Failed) -> bool:
    """Run a batch as if nothing could fail. False when something did: then each gets a
    savepoint."""
    for write in batch:
        try:
            write.result = write.op(connection)
        except BaseException as error:  # whatever a plugin's operation raises: the writer goes on
            _require_sound(connection, _bearable(error), failed)
            return False
    return True


def _run_one(connection: Tx, write: Write[Any], failed: Failed) -> None:
    connection.execute("SAVEPOINT op")
    try:
        write.result = write.op(connection)
    except BaseException as raised:
        error = _bearable(raised)
        _require_sound(connection, error, failed)
        write.error = failed(error) if isinstance(error, _OF_SQLITE) else error
        connection.execute("ROLLBACK TO op")
    connection.execute("RELEASE op")


def _bearable(error: BaseException) -> Exception:
    """The error for whoever waits: no future takes a StopIteration, and what would end more than
    the operation (SystemExit) is told as an error of it."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    bearable = PluginError(f"an operation on the state database raised {described(error)}")
    bearable.__cause__ = error
    return bearable


def _require_sound(connection: Tx, error: Exception, failed: Failed) -> None:
    """Raise StoreError when an error means that nothing of the batch can be stored."""
    if is_damage(error):
        raise failed(error) from error
    if not connection.in_transaction:
        if isinstance(error, _OF_SQLITE):
            raise failed(error) from error
        raise StoreFault("an operation ended the transaction") from error


def fail_batch(batch: list[Write[Any]], error: HermesError) -> None:
    """Nothing of a batch was stored."""
    for write in batch:
        write.error = error


def complete_batch(batch: list[Write[Any]]) -> None:
    """Tell the loop's side about a batch that is over. Runs on the event loop."""
    for write in batch:
        if write.error is None and write.on_commit is not None:
            _tell(write.on_commit, write.result)
        if write.future.done():
            continue
        if write.error is not None:
            write.future.set_exception(write.error)
        else:
            write.future.set_result(write.result)


def _tell(on_commit: Callable[[T], None], result: T) -> None:
    try:
        on_commit(result)
    except Exception:  # its batch mates are told nevertheless
        log.exception("what follows a commit failed")
