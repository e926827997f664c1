"""Reaching the gateway that holds a home: what both kinds of client share."""

from __future__ import annotations

import socket
from pathlib import Path

from hermes_core.errors import ControlError
from hermes_core.supervision.control.address import require_same_user, socket_path
from hermes_core.supervision.lock import LOCK_NAME, holder

RETRY = 0.02
"""Seconds between two attempts while the gateway has no room for another connection."""


def endpoint(home: Path) -> Path:
    """The socket of the gateway that holds `home`, as that gateway says; else where it would be.

    The gateway may have been started with another XDG_RUNTIME_DIR or TMPDIR than this process.
    """
    held_by = holder(home / LOCK_NAME)
    if held_by is not None and held_by.socket is not None:
        return held_by.socket
    return socket_path(home)


def dial(path: Path, home: Path) -> socket.socket | None:
    """One attempt to connect, without waiting; None when the gateway has no room at this moment.

    The result is non-blocking. Raises ControlError when nobody listens, or somebody else does.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.connect(str(path))
        require_same_user(connection)
    except BlockingIOError:
        connection.close()
        return None
    except (FileNotFoundError, ConnectionRefusedError) as error:
        connection.close()
        raise ControlError(
            "no gateway is running for this home",
            where=str(home),
            remedy="start one with `hermes run`",
        ) from error
    except OSError as error:
        connection.close()
        raise ControlError(f"cannot connect: {error.strerror or error}", where=str(path)) from error
    except BaseException:
        connection.close()
        raise
    return connection


def no_answer(path: Path, seconds: float) -> ControlError:
    """The error for a gateway that listens and does not answer."""
    return ControlError(
        f"the gateway did not answer within {seconds:g} s",
        where=str(path),
        remedy="it may be busy or stopped; see its log",
    )


def hung_up(path: Path) -> ControlError:
    """The error for a connection that ended where an answer was due."""
    return ControlError("the gateway closed the connection", where=str(path))
