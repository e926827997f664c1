"""JSON objects over a stream, the same at both ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

from hermes_core.supervision.control.frames import decode, encode, oversize

LINGER = 2.0
"""Seconds that what was sent last may take to leave when a connection is closed."""


class FrameStream:
    """Sends and receives frames. Sending waits while the other side does not read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, frame: Mapping[str, object]) -> None:
        """Raises ConnectionError when the other side is gone, ControlError for what is no frame."""
        line = encode(frame)
        if self._writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._writer.write(line)
        await self._writer.drain()

    async def receive(self) -> dict[str, object] | None:
        """The next frame, None when the other side is gone. Raises ControlError for other input."""
        try:
            line = await self._reader.readuntil(b"\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        except asyncio.LimitOverrunError as error:
            raise oversize() from error
        return decode(line)

    async def close(self) -> None:
        """Let what was sent leave, for a moment, and end the connection."""
        self._writer.close()
        try:
            async with asyncio.timeout(LINGER):
                with contextlib.suppress(ConnectionError):
                    await self._writer.wait_closed()
        except TimeoutError:
            self.abort()
        except BaseException:
            self.abort()
            raise

    def abort(self) -> None:
        """End the connection at once; what has not left is lost."""
        self._writer.transport.abort()
