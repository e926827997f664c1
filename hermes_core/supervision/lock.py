"""One gateway per home: the lock that the operating system keeps and a crash cannot leave behind.

What is written in the lock file only says who holds the lock; whether it is held, the kernel says.
The directory is locked beside the file, where the file system can do that, so that removing the
file frees nothing.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from hermes_core.errors import HermesError, HomeLocked
from hermes_core.supervision.control.address import socket_path
from hermes_core.supervision.forks import Descriptor
from hermes_core.supervision.identity import Identity
from hermes_core.supervision.trouble import cannot

LOCK_NAME = "gateway.lock"
PATIENCE = 1.0
"""Seconds to wait for a holder that has not said yet who it is: a gateway that is just starting,
or a command that is just looking."""
_MAX_RECORD = 4096
_RECORD = 1024
"""Bytes to which a record is filled up, so that one that replaces another covers it."""
_RETRY = 0.01
_UNSUPPORTED = frozenset({errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})
"""What file systems say that cannot lock a directory (NFS: EBADF)."""


@dataclass(frozen=True)
class Holder:
    """What holds a home. `identity` is None when the process cannot be verified. `phase` is what
    the holder says that it is at, "" when it says nothing."""

    identity: Identity | None
    runs: str
    socket: Path | None
    phase: str = ""

    @property
    def pid(self) -> int | None:
        return None if self.identity is None else self.identity.pid


class HomeLock:
    """The lock of one home; `path` is its `gateway.lock`, `runs` says what takes it.

    A context manager: entering acquires, leaving releases. A forked child does not inherit it.
    """

    def __init__(self, path: Path, *, runs: str = "hermes") -> None:
        self.path = path
        self._runs = runs
        self._directory: Descriptor | None = None
        self._file: Descriptor | None = None

    @property
    def held(self) -> bool:
        return self._file is not None and not self._file.closed

    def acquire(self) -> None:
        """Take the lock, or fail at once while another process verifiably has it.

        Waits up to `PATIENCE` seconds for a holder that cannot be named. Raises HomeLocked, and
        HermesError when the file cannot be used (read-only, full disk, a directory in its place).
        """
        if self.held:
            raise HermesError("this home is already locked by this very lock", where=str(self.path))
        try:
            self._directory = Descriptor(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            self._wait_for(self._directory)
            self._file = _open_file(self.path)
            if not self._wait_for(self._file):
                raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
            self._write_record()
        except OSError as error:
            self._close()
            raise cannot("lock the home", self.path, error) from error
        except BaseException:
            self._close()
            raise

    def enter(self, phase: str) -> None:
        """Say what the holder is at: `Holder.phase` of whoever asks."""
        self._write_record(phase)

    def release(self) -> None:
        """Give the lock back. Does nothing when it is not held."""
        if self._file is None or not self.held:
            return
        try:
            os.ftruncate(self._file.fileno(), 0)
        finally:
            self._unlock()
            self._close()

    def __enter__(self) -> HomeLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _wait_for(self, file: Descriptor) -> bool:
        """Lock `file`. False where the file system has no such locks."""
        deadline = time.monotonic() + PATIENCE
        while (locked := _try_lock(file, fcntl.LOCK_EX)) is False:
            holder = _read_holder(self.path)
            if holder.identity is not None or time.monotonic() > deadline:
                raise _locked(self.path, holder)
            time.sleep(_RETRY)
        return locked is True

    def _write_record(self, phase: str = "") -> None:
        assert self._file is not None
        record = {
            **Identity.current().to_json(),
            "runs": self._runs,
            "socket": str(socket_path(self.path.parent)),
            "phase": phase,
        }
        line = json.dumps(record).encode("ascii").ljust(_RECORD) + b"\n"
        os.pwrite(self._file.fileno(), line, 0)
        os.ftruncate(self._file.fileno(), len(line))

    def _unlock(self) -> None:
        # Explicitly: a child of a library's own fork may still have the descriptors.
        for file in (self._file, self._directory):
            if file is not None and not file.closed:
                _try_lock(file, fcntl.LOCK_UN)

    def _close(self) -> None:
        for file in (self._file, self._directory):
            if file is not None:
                file.close()
        self._file = self._directory = None


def holder(path: Path) -> Holder | None:
    """Who holds the home whose lock file is `path`; None when nobody does. Creates nothing.

    Raises HermesError when that cannot be found out (permissions).
    """
    try:
        held = _is_locked(path.parent) or _is_locked(path)
    except OSError as error:
        raise cannot("see who holds the home", path, error) from error
    return _read_holder(path) if held else None


def _is_locked(path: Path) -> bool:
    try:
        probe = Descriptor(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return False
    with probe:
        # A shared lock, for an instant: it disturbs nobody who holds the exclusive one.
        return _try_lock(probe, fcntl.LOCK_SH) is False


def _try_lock(file: Descriptor, kind: int) -> bool | None:
    """True: locked. False: another process has it. None: the file system cannot."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return None
        raise
    return True


def _open_file(path: Path) -> Descriptor:
    file = Descriptor(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
    try:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise HermesError("not a regular file", where=str(path), remedy="move it away")
        if mode & 0o077:
            os.fchmod(file.fileno(), 0o600)
    except BaseException:
        file.close()
        raise
    return file


def _read_holder(path: Path) -> Holder:
    record = _read_record(path)
    identity = Identity.from_json(record)
    if identity is None or not identity.alive():
        return Holder(None, "", None)
    runs, socket, phase = record.get("runs"), record.get("socket"), record.get("phase")
    return Holder(
        identity,
        runs if isinstance(runs, str) else "",
        Path(socket) if isinstance(socket, str) and socket.startswith("/") else None,
        phase if isinstance(phase, str) else "",
    )


def _read_record(path: Path) -> dict[str, object]:
    try:
        with Descriptor(path, os.O_RDONLY) as file:
            record = json.loads(os.read(file.fileno(), _MAX_RECORD))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def _locked(path: Path, holder: Holder) -> HomeLocked:
    if holder.pid is None:
        what = "another process holds this home, and does not say which"
    else:
        what = f"process {holder.pid} ({holder.runs}) holds this home"
    remedy = "stop it first, or name another directory in HERMES_HOME"
    return HomeLocked(what, pid=holder.pid, where=str(path), remedy=remedy)
