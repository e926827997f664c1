"""Receiving updates by webhook: a small HTTP server behind whatever ends TLS.

The protocol is spoken by h11, which the client's HTTP library brings along: a web framework would
be many times the code that it saves here. A request is answered with 200 once the core has taken
its update in, and with 503 otherwise; Telegram then repeats it.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable

import h11

from hermes_core import HermesError, NotReady
from hermes_telegram import wire
from hermes_telegram.settings import Timing

log = logging.getLogger(__name__)

SECRET_HEADER = b"x-telegram-bot-api-secret-token"
MAX_BODY = 1_048_576
"""Bytes of one update at most; real ones stay far below."""
MAX_CONNECTIONS = 100
"""Telegram opens as many at most (Bot API, setWebhook)."""
READ_LIMIT = 20.0
"""Seconds that one request may take to arrive."""
IDLE_LIMIT = 75.0
"""Seconds that a connection may wait for its next request."""
_CHUNK = 65_536

Take = Callable[[wire.Update], Awaitable[None]]


class Refuse(Exception):
    """Answer with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class WebhookServer:
    """Takes requests for `path` that carry `secret`, and nothing else."""

    def __init__(self, take: Take, *, path: str, secret: str, timing: Timing) -> None:
        """`take` returns when an update may be acknowledged, and raises NotReady when not."""
        self._take = take
        self._path = path.encode()
        self._secret = secret.encode()
        self._timing = timing
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen. Returns the port, which the system chooses for 0. Raises HermesError."""
        try:
            self._server = await asyncio.start_server(self._accept, host, port)
        except OSError as error:
            raise HermesError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                remedy="choose another webhook_listen",
            ) from error
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the door and drop what is not answered: Telegram will repeat it."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._server is not None:
            await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(
            self._serve(reader, writer), name="telegram webhook request"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=16_384)
        try:
            while await self._one(connection, reader, writer):
                connection.start_next_cycle()
        except (h11.RemoteProtocolError, ConnectionError, TimeoutError):
            log.debug("a webhook connection ended early")
        finally:
            writer.close()

    async def _one(
        self,
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Answer one request. Returns whether the connection can be used for another one."""
        async with asyncio.timeout(IDLE_LIMIT):
            request = await _event(connection, reader)
        if not isinstance(request, h11.Request):
            return False
        try:
            self._check(request)
            async with asyncio.timeout(READ_LIMIT):
                body = await _body(connection, reader)
            status = await self._status(body)
        except Refuse as refusal:
            status = refusal.status
        headers = [("Content-Length", "0")]
        if connection.their_state is not h11.DONE:
            headers.append(("Connection", "close"))
        writer.write(connection.send(h11.Response(status_code=status, headers=headers)) or b"")
        writer.write(connection.send(h11.EndOfMessage()) or b"")
        await writer.drain()
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE

    def _check(self, request: h11.Request) -> None:
        """Judge a request by its head, before any of its body is read."""
        if request.target.partition(b"?")[0] != self._path:
            raise Refuse(404)
        if request.method != b"POST":
            raise Refuse(405)
        given = [value for name, value in request.headers if name == SECRET_HEADER]
        if len(given) != 1 or not hmac.compare_digest(given[0], self._secret):
            raise Refuse(401)

    async def _status(self, body: bytes) -> int:
        try:
            update = wire.decode_update(body)
        except ValueError:
            return 400
        try:
            async with asyncio.timeout(self._timing.answer):
                await self._take(update)
        except (NotReady, TimeoutError):
            return 503
        return 200


async def _event(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(_CHUNK))
    return event


async def _body(connection: h11.Connection, reader: asyncio.StreamReader) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while isinstance(event := await _event(connection, reader), h11.Data):
        size += len(event.data)
        if size > MAX_BODY:
            raise Refuse(413)
        chunks.append(bytes(event.data))
    if not isinstance(event, h11.EndOfMessage):
        raise Refuse(400)
    return b"".join(chunks)
