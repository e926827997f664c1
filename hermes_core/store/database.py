"""Open the state database: ours or refused, with the pragmas that the promises rest on."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Literal, TypeAlias

import peewee as pw

from hermes_core.errors import ForeignDatabase, StoreError
from hermes_core.store.migrations import APPLICATION_ID, migrate

Tx: TypeAlias = sqlite3.Connection
"""What a write operation gets: peewee's connection inside the writer's transaction."""

Durability: TypeAlias = Literal["full", "normal"]
_BUSY_MS = 1000


def open_writer(path: Path, durability: Durability = "full") -> pw.SqliteDatabase:
    """Open (or create) the database for its one writer. Call it in the thread that will write.

    Raises ForeignDatabase, NewerSchema, or StoreError when the file cannot be used; none of them changes it.
    """
    try:
        _require_ours(path)
        if not path.exists():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        database = _connect(path)
        connection = connection_of(database)
        if connection.execute("PRAGMA application_id").fetchone()[0] == 0:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {durability.upper()}")
        migrate(connection, path)
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

    While a writer is alive its WAL is there and is read; without one the file is complete by itself.
    Raises StoreError when there is none, and what `open_writer` raises.
    """
    if not path.exists():
        raise StoreError("there is no state database yet", where=str(path))
    try:
        _require_ours(path)
        live = path.with_name(path.name + "-wal").exists()
        mode = "mode=ro" if live else "mode=ro&immutable=1"
        database = pw.SqliteDatabase(f"{path.absolute().as_uri()}?{mode}", uri=True)
        database.connect()
    except (sqlite3.Error, pw.PeeweeException, OSError) as error:
        raise cannot_use(path, error) from error
    return database


def cannot_use(path: Path, error: Exception) -> StoreError:
    """The one-line translation of an error of SQLite or the file system."""
    remedy = "check the disk's free space and the permissions of the file and its directory"
    if isinstance(error, sqlite3.DatabaseError) and "malformed" in str(error):
        remedy = "the file is damaged; restore a backup"
    return StoreError(f"cannot use the state database: {error}", where=str(path), remedy=remedy)


def connection_of(database: pw.SqliteDatabase) -> Tx:
    """The sqlite3 connection that peewee holds for this thread."""
    connection: Tx = database.connection()  # type: ignore[no-untyped-call]
    return connection


def _connect(path: Path) -> pw.SqliteDatabase:
    database = pw.SqliteDatabase(
        str(path), check_same_thread=False, cached_statements=256, timeout=_BUSY_MS / 1000
    )
    database.connect()
    return database


def _require_ours(path: Path) -> None:
    """Refuse a file that another program wrote. Reads the header only and takes no lock."""
    if not path.exists():
        return
    if path.stat().st_size == 0:
        return
    try:
        probe = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            (found,) = probe.execute("PRAGMA application_id").fetchone()
            probe.execute("PRAGMA schema_version").fetchone()
        finally:
            probe.close()
    except sqlite3.DatabaseError as error:
        raise ForeignDatabase(
            f"this is not a state database of Hermes: {error}",
            where=str(path),
            remedy="move the file away, or choose another home with HERMES_HOME",
        ) from error
    if found != APPLICATION_ID:
        raise ForeignDatabase(
            "this database belongs to another program",
            where=str(path),
            remedy="move the file away, or choose another home with HERMES_HOME",
        )
