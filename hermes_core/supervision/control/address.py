"""Where the control socket of a home is, and whom it is shared with: nobody."""

from __future__ import annotations

import hashlib
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from hermes_core.errors import ControlError, HermesError
from hermes_core.supervision.trouble import cannot

MAX_PATH = 90
"""Bytes of a socket's path, below the smallest limit of a system (103, macOS)."""
_DIRECTORY = "hermes-gateway"


def socket_path(home: Path) -> Path:
    """The path of the control socket for a home's state directory. Creates nothing.

    It is in the user's runtime directory (XDG_RUNTIME_DIR, /run/user/UID), else in the user's own
    directory under TMPDIR or /tmp, and short however long the home's path is.
    """
    digest = hashlib.sha256(os.fsencode(home.resolve())).hexdigest()[:16]
    for directory in _directories():
        path = directory / f"{digest}.sock"
        if len(os.fsencode(path)) <= MAX_PATH:
            return path
    raise ControlError("no directory is short enough for a socket", remedy="set XDG_RUNTIME_DIR")


def _directories() -> Iterator[Path]:
    uid = os.getuid()
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), f"/run/user/{uid}"):
        # The XDG base directory specification: relative paths are invalid.
        if base.startswith("/") and _is_private(Path(base)):
            yield Path(base, _DIRECTORY)
    for base in (os.environ.get("TMPDIR", ""), "/tmp"):  # noqa: S108 - verified by uid and mode
        if base.startswith("/"):
            yield Path(base, f"{_DIRECTORY}-{uid}")


def _is_private(directory: Path) -> bool:
    try:
        status = directory.stat(follow_symlinks=False)
    except OSError:
        return False
    private = status.st_uid == os.getuid() and not status.st_mode & 0o077
    return stat.S_ISDIR(status.st_mode) and private


def prepare_directory(directory: Path) -> None:
    """Make the socket's directory, for this user only. Raises HermesError when it is shared."""
    try:
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise cannot("make the directory of the control socket", directory, error) from error
    if not _is_private(directory):
        raise HermesError(
            "other users have access to the directory of the control socket",
            where=str(directory),
            remedy="remove it, or set XDG_RUNTIME_DIR to a directory of mode 0700",
        )


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end, as the kernel states it. Raises ControlError where it cannot."""
    peercred = getattr(socket, "SO_PEERCRED", None)
    if peercred is not None:
        credentials = struct.Struct("3i")  # struct ucred of Linux: pid, uid, gid
        data = connection.getsockopt(socket.SOL_SOCKET, peercred, credentials.size)
        return int(credentials.unpack(data)[1])
    local_peercred = getattr(socket, "LOCAL_PEERCRED", None)
    if local_peercred is None:
        raise ControlError("this system does not tell who is at the other end of a socket")
    credentials = struct.Struct("=II")  # struct xucred of macOS and FreeBSD: version, uid, ...
    data = connection.getsockopt(0, local_peercred, 128)
    return int(credentials.unpack_from(data)[1])


def require_same_user(connection: socket.socket) -> None:
    """Raise ControlError when the other end belongs to another user."""
    uid = peer_uid(connection)
    if uid != os.getuid():
        raise ControlError(f"the control socket belongs to another user (uid {uid})")
