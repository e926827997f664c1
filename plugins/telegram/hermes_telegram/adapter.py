"""The adapter: the hooks of the contract, each passed on to the live connection."""

from __future__ import annotations

import asyncio
import importlib
import re
from typing import TYPE_CHECKING, BinaryIO, ClassVar

from hermes_core import (
    Adapter,
    AdapterContext,
    Address,
    Attachment,
    Outbound,
    Receipt,
    SendFailed,
    SendRejected,
    hookimpl,
)
from hermes_telegram.settings import TelegramSettings, Timing

if TYPE_CHECKING:
    from hermes_telegram.connection import Connection

_ID = re.compile(r"-?[1-9][0-9]{0,18}", re.ASCII)


class TelegramAdapter(Adapter[TelegramSettings]):
    """Speaks the Bot API for one bot."""

    timing: ClassVar[Timing] = Timing()

    def __init__(self, settings: TelegramSettings, context: AdapterContext) -> None:
        super().__init__(settings, context)
        self._connection: Connection | None = None

    @hookimpl
    async def connect(self, is_reconnect: bool) -> str:
        """Log in; the bot's id is returned once the first question for updates was answered."""
        # The client library takes most of a second to import: not on the event loop.
        await asyncio.to_thread(importlib.import_module, "hermes_telegram.connection")
        from hermes_telegram.connection import Connection

        connection = await asyncio.to_thread(Connection, self.settings, self.context, self.timing)
        try:
            own_id = await connection.open(is_reconnect)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection
        return own_id

    @hookimpl
    async def disconnect(self) -> None:
        """Hang up. What was not taken in stays with Telegram."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    @hookimpl
    async def send(self, message: Outbound) -> Receipt:
        """Send one message. A topic that is gone is left for the chat itself."""
        return await self._live.sender.send(message)

    @hookimpl
    async def edit(self, message_id: str, message: Outbound) -> Receipt:
        """Replace the text of an own message."""
        return await self._live.sender.edit(message_id, message)

    @hookimpl
    async def draft(self, message: Outbound) -> None:
        """Show the beginning of an answer in a private chat for half a minute."""
        if not self.settings.drafts:
            raise SendRejected("drafts are switched off")
        await self._live.sender.draft(message)

    @hookimpl
    async def set_typing(self, address: Address, active: bool) -> None:
        """Show "typing" for about five seconds. Telegram has no way to take it back."""
        if active:
            await self._live.sender.typing(address)

    @staticmethod
    @hookimpl
    def normalize_user_id(user_id: str) -> str:
        """The decimal number of a person or a bot, or the negative one of a chat that speaks for
        itself. Nothing that merely looks like one is converted."""
        if not _ID.fullmatch(user_id):
            raise ValueError("expected a numeric id such as 123456789; @names can change hands")
        return user_id

    @hookimpl
    async def fetch_attachment(self, attachment: Attachment, target: BinaryIO, limit: int) -> None:
        """Download a file. Telegram's own server gives none of more than 20 MB to bots."""
        await self._live.files.fetch(attachment.ref, target, limit)

    async def delete(self, address: Address, message_id: str) -> None:
        """Take an own message back."""
        await self._live.sender.delete(address, message_id)

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a reaction on a message; "" takes it off."""
        await self._live.sender.react(address, message_id, emoji)

    @property
    def _live(self) -> Connection:
        if self._connection is None:
            raise SendFailed("the bot is not connected")
        return self._connection
