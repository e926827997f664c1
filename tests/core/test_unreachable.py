"""A chat that comes back while a send to it is failing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

from hermes_core import (
    Adapter,
    AdapterContext,
    Edited,
    Message,
    Outbound,
    Platform,
    Receipt,
    Sender,
    Settings,
    Unreachable,
    hookimpl,
)
from hermes_core.testing import ScriptedAgent, gateway


class Nothing(Settings):
    """No settings."""


class Door(Adapter[Nothing]):
    """Shut at the first knock, which is answered when the test says so; open from then on."""

    knocked: ClassVar[asyncio.Event]
    answer: ClassVar[asyncio.Event]
    arrived: ClassVar[asyncio.Queue[str]]
    contexts: ClassVar[asyncio.Queue[AdapterContext]]

    @hookimpl
    async def connect(self) -> str:
        self.contexts.put_nowait(self.context)
        return ""

    @hookimpl
    async def send(self, message: Outbound) -> Receipt:
        if not self.knocked.is_set():
            self.knocked.set()
            await self.answer.wait()
            raise Unreachable("nobody is in")
        self.arrived.put_nowait(message.text)
        return Receipt()


class DoorPlugin:
    @hookimpl
    def platforms(self) -> list[Platform]:
        return [Platform("door", Door, Nothing, max_length=1000, implicit=True)]

    @hookimpl
    def authorize(self) -> bool:
        return True


def test_a_chat_that_came_back_during_the_call_is_sent_to_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        Door.knocked, Door.answer = asyncio.Event(), asyncio.Event()
        Door.arrived, Door.contexts = asyncio.Queue(), asyncio.Queue()
        async with gateway(tmp_path, DoorPlugin(), ScriptedAgent()):
            context = await Door.contexts.get()
            address, sender = context.address("c1"), Sender(id="u1")
            await context.receive(
                Message(address=address, sender=sender, event_id="e1", text="hello")
            )
            await Door.knocked.wait()
            context.reachable("c1")
            # Committed behind what `reachable` has asked the store, and starting no turn itself.
            await context.receive(
                Edited(address=address, sender=sender, event_id="e2", message_id="e0", text="x")
            )
            Door.answer.set()
            async with asyncio.timeout(20):
                assert await Door.arrived.get() == "hello"

    asyncio.run(scenario())
