"""The adapter: what the core calls, for one account. The client itself is loaded on connect."""

from __future__ import annotations

import asyncio
import importlib
import random
import time
from typing import TYPE_CHECKING, BinaryIO

from hermes_buzz import nip19
from hermes_buzz.settings import BuzzSettings
from hermes_core import (
    AccountFailed,
    Adapter,
    AdapterContext,
    Address,
    Attachment,
    Outbound,
    Receipt,
    SendFailed,
    hookimpl,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from hermes_buzz.cursors import FileCursors
    from hermes_buzz.pacing import Pacing
    from hermes_buzz.session import Session

STABLE_AFTER = 60.0
"""Seconds after which a connection has proved itself: losing it is followed by an immediate try."""
MAX_PAUSE = 8.0
"""Seconds before a try at most. `connect` has half a minute for everything."""


class BuzzAdapter(Adapter[BuzzSettings]):
    """One key pair on one relay."""

    first_pause = 1.0
    """Seconds before a new try after a connection that was lost soon; doubles each time."""
    wall: Callable[[], float] = staticmethod(time.time)

    def __init__(self, settings: BuzzSettings, context: AdapterContext) -> None:
        super().__init__(settings, context)
        self._session: Session | None = None
        self._store: FileCursors | None = None
        self._pacing: Pacing | None = None
        self._fatal: AccountFailed | None = None
        self._short_lives = 0
        self._connected_at = 0.0

    @hookimpl
    async def connect(self, is_reconnect: bool) -> str:
        """Log in and read every channel from where it was left."""
        if self._fatal is not None:
            raise self._fatal
        if is_reconnect:
            await self._back_off()
        session = await self._new_session()
        await session.open(self._lost)
        self._session = session
        self._connected_at = asyncio.get_running_loop().time()
        return session.me

    @hookimpl
    async def disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @hookimpl
    async def send(self, message: Outbound) -> Receipt:
        return await self._live().sender.send(message)

    @hookimpl
    async def edit(self, message_id: str, message: Outbound) -> Receipt:
        return await self._live().sender.edit(message_id, message)

    @hookimpl
    async def reconcile(self, message: Outbound) -> Receipt | None:
        return await self._live().sender.reconcile(message)

    @hookimpl
    async def quote(self, address: Address, message_id: str) -> str:
        """What a message replies to, as it was edited last."""
        return await self._live().reader.quote(address.chat_id, message_id)

    @hookimpl
    async def set_typing(self, address: Address, active: bool) -> None:
        self._live().set_typing(address, active)

    @hookimpl
    @staticmethod
    def normalize_user_id(user_id: str) -> str:
        """An npub and its hexadecimal form are one person."""
        return nip19.public_key(user_id)

    async def react(self, address: Address, message_id: str, emoji: str) -> Receipt:
        """Put an emoji on a message."""
        return await self._live().sender.react(address, message_id, emoji)

    @hookimpl
    async def fetch_attachment(self, attachment: Attachment, target: BinaryIO, limit: int) -> None:
        await self._live().bridge.download(attachment.ref, target, limit)

    async def _new_session(self) -> Session:
        await asyncio.to_thread(importlib.import_module, "hermes_buzz.session")  # 0.2 s, once
        from hermes_buzz.cursors import FileCursors
        from hermes_buzz.pacing import Pacing
        from hermes_buzz.session import Session

        if self._store is None or self._pacing is None:
            directory = self.context.scope.state_dir / "buzz"
            path = directory / f"{self.context.account}.json"
            self._store = await asyncio.to_thread(FileCursors, path)
            self._pacing = Pacing()
        return Session(
            self.settings,
            self.context,
            store=self._store,
            pacing=self._pacing,
            wall=self.wall,
        )

    async def _back_off(self) -> None:
        lived = asyncio.get_running_loop().time() - self._connected_at
        self._short_lives = 0 if lived >= STABLE_AFTER else self._short_lives + 1
        if self._short_lives:
            pause = min(MAX_PAUSE, self.first_pause * 2.0 ** (self._short_lives - 1))
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311

    def _lost(self, error: Exception) -> None:
        if isinstance(error, AccountFailed):
            self._fatal = error
        self.context.lost(error)

    def _live(self) -> Session:
        if self._session is None:
            raise SendFailed("not connected", where=self.settings.relay_url)
        return self._session
