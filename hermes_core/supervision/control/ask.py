"""One question, one answer, on a plain blocking socket: what short commands need."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

from hermes_core.supervision.control.dial import RETRY, dial, endpoint, hung_up, no_answer
from hermes_core.supervision.control.frames import (
    MAX_FRAME,
    decode,
    encode,
    oversize,
    raise_failure,
)


def request(
    home: Path, verb: str, /, timeout: float = 5.0, **parameters: object
) -> dict[str, object]:
    """Ask the gateway that holds `home` (a state directory) and return its answer.

    `timeout` is in seconds and for the whole exchange. Raises ControlError when nobody listens,
    when no answer comes in time, and for an error that the gateway answers (with its exit code).
    """
    line = encode({**parameters, "verb": verb})
    path = endpoint(home)
    deadline = time.monotonic() + timeout
    try:
        with _connect(path, home, deadline) as connection:
            connection.settimeout(_left(deadline))
            with contextlib.suppress(BrokenPipeError):  # refused unread: the answer says why
                connection.sendall(line)
            answer = decode(_read_line(connection, path, deadline))
    except TimeoutError as error:
        raise no_answer(path, timeout) from error
    except ConnectionError as error:
        raise hung_up(path) from error
    raise_failure(answer)
    return answer


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _connect(path: Path, home: Path, deadline: float) -> socket.socket:
    while (connection := dial(path, home)) is None:
        time.sleep(min(RETRY, _left(deadline)))
    return connection


def _read_line(connection: socket.socket, path: Path, deadline: float) -> bytes:
    received = bytearray()
    while (end := received.find(b"\n")) < 0:
        if len(received) > MAX_FRAME:
            raise oversize()
        connection.settimeout(_left(deadline))
        chunk = connection.recv(1 << 16)
        if not chunk:
            raise hung_up(path)
        received += chunk
    return bytes(received[:end])
