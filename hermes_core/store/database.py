"""Open the state database: ours or refused, with the pragmas that the promises rest on."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Literal, TypeAlias

import peewee as pw

from hermes_core.errors import ForeignDatabase, StoreError, StoreFault
from hermes_core.store.migrations import APPLICATION_ID, migrate, require_known

Tx: TypeAlias = sqlite3.Connection
"""What a write operation gets: peewee's connection inside the writer's transaction."""

Durability: TypeAlias = Literal["full", "normal"]
_BUSY_MS = 1000
_PRIMARY_CODE = 0xFF
"""The low byte of an SQLite error code; the others say more about it (SQLITE_BUSY_RECOVERY)."""
_FAULTS = {
    0,  # Python's own: a closed connection, a wrong number of parameters
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_INTERNAL,
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_MISUSE,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_RANGE,
}
"""Codes that blame the operation. The others blame the disk, its permissions, or another process,
and pass."""


def open_writer(path: Path, durability: Durability = "full") -> pw.SqliteDatabase:
    """Open (or create) the database for its one writer. Call it in the thread that will write.

    Raises ForeignDatabase, NewerSchema, StoreError or StoreFault when the file cannot be used; none
    of them changes it.
    """
    try:
        require_ours(path)
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        database = _connect(path)
        try:
            _prepare(connection_of(database), path, durability)
        except BaseException:
            database.close()
            raise
    except (sqlite3.Error, pw.PeeweeException, OSError) as error:
        raise cannot_use(path, error) from error
    return database


def open_reader(path: Path) -> pw.SqliteDatabase:
    """A connection of this process that only reads. It may be used by one thread at a time."""
    database = _connect(path)
    connection_of(database).execute("PRAGMA query_only = ON")
    return database


def open_read_only(path: Path) -> pw.SqliteDatabase:
    """Open the database from a process that is not the gateway, creating nothing.

    While a writer is alive its WAL is there and is read; without one the file is complete by
    itself. Raises StoreError when there is none, and what `open_writer` raises.
    """
    if not path.exists():
        raise StoreError("there is no state database yet", where=str(path))
    try:
        require_ours(path)
        live = path.with_name(path.name + "-wal").exists()
        mode = "mode=ro" if live else "mode=ro&immutable=1"
        database = pw.SqliteDatabase(f"{path.absolute().as_uri()}?{mode}", uri=True)
        database.connect()
    except (sqlite3.Error, pw.PeeweeException, OSError) as error:
        raise cannot_use(path, error) from error
    return database


def primary_code(error: Exception) -> int | None:
    """What SQLite says is wrong, without the details; also behind an error of peewee. 0 when an
    error of it says nothing, None for one that does not come from it."""
    cause = error if isinstance(error, sqlite3.Error) else error.__cause__ or error.__context__
    if not isinstance(cause, sqlite3.Error):
        return None
    return int(getattr(cause, "sqlite_errorcode", 0)) & _PRIMARY_CODE


def cannot_use(path: Path, error: Exception) -> StoreError | StoreFault:
    """The one-line translation of an error of SQLite or the file system."""
    if primary_code(error) in _FAULTS:
        return StoreFault(
            f"an operation on the state database is wrong: {error}",
            where=str(path),
            remedy="please report it",
        )
    remedy = "check the disk's free space and the permissions of the file and its directory"
    if isinstance(error, sqlite3.DatabaseError) and "malformed" in str(error):
        remedy = "the file is damaged; restore a backup"
    return StoreError(f"cannot use the state database: {error}", where=str(path), remedy=remedy)


def connection_of(database: pw.SqliteDatabase) -> Tx:
    """The sqlite3 connection that peewee holds for this thread."""
    connection: Tx = database.connection()  # type: ignore[no-untyped-call]
    return connection


def _connect(path: Path) -> pw.SqliteDatabase:
    """Connect to a file that is there: one that was removed meanwhile is not made again."""
    database = pw.SqliteDatabase(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        thread_safe=False,  # one connection for all threads: the one that made it need not close it
        check_same_thread=False,
        cached_statements=256,
        timeout=_BUSY_MS / 1000,
    )
    database.connect()
    return database


def _prepare(connection: Tx, path: Path, durability: Durability) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] == 0:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {durability.upper()}")
    connection.execute("PRAGMA secure_delete = ON")  # what is erased is overwritten
    migrate(connection, path)


def empty_log(connection: Tx) -> None:
    """Bring the write-ahead log into the file and cut it to nothing, outside of a transaction.

    Somebody who reads an older state keeps it as it is. Raises sqlite3.Error.
    """
    connection.execute("PRAGMA busy_timeout = 0")  # do not wait for a reader
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")


def require_ours(path: Path) -> None:
    """Refuse a file that another program, or a newer Hermes, wrote. Reads it and takes no lock."""
    if not path.exists() or path.stat().st_size == 0:
        return
    try:
        with closing(_probe(path)) as probe:
            (found,) = probe.execute("PRAGMA application_id").fetchone()
            (version,) = probe.execute("PRAGMA user_version").fetchone()
            probe.execute("PRAGMA schema_version").fetchone()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_NOTADB:
            raise cannot_use(path, error) from error
        raise _foreign(path, "this is not a state database of Hermes") from error
    if found != APPLICATION_ID:
        raise _foreign(path, "this database belongs to another program")
    require_known(version, path)


def _probe(path: Path) -> Tx:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


def _foreign(path: Path, what: str) -> ForeignDatabase:
    return ForeignDatabase(
        what,
        where=str(path),
        remedy="move the file away, or choose another home with HERMES_HOME",
    )
