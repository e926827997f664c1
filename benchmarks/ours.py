"""Our pipeline: the whole gateway, an adapter in memory and an agent that does nothing."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from hermes_core import (
    Adapter,
    AdapterContext,
    Agent,
    AgentEvent,
    AgentType,
    Message,
    Outbound,
    Platform,
    Receipt,
    Sender,
    Settings,
    Text,
    Turn,
    hookimpl,
)
from hermes_core.serving import settle_memory
from hermes_core.testing import gateway


class Nothing(Settings):
    """No settings."""


class Ours:
    """The driver. `durability` is that of the settings."""

    on_start: Callable[[str, str], Awaitable[None]]
    on_reply: Callable[[str], None]

    def __init__(self, durability: str = "full") -> None:
        self._durability = durability
        self._stack = AsyncExitStack()
        self._ids = itertools.count()
        self.context: AdapterContext | None = None

    async def start(self, directory: Path) -> None:
        config = f"""
            [gateway]
            max_running_turns = 10000
            durability = "{self._durability}"
            [agent]
            use = "nothing"
            [sessions]
            group = "shared"
            max_waiting = 1000000
            [platforms.memory]
            allow_all = true
        """
        await self._stack.enter_async_context(gateway(directory, _plugin(self), config=config))
        settle_memory()

    async def inject(self, session: str, text: str, user: str | None = None) -> None:
        """A message in a direct chat, or of a `user` in a group that shares its session."""
        assert self.context is not None
        await self.context.receive(
            Message(
                address=self.context.address(session, kind="group" if user else "dm"),
                sender=Sender(id=user or session, name=session),
                event_id=str(next(self._ids)),
                text=text,
                mentions_me=True,
            )
        )

    async def stop(self) -> None:
        await self._stack.aclose()


def _plugin(driver: Ours) -> object:
    class Memory(Adapter[Nothing]):
        @hookimpl
        def connect(self) -> str:
            driver.context = self.context
            return "bot"

        @hookimpl
        def send(self, message: Outbound) -> Receipt:
            driver.on_reply(message.address.chat_id)
            return Receipt(message_id=message.id)

    class DoNothing(Agent[Nothing]):
        async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
            message = turn.messages[0]
            await driver.on_start(message.sender_name, message.text)
            yield Text(message.text)

    class Plugin:
        @hookimpl
        def platforms(self) -> list[Platform]:
            return [Platform("memory", Memory, Nothing, max_length=4000, implicit=True)]

        @hookimpl
        def agents(self) -> list[AgentType]:
            return [AgentType("nothing", DoNothing, Nothing)]

    return Plugin()
