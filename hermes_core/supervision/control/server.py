"""The gateway's end of the control socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from hermes_core.errors import ControlError, HermesError
from hermes_core.supervision.control.address import peer_uid, prepare_directory
from hermes_core.supervision.control.channel import FrameStream
from hermes_core.supervision.control.frames import MAX_FRAME, failure
from hermes_core.supervision.forks import close_in_children, closed
from hermes_core.supervision.trouble import cannot

MAX_CLIENTS = 64
FIRST_FRAME_LIMIT = 5.0
STOP_GRACE = 2.0
_BACKLOG = 128

log = logging.getLogger(__name__)


class ServerChannel:
    """One client, as its handler sees it: a `hermes_core.platforms.Channel`."""

    def __init__(
        self, stream: FrameStream, *, peer_uid: int, parameters: Mapping[str, object]
    ) -> None:
        self._stream = stream
        self._peer_uid = peer_uid
        self._parameters = parameters

    @property
    def peer_uid(self) -> int:
        return self._peer_uid

    @property
    def parameters(self) -> Mapping[str, object]:
        return self._parameters

    async def send(self, frame: Mapping[str, object]) -> None:
        """Waits while the client does not read. Raises ConnectionError when the client is gone."""
        await self._stream.send(frame)

    async def receive(self) -> dict[str, object] | None:
        """The next object, or None when the client is gone. Raises ControlError for other input."""
        return await self._stream.receive()


Handler: TypeAlias = Callable[[ServerChannel], Awaitable[Mapping[str, object] | None]]
"""Serves one client. Its result is sent as the last answer, what it raises is told as an error."""


class ControlServer:
    """Answers local clients of the same user, each by the handler of the verb it names.

    The caller holds the home's lock: a socket that lies at `path` is a dead one and is replaced.
    `first_frame_limit` is the time in seconds in which a client has to say what it wants;
    `stop_grace` is the time that cancelled handlers get to clean up, before they are abandoned.
    """

    def __init__(
        self,
        path: Path,
        handlers: Mapping[str, Handler],
        *,
        max_clients: int = MAX_CLIENTS,
        first_frame_limit: float = FIRST_FRAME_LIMIT,
        stop_grace: float = STOP_GRACE,
    ) -> None:
        self._path = path
        self._handlers = dict(handlers)
        self._max_clients = max_clients
        self._first_frame_limit = first_frame_limit
        self._stop_grace = stop_grace
        self._server: asyncio.Server | None = None
        self._listener: socket.socket | None = None
        self._inode: tuple[int, int] | None = None
        self._clients: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to listen. Raises HermesError when the socket cannot be made."""
        try:
            self._listener = _listen(self._path)
        except OSError as error:
            raise cannot("open the control socket", self._path, error) from error
        self._inode = _inode(self._path)
        self._server = await asyncio.start_unix_server(
            self._accept, sock=self._listener, limit=MAX_FRAME, backlog=_BACKLOG
        )

    async def stop(self) -> None:
        """Stop listening, cancel every handler and wait for them. Safe to call twice."""
        if self._server is None or self._listener is None:
            return
        server, self._server = self._server, None
        if _inode(self._path) == self._inode:
            self._path.unlink(missing_ok=True)
        server.close()
        closed(self._listener)
        await self._end_clients()

    async def __aenter__(self) -> ControlServer:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _end_clients(self) -> None:
        # A handler may be the one that stops the server: it is not to wait for itself.
        clients = self._clients - {asyncio.current_task()}
        for client in clients:
            client.cancel()
        if not clients:
            return
        _, abandoned = await asyncio.wait(clients, timeout=self._stop_grace)
        for client in abandoned:
            log.warning("abandoned at stop: %s", client.get_name())

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.create_task(self._serve(reader, writer), name="control client")
        self._clients.add(client)
        client.add_done_callback(self._clients.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = FrameStream(reader, writer)
        try:
            with contextlib.suppress(ConnectionError):
                await self._converse(stream, writer.get_extra_info("socket"))
            await stream.close()
        finally:
            stream.abort()

    async def _converse(self, stream: FrameStream, connection: socket.socket) -> None:
        try:
            channel, verb = await self._admit(stream, connection)
            _name_task(f"control client: {verb}")
            answer = await self._handlers[verb](channel)
            if answer is not None:
                await stream.send(answer)
        except HermesError as error:
            await stream.send(failure(error))
        except ConnectionError:
            raise
        except Exception as error:
            log.exception("a control handler failed")
            what = f"internal error: {type(error).__name__}"
            await stream.send(failure(ControlError(what, remedy="see the gateway's log")))

    async def _admit(
        self, stream: FrameStream, connection: socket.socket
    ) -> tuple[ServerChannel, str]:
        uid = peer_uid(connection)
        if uid != os.getuid():
            log.warning("control socket: refused a client of uid %d", uid)
            raise ControlError("the gateway belongs to another user")
        if len(self._clients) > self._max_clients:
            raise ControlError(
                f"more than {self._max_clients} clients at once", remedy="try again later"
            )
        first = await self._first_frame(stream)
        verb = first.pop("verb", None)
        if not isinstance(verb, str) or verb not in self._handlers:
            known = ", ".join(sorted(self._handlers))
            raise ControlError(f"unknown verb {verb!r:.80}", remedy=f"known verbs: {known}")
        return ServerChannel(stream, peer_uid=uid, parameters=first), verb

    async def _first_frame(self, stream: FrameStream) -> dict[str, object]:
        try:
            async with asyncio.timeout(self._first_frame_limit):
                first = await stream.receive()
        except TimeoutError as error:
            raise ControlError(f"no request within {self._first_frame_limit:g} s") from error
        if first is None:
            raise ConnectionResetError("the client left without a request")
        return first


def _listen(path: Path) -> socket.socket:
    """A listening socket at `path`, which appears there complete: owned, 0600 and answering."""
    prepare_directory(path.parent)
    unfinished = path.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    close_in_children(listener)
    try:
        listener.bind(str(unfinished))
        unfinished.chmod(0o600)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        unfinished.rename(path)
    except BaseException:
        listener.close()
        closed(listener)
        unfinished.unlink(missing_ok=True)
        raise
    return listener


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat(follow_symlinks=False)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _name_task(name: str) -> None:
    task = asyncio.current_task()
    if task is not None:
        task.set_name(name)
