"""The pipes between this process and a child, as asyncio streams that end when we say so."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from typing import IO

_CHUNK = 65_536
_PIPE = 1 << 20
"""Bytes that a pipe can hold at most (pipe(7), pipe-max-size)."""


class Output:
    """The reading end of a child's stdout or stderr."""

    def __init__(self, reader: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        self.reader = reader
        self._transport = transport

    def finish(self) -> None:
        """Take what is in the pipe now and end the stream there, whoever else holds the pipe."""
        if self._transport.is_closing():
            return
        self._transport.pause_reading()
        descriptor = self._transport.get_extra_info("pipe").fileno()
        taken = 0
        with suppress(BlockingIOError):
            while taken < _PIPE and (chunk := os.read(descriptor, _CHUNK)):
                self.reader.feed_data(chunk)
                taken += len(chunk)
        self.reader.feed_eof()
        self._transport.close()


async def open_output(pipe: IO[bytes]) -> Output:
    """Read `pipe`, which the stream owns from now on."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    return Output(reader, transport)


async def open_input(pipe: IO[bytes]) -> asyncio.StreamWriter:
    """Write to `pipe`, which the stream owns from now on."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(_flow_control, pipe)
    return asyncio.StreamWriter(transport, protocol, None, loop)


def abort(writer: asyncio.StreamWriter) -> None:
    """Close at once; what is not written yet is lost."""
    transport = writer.transport
    if not transport.is_closing() or transport.get_write_buffer_size():
        transport.abort()


def _flow_control() -> asyncio.StreamReaderProtocol:
    """What a writer needs of a protocol; nothing is ever read by it."""
    return asyncio.StreamReaderProtocol(asyncio.StreamReader())
