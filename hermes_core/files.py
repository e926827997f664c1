"""Reading and writing small files of the user, whatever stands in their place.

Nothing here waits for a writer, follows a file without end, or leaves half a file behind.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class UnusableFile(Exception):
    """A file that cannot be used. The text says why, without the path and without content."""

    def __init__(self, reason: str, *, remedy: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


def shown(text: str | os.PathLike[str]) -> str:
    """`text` for a message: characters that a terminal would act on are escaped."""
    value = os.fspath(text)
    return value if value.isprintable() else value.encode("unicode_escape").decode("ascii")


def read_bounded(path: Path, *, limit: int, private: bool = False) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    With `private`, a file that other users can read or write, or that belongs to another user, is
    refused. Raises FileNotFoundError when there is nothing at `path`, `UnusableFile` for everything
    else.
    """
    # O_NONBLOCK: opening a pipe without a writer would otherwise hang.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise UnusableFile(_reason(error)) from error
    try:
        _require_regular(os.fstat(descriptor), limit=limit, private=private)
        return _read(descriptor, limit)
    except OSError as error:
        raise UnusableFile(_reason(error)) from error
    finally:
        os.close(descriptor)


def _require_regular(status: os.stat_result, *, limit: int, private: bool) -> None:
    for is_kind, name in _KINDS:
        if is_kind(status.st_mode):
            raise UnusableFile(f"expected a file, found {name}")
    if status.st_size > limit:
        raise UnusableFile(f"the file has {status.st_size} bytes, more than the {limit} allowed")
    if private:
        _require_private(status)


def _require_private(status: os.stat_result) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise UnusableFile(
            f"other users have access to the file (mode {mode:04o})", remedy="chmod 600 it"
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise UnusableFile(f"the file belongs to another user (uid {status.st_uid})")


def _read(descriptor: int, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while chunk := os.read(descriptor, 1 << 16):
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise UnusableFile(f"the file has more than the {limit} bytes allowed")
    return b"".join(chunks)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return "its symbolic links form a loop"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return str(error)


def write_atomic(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace the content of `path` whole or not at all.

    A symbolic link stays a link: its target is replaced. An existing file keeps its mode and owner,
    a new one gets `mode`. Raises OSError with the old content untouched; a dangling link is an
    error.
    """
    import tempfile

    if path.is_symlink() and not path.exists():
        raise FileNotFoundError(errno.ENOENT, "the symbolic link points to nothing", str(path))
    target = path.resolve()
    old = target.stat() if target.exists() else None
    descriptor, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if old is not None and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(file.fileno(), old.st_uid, old.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(old.st_mode) if old is not None else mode)
            os.fsync(file.fileno())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
