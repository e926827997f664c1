"""Between the network and Hermes: events in, messages out."""

from __future__ import annotations

import asyncio

from hermes_core import (
    AccountFailed,
    Adapter,
    Message,
    NotReady,
    Outbound,
    Receipt,
    Secret,
    Sender,
    SendFailed,
    Settings,
    hookimpl,
)
from hermes_line.network import Event, Network

RETRY = 1.0
"""Seconds until an event that was not taken in is offered again."""


class LineSettings(Settings):
    """`[platforms.line]`. The allowlist and the rest of an account are the core's."""

    token: Secret


class LineAdapter(Adapter[LineSettings]):
    """One account on the network."""

    def network(self) -> Network:
        """The network that this account is on. Tests put another in its place."""
        return Network(self.settings.token.reveal())

    @hookimpl
    async def connect(self) -> str:
        """Log in and begin to listen. Returns our own id, by which the core knows our echoes."""
        self._network = self.network()
        try:
            own_id = await self._network.log_in()
        except PermissionError as error:
            raise AccountFailed("the token is not valid", remedy="make a new one") from error
        self._listening = asyncio.create_task(self._listen(), name="line")
        return own_id

    @hookimpl
    async def disconnect(self) -> None:
        """Stop listening and log out."""
        self._listening.cancel()
        await asyncio.wait({self._listening})
        await self._network.close()

    @hookimpl
    async def send(self, message: Outbound) -> Receipt:
        """Send one message. Any error that is not a SendError means: it may have arrived."""
        try:
            sent = await self._network.send(message.address.chat_id, message.text)
        except ConnectionRefusedError as error:
            raise SendFailed("the network does not answer") from error
        return Receipt(message_id=sent)

    async def _listen(self) -> None:
        try:
            async for event in self._network.events():
                await self._take(event)
                await self._network.acknowledge(event)
        except OSError as error:
            self.context.lost(error)
        else:
            self.context.lost(ConnectionError("the network closed the connection"))

    async def _take(self, event: Event) -> None:
        """Return when the fate of the event is committed: only then may it be acknowledged."""
        message = Message(
            address=self.context.address(event.chat, kind="group" if event.is_group else "dm"),
            sender=Sender(id=event.user, name=event.user_name),
            event_id=event.id,
            text=event.text,
            mentions_me=event.is_for_us,
        )
        while True:
            try:
                await self.context.receive(message)
            except NotReady:
                await asyncio.sleep(RETRY)
            else:
                return
