"""Is the file still the one that was opened? Looked at before every commit, which costs two calls
of the system.

A database whose file was removed or replaced takes writes without an error, and they are gone. A
damaged one takes them too, and gets worse. In both cases nothing is written any more, and whoever
wants to write is told why.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

from hermes_core.errors import StoreError
from hermes_core.store.database import Tx, primary_code

DAMAGED = "the state database is damaged"
REPLACED = "the state database was removed or replaced while it was open"
LOG_REPLACED = "the state database's write-ahead log was replaced while it was open"
_REMEDIES = {
    DAMAGED: "stop the gateway, keep a copy of the file, and restore a backup",
    REPLACED: "stop the gateway, decide which file is to be used, and start again",
    LOG_REPLACED: "stop the gateway and every other program that has the file open",
}

_Inode = tuple[int, int]


class Guard:
    """Remembers which files a connection has open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._file = _inode(path)
        self._log_file = _inode(self._log)

    @property
    def log_is_gone(self) -> bool:
        """Whether somebody removed the write-ahead log. Its content is still open."""
        return self._log_file is not None and _inode(self._log) is None

    def trouble(self) -> str:
        """Why nothing may be written any more, "" when the files are the ones that were opened."""
        if _inode(self._path) != self._file:
            return REPLACED
        found = _inode(self._log)
        if self._log_file is None:
            self._log_file = found  # it is made by the first transaction
        return "" if found in {None, self._log_file} else LOG_REPLACED


def is_damage(error: Exception) -> bool:
    """Whether SQLite says that the file is not what it has to be. A damaged index of a virtual
    table, which can be built anew, is not meant."""
    if is_index_damage(error):
        return False
    return primary_code(error) in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


def is_index_damage(error: Exception) -> bool:
    """Whether SQLite says that the index of a virtual table is damaged."""
    cause = error if isinstance(error, sqlite3.Error) else error.__cause__ or error.__context__
    return getattr(cause, "sqlite_errorcode", 0) == sqlite3.SQLITE_CORRUPT_VTAB


def refusal(trouble: str, path: Path) -> StoreError:
    """The error of a write that is not made."""
    return StoreError(trouble, where=str(path), remedy=_REMEDIES.get(trouble, ""))


def rescue(connection: Tx, path: Path) -> Path:
    """Copy what the connection still sees of a file that is gone from its place. Raises
    sqlite3.Error and OSError."""
    copy = path.with_name(f"{path.name}.rescued-{time.strftime('%Y%m%dT%H%M%S')}")
    os.close(os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    with closing(sqlite3.connect(copy)) as target:
        connection.backup(target)
    return copy


def _inode(path: Path) -> _Inode | None:
    try:
        status = path.stat(follow_symlinks=False) if path.name.endswith("-wal") else path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
