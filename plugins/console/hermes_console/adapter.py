"""The gateway's side of the console: attached clients in, texts out."""

from __future__ import annotations

import asyncio
import pwd
from collections import deque
from collections.abc import Iterable

from hermes_console.protocol import (
    Attached,
    Cancel,
    Cancelled,
    FromAdapter,
    FromClient,
    Silent,
    Taken,
    Write,
    from_client,
    pack,
)
from hermes_core import (
    Adapter,
    AdapterContext,
    Channel,
    Denied,
    Duplicate,
    Handled,
    HermesError,
    Message,
    NotReady,
    Outbound,
    ProfileScope,
    Receipt,
    Received,
    Refused,
    Sender,
    Settings,
    TurnEnd,
    Unreachable,
    hookimpl,
)

MAX_CHAT = 64
MAX_UID = 2**32 - 1
SLOW_CLIENT = 10.0
"""Seconds that a client may take to read a frame; then it is let go. The `send` hook has 60."""
REMEMBERED = 1000
"""Messages of one client whose answer is known to be its own."""

_live: dict[tuple[str, str], ConsoleAdapter] = {}
"""The connected adapters by profile uuid and account: hooks know profiles, not adapters."""


class ConsoleSettings(Settings):
    """Nothing to set."""


class _Client:
    """One attached client."""

    def __init__(self, channel: Channel, limit: asyncio.Timeout) -> None:
        self._channel = channel
        self._limit = limit
        self.asked: deque[str] = deque(maxlen=REMEMBERED)

    async def tell(self, value: FromAdapter) -> bool:
        """False when the client is gone, or takes too long and is let go."""
        try:
            async with asyncio.timeout(SLOW_CLIENT):
                await self._channel.send(pack(value))
        except ConnectionError:
            return False
        except TimeoutError:
            self._limit.reschedule(asyncio.get_running_loop().time())
            return False
        return True


class ConsoleAdapter(Adapter[ConsoleSettings]):
    """Shows a chat to every client that is attached to it."""

    def __init__(self, settings: ConsoleSettings, context: AdapterContext) -> None:
        super().__init__(settings, context)
        self._clients: dict[str, list[_Client]] = {}

    @hookimpl
    async def connect(self) -> str:
        """There is no network to log in to, and no id of our own: nothing comes back as an echo."""
        _live[self.context.scope.uuid, self.context.account] = self
        return ""

    @hookimpl
    async def disconnect(self) -> None:
        """Attached clients belong to the control socket, which ends them."""
        _live.pop((self.context.scope.uuid, self.context.account), None)

    @staticmethod
    @hookimpl
    def normalize_user_id(user_id: str) -> str:
        """The decimal id of an operating-system user."""
        if not (user_id.isascii() and user_id.isdigit() and int(user_id) <= MAX_UID):
            raise ValueError(f"expected the number of a user, found {user_id!r:.40}")
        return str(int(user_id))

    @hookimpl
    async def send(self, message: Outbound) -> Receipt:
        """Show a message. Unreachable while nobody is attached."""
        await self._show(message)
        return Receipt(message_id=message.id)

    @hookimpl
    async def edit(self, message_id: str, message: Outbound) -> Receipt:
        """Show the new text of a message. A client that never saw it shows it whole."""
        await self._show(message, message_id)
        return Receipt(message_id=message_id)

    @hookimpl
    async def attach(self, channel: Channel) -> None:
        """Serve one client until it leaves."""
        chat = _chat(channel)
        sender = await asyncio.to_thread(_sender, channel.peer_uid)
        try:
            async with asyncio.timeout(None) as limit:
                client = _Client(channel, limit)
                await client.tell(Attached(chat))
                await self._serve(chat, client, sender, channel)
        except TimeoutError:
            raise HermesError("this client does not read what it is sent", where=chat) from None

    async def unanswered(self, chat: str, why: Cancelled | Silent) -> None:
        """Tell a chat that some messages get no answer."""
        await _tell_all(self._clients.get(chat, []), why)

    async def _serve(self, chat: str, client: _Client, sender: Sender, channel: Channel) -> None:
        self._clients.setdefault(chat, []).append(client)
        self.context.reachable(chat)
        try:
            while (frame := await channel.receive()) is not None:
                try:
                    said = from_client(frame)
                except ValueError as error:
                    raise HermesError(f"not what a client says: {error}", where=chat) from None
                client.asked.append(said.id)
                await client.tell(await self._take(chat, sender, said))
        finally:
            self._leave(chat, client)

    def _leave(self, chat: str, client: _Client) -> None:
        self._clients[chat].remove(client)
        if not self._clients[chat]:
            del self._clients[chat]

    async def _take(self, chat: str, sender: Sender, said: FromClient) -> Taken:
        message = Message(
            address=self.context.address(chat),
            sender=sender,
            event_id=said.id,
            text="/stop" if isinstance(said, Cancel) else said.text,
            mentions_me=True,
        )
        try:
            return _fate(said.id, await self.context.receive(message))
        except NotReady as error:
            return Taken(said.id, "later", error.what)

    async def _show(self, message: Outbound, replaces: str = "") -> None:
        clients = self._clients.get(message.address.chat_id, [])
        asked = any(event_id in client.asked for client in clients for event_id in message.answers)
        frame = Write(
            id=message.id,
            text=message.text,
            kind=message.kind,
            part=message.part,
            parts=message.parts,
            answers=message.answers,
            stray=bool(message.answers) and not asked,
            replaces=replaces,
        )
        if not await _tell_all(clients, frame):
            raise Unreachable("nobody is attached to this chat", where=message.address.chat_id)


async def turn_ended(scope: ProfileScope, end: TurnEnd) -> None:
    """Pass the end of a turn that sends no text on to the adapter it came through, if it was this
    platform's."""
    address, event_ids = end.turn.address, end.turn.event_ids
    adapter = _live.get((scope.uuid, address.account))
    if adapter is None or address.platform != "console":
        return
    if end.outcome == "cancelled":
        await adapter.unanswered(address.chat_id, Cancelled(event_ids))
    elif end.outcome == "silent" and not end.error:
        await adapter.unanswered(address.chat_id, Silent(event_ids))


async def _tell_all(clients: Iterable[_Client], frame: FromAdapter) -> bool:
    """Whether anybody took it."""
    return any(await asyncio.gather(*(client.tell(frame) for client in clients)))


def _fate(event_id: str, received: Received) -> Taken:
    match received:
        case Denied(reason=reason):
            return Taken(event_id, "denied", reason)
        case Refused(reason=reason):
            return Taken(event_id, "refused", reason)
        case Handled():
            return Taken(event_id, "handled")
        case Duplicate():
            return Taken(event_id, "duplicate")
    return Taken(event_id, "accepted")


def _chat(channel: Channel) -> str:
    chat = channel.parameters.get("chat")
    if not (isinstance(chat, str) and 0 < len(chat) <= MAX_CHAT and chat.isprintable()):
        raise HermesError(
            f"{chat!r:.80} cannot name a chat", remedy=f"use 1 to {MAX_CHAT} printable characters"
        )
    return chat


def _sender(uid: int) -> Sender:
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = ""
    return Sender(id=str(uid), name=name)
