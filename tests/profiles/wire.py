"""A network with bots behind tokens, for several profiles and homes in one process."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import BinaryIO

from hermes_core import (
    Adapter,
    Agent,
    AgentType,
    Attachment,
    Message,
    Outbound,
    Platform,
    Receipt,
    Received,
    Secret,
    Sender,
    Settings,
    Text,
    Turn,
    hookimpl,
)
from hermes_core.home import Home
from hermes_core.messages import AgentEvent, ChatKind, Inbound
from hermes_core.platforms import AdapterContext


class WireSettings(Settings):
    token: Secret


class NoSettings(Settings):
    pass


class Wire:
    """A plugin with the platform `wire`. A bot's own id is the beginning of its token, up to "-".

    `people` are the ids behind names, `files` the contents of attachments by ref. `connected` are
    the tokens of the logins in order, `fetched` refs, `sent` what arrived: (own id, chat, text).
    """

    def __init__(self, name: str = "wire") -> None:
        self.name = name
        self.files: dict[str, bytes | Exception] = {}
        self.fetched: list[str] = []
        self.people: dict[str, str] = {}
        self.connected: list[str] = []
        self.sent: list[tuple[str, str, str]] = []
        self.contexts: dict[tuple[str, str], AdapterContext] = {}
        self.changed = asyncio.Condition()
        self._events = itertools.count(1)
        self._declared = Platform(name, _adapter(self), WireSettings, max_length=4000)

    @hookimpl
    def platforms(self) -> list[Platform]:
        return [self._declared]

    async def say(
        self,
        text: str = "hello",
        *,
        profile: str = "default",
        account: str = "default",
        user: str = "1",
        chat: str = "c1",
        kind: ChatKind = "dm",
        mentions_me: bool = True,
        is_bot: bool = False,
        name: str = "",
        attachments: tuple[Attachment, ...] = (),
    ) -> Received:
        """Let a person say something to the bot of an account."""
        context = self.contexts[profile, account]
        event = Message(
            address=context.address(chat, kind=kind),
            sender=Sender(id=user, name=name, is_bot=is_bot),
            event_id=f"e{next(self._events)}",
            text=text,
            mentions_me=mentions_me,
            attachments=attachments,
        )
        return await context.receive(event)

    async def inject(self, event: Inbound, profile: str = "default") -> Received:
        return await self.contexts[profile, event.address.account].receive(event)

    async def until(self, condition: Callable[[Wire], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(20), self.changed:
            await self.changed.wait_for(lambda: condition(self))

    async def tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()


def _adapter(wire: Wire) -> type[Adapter[WireSettings]]:
    class WireAdapter(Adapter[WireSettings]):
        @staticmethod
        @hookimpl
        def normalize_user_id(user_id: str) -> str:
            if not (user_id.isascii() and user_id.isdigit()):
                raise ValueError("a user id has digits only")
            return user_id

        @hookimpl
        async def connect(self, is_reconnect: bool) -> str:
            token = self.settings.token.reveal()
            wire.connected.append(token)
            wire.contexts[self.context.scope.name, self.context.account] = self.context
            await wire.tell()
            return token.partition("-")[0]

        @hookimpl
        async def fetch_attachment(self, attachment: Attachment, target: BinaryIO) -> None:
            wire.fetched.append(attachment.ref)
            content = wire.files[attachment.ref]
            if isinstance(content, Exception):
                raise content
            target.write(content)

        @hookimpl
        async def resolve_user_ids(self, names: tuple[str, ...]) -> dict[str, str]:
            # Says more than it was asked, as a careless adapter may.
            return dict(wire.people)

        @hookimpl
        async def send(self, message: Outbound) -> Receipt:
            own_id = self.settings.token.reveal().partition("-")[0]
            wire.sent.append((own_id, message.address.chat_id, message.text))
            await wire.tell()
            return Receipt(message_id=f"m{len(wire.sent)}")

    return WireAdapter


Behaviour = Callable[[Turn], Awaitable[str]]


class Brain:
    """A plugin with the agent `brain`, which answers what `behaviour` gives."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        brain = self

        class BrainAgent(Agent[NoSettings]):
            async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
                yield Text(await brain.behaviour(turn))

        self._declared = AgentType("brain", BrainAgent, NoSettings)

    @hookimpl
    def agents(self) -> list[AgentType]:
        return [self._declared]


async def echo(turn: Turn) -> str:
    return turn.messages[0].text


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is so that tells nobody."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for may be anything
            await asyncio.sleep(0.02)


def write_profile(home: Home, name: str, config: str, secrets: str = "") -> None:
    """Make a profile that uses the agent `brain`, as a person would by hand."""
    home.ensure(name)
    home.config_file(name).write_text(f'{config}\n[agent]\nuse = "brain"\n')
    write_private(home.secrets_file(name), secrets)


def write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def wire_section(*users: str, more: str = "") -> str:
    listed = ", ".join(f'"{user}"' for user in users)
    return f'[platforms.wire]\ntoken = "env:WIRE_TOKEN"\nallowed_users = [{listed}]\n{more}\n'
