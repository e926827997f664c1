"""The client's end of a conversation over the control socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from hermes_core.supervision.control.channel import FrameStream
from hermes_core.supervision.control.dial import RETRY, dial, endpoint, hung_up, no_answer
from hermes_core.supervision.control.frames import MAX_FRAME, raise_failure


class ClientChannel:
    """JSON objects to and from one handler of the gateway. A context manager: leaving closes it."""

    def __init__(self, stream: FrameStream) -> None:
        self._stream = stream

    async def send(self, frame: Mapping[str, object]) -> None:
        """Raises ConnectionError when the gateway is gone, ControlError for a frame beyond JSON."""
        await self._stream.send(frame)

    async def receive(self) -> dict[str, object] | None:
        """The next object, or None when the gateway closed the connection. It may wait for ever.

        Raises ControlError for an object that tells of an error, and for what is no JSON object.
        """
        frame = await self._stream.receive()
        if frame is not None:
            raise_failure(frame)
        return frame

    async def close(self) -> None:
        """End the conversation. A second time does nothing."""
        await self._stream.close()

    async def __aenter__(self) -> ClientChannel:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


async def open_channel(
    home: Path, verb: str, parameters: Mapping[str, object], *, timeout: float = 5.0
) -> ClientChannel:
    """Begin a conversation with the gateway that holds `home` (a state directory).

    `timeout` is in seconds, for the connection and the first frame. Raises ControlError when nobody
    listens, when the gateway has no room in time, or when it belongs to another user.
    """
    path = await asyncio.to_thread(endpoint, home)
    try:
        async with asyncio.timeout(timeout):
            stream = await _connect(path, home)
            try:
                await stream.send({**parameters, "verb": verb})
            except BaseException:
                stream.abort()
                raise
    except TimeoutError as error:
        raise no_answer(path, timeout) from error
    except ConnectionError as error:
        raise hung_up(path) from error
    return ClientChannel(stream)


async def _connect(path: Path, home: Path) -> FrameStream:
    connection = await _dial(path, home)
    try:
        return FrameStream(*await asyncio.open_unix_connection(sock=connection, limit=MAX_FRAME))
    except BaseException:
        connection.close()
        raise


async def _dial(path: Path, home: Path) -> socket.socket:
    while (connection := dial(path, home)) is None:  # noqa: ASYNC110 - nothing tells of room
        await asyncio.sleep(RETRY)
    return connection
