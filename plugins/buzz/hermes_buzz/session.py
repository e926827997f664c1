"""One connected life of an account: from the handshake until the connection is lost or closed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import aiohttp

from hermes_buzz import ownership
from hermes_buzz.bridge import Bridge, RelayInfo
from hermes_buzz.connection import MAX_FRAME, Connection
from hermes_buzz.incoming import Translator
from hermes_buzz.keys import LocalSigner
from hermes_buzz.outgoing import Composer, Publisher
from hermes_buzz.reading import Reader
from hermes_buzz.sending import Sender
from hermes_buzz.signs import Signs
from hermes_buzz.trouble import ConnectionDown, RelayError, first_of
from hermes_core import AccountFailed

if TYPE_CHECKING:
    from hermes_buzz.cursors import CursorStore
    from hermes_buzz.pacing import Pacing
    from hermes_buzz.settings import BuzzSettings
    from hermes_core import AdapterContext, Address

log = logging.getLogger(__name__)

AUTH_LIMIT = 15.0
"""Seconds for the relay to ask for authentication and to answer it, where it says that it does."""
ASKED_WITHIN = 1.0
"""Seconds for a relay to ask for authentication that does not say whether it does. One that asks
later, after a request, is answered then."""
HTTP_LIMIT = aiohttp.ClientTimeout(total=15)


class Session:
    """Everything that lives as long as one connection. `sender` sends once it is open."""

    def __init__(
        self,
        settings: BuzzSettings,
        context: AdapterContext,
        *,
        store: CursorStore,
        pacing: Pacing,
        wall: Callable[[], float],
    ) -> None:
        """Raises AccountFailed when the owner's tag can never work."""
        self._settings = settings
        self._context = context
        self._store = store
        self._pacing = pacing
        self._wall = wall
        self._where = settings.relay_url
        self._signer = LocalSigner(settings.private_key.reveal().strip())
        self.me = self._signer.public_key
        self._owner = _owner(settings, self.me)
        self._translator = Translator(settings, context, self.me)
        self._task: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self.bridge: Bridge
        self.sender: Sender
        self._connection: Connection
        self.reader: Reader
        self._signs: Signs
        self._group: asyncio.TaskGroup

    async def open(self, lost: Callable[[Exception], None]) -> None:
        """Connect and start to read. `lost` is told when that ends other than by `close`.

        Raises RelayError or AccountFailed.
        """
        self._task = asyncio.create_task(self._run(), name=f"buzz {self._where}")
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait({self._task, ready}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            await self._cancel()
            raise
        finally:
            ready.cancel()
        if self._task.done():
            await self._task
        self._task.add_done_callback(lambda task: _report(task, lost))

    async def close(self) -> None:
        """Stop reading, save the cursors, leave."""
        if self._settings.presence and self._task is not None and not self._task.done():
            try:
                await self._signs.present("offline")
            except RelayError as error:
                log.info("leaving without a word: %s", error)
        await self._cancel()

    def set_typing(self, address: Address, active: bool) -> None:
        """Show that an answer is being written, until told otherwise."""
        if self._settings.typing and self._task is not None and not self._task.done():
            self._signs.set_typing(self._group, address, active)

    async def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        """Ends by cancellation, RelayError when the connection is lost, AccountFailed for good."""
        async with aiohttp.ClientSession(timeout=HTTP_LIMIT) as http:
            self.bridge = Bridge(
                http,
                url=self._settings.http_url,
                signer=self._signer,
                owner=self._owner,
                wall=self._wall,
            )
            info = await self.bridge.info()
            self._connection = await self._connect(http)
            self._furnish(info)
            try:
                await self._serve(info)
            finally:
                await self._leave()

    async def _serve(self, info: RelayInfo) -> None:
        try:
            async with asyncio.TaskGroup() as self._group:
                self._group.create_task(self._connection.run())
                if info.auth_required:
                    await self._connection.authenticated(AUTH_LIMIT)
                else:
                    await self._connection.authenticated_if_asked(ASKED_WITHIN)
                await self.reader.serve(self._group)
                if self._settings.presence:
                    self._group.create_task(self._signs.keep_present())
                self._ready.set()
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None

    async def _leave(self) -> None:
        await self._connection.close()
        try:
            await self._store.save()
        except OSError as error:
            log.error("the cursors cannot be saved: %s", error)

    async def _connect(self, http: aiohttp.ClientSession) -> Connection:
        url = self._settings.relay_url
        closing = aiohttp.ClientWSTimeout(ws_close=1)
        try:
            socket = await http.ws_connect(
                url, autoping=False, max_msg_size=MAX_FRAME, timeout=closing
            )
        except TimeoutError:
            raise ConnectionDown("the relay does not answer in time", where=url) from None
        except (aiohttp.ClientError, OSError) as error:
            raise ConnectionDown(f"cannot connect: {_cause(error)}", where=url) from None
        return Connection(
            socket,
            url=url,
            signer=self._signer,
            owner=self._owner,
            pacing=self._pacing,
            wall=self._wall,
            read_idle=float(self._settings.read_idle),
            skew=self.bridge.skew,
        )

    def _furnish(self, info: RelayInfo) -> None:
        """What reads, sends and shows signs of life by this connection."""
        connection, skew = self._connection, self.bridge.skew
        self._signs = Signs(connection, self._signer, self._wall)
        self.reader = Reader(
            self._context,
            me=self.me,
            connection=connection,
            bridge=self.bridge,
            store=self._store,
            translator=self._translator,
            only=frozenset(self._settings.channels),
            relay_key=info.self,
            reconcile_every=float(self._settings.reconcile_every),
            wall=self._wall,
        )
        self.sender = Sender(
            self._settings,
            composer=Composer(self._settings, self._owner, self._store, self.me),
            publisher=Publisher(connection, self._signer, self._pacing, self._where, skew),
            bridge=self.bridge,
            reader=self.reader,
            translator=self._translator,
            store=self._store,
            wall=self._wall,
        )


def _owner(settings: BuzzSettings, me: str) -> ownership.OwnerTag | None:
    if not settings.auth_tag:
        return None
    owner = ownership.parse(settings.auth_tag)
    if not owner.holds_for(me):
        raise AccountFailed(
            "auth_tag is not signed for this account's key",
            where=settings.relay_url,
            remedy="let the owner make one for the public key of private_key",
        )
    return owner


def _report(task: asyncio.Task[None], lost: Callable[[Exception], None]) -> None:
    if not task.cancelled() and isinstance(error := task.exception(), Exception):
        lost(error)


def _cause(error: Exception) -> str:
    """Why a connection could not be made, without the client's own words around it."""
    cause = getattr(error, "os_error", None)
    if isinstance(cause, ConnectionError) and cause.errno:
        return os.strerror(cause.errno).lower()
    return str(cause or error)
