"""A whole gateway on a `BuzzRelay`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from hermes_buzz import platform
from hermes_buzz.adapter import BuzzAdapter
from hermes_buzz.testing.people import Person
from hermes_buzz.testing.relay import BuzzRelay
from hermes_core import DenialInfo, MessageInfo, Platform, hookimpl
from hermes_core.gateway import Gateway
from hermes_core.testing import ScriptedAgent, gateway


class QuickBuzz:
    """The plugin, with short pauses and a clock that a test may set."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        class Quick(BuzzAdapter):
            first_pause = 0.01

        Quick.wall = staticmethod(wall)
        self._declared = platform(Quick)

    @hookimpl
    def platforms(self) -> list[Platform]:
        return [self._declared]


class Witness:
    """A plugin that notes what was taken in and what was denied."""

    def __init__(self) -> None:
        self.received: list[MessageInfo] = []
        self.denied: list[DenialInfo] = []
        self.connected = 0
        self._change = asyncio.Event()

    @hookimpl
    def on_message_received(self, message: MessageInfo) -> None:
        self.received.append(message)
        self._change.set()

    @hookimpl
    def on_message_denied(self, denial: DenialInfo) -> None:
        self.denied.append(denial)
        self._change.set()

    @hookimpl
    def on_platform_connected(self) -> None:
        self.connected += 1
        self._change.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds."""
        while not condition():
            self._change.clear()
            await self._change.wait()


class HasUrl(Protocol):
    """A relay, as far as settings go."""

    @property
    def url(self) -> str: ...


def config_for(relay: HasUrl, bot: Person, path: Path, *allowed: Person, more: str = "") -> str:
    """The section of the settings file; the key is in a file of its own beside `path`."""
    key = path.parent / f"{bot.name}.nsec"
    key.write_text(bot.nsec)
    key.chmod(0o600)
    users = ", ".join(f'"{person.npub}"' for person in allowed)
    return (
        f'[platforms.buzz]\nrelay_url = "{relay.url}"\nprivate_key = "file:{key}"\n'
        f"allowed_users = [{users}]\n{more}\n"
    )


@asynccontextmanager
async def talking(
    path: Path,
    relay: BuzzRelay,
    bot: Person,
    *plugins: object,
    allowed: tuple[Person, ...] = (),
    more: str = "",
    agent: ScriptedAgent | None = None,
    wall: Callable[[], float] = time.time,
    ready: bool = True,
) -> AsyncIterator[Gateway]:
    """A gateway whose account is `bot` and where `allowed` may speak.

    It is there once it reads every channel it is a member of, unless ``ready=False``.
    """
    config = config_for(relay, bot, path, *allowed, more=more)
    plugins = (QuickBuzz(wall), agent or ScriptedAgent(), *plugins)
    before = len(relay.requests)
    async with gateway(path, *plugins, config=config, wall=wall) as running:
        if ready:
            await listening(relay, bot, since=before)
        yield running


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something holds that nobody announces."""
    while not condition():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.005)


async def listening(relay: BuzzRelay, bot: Person, since: int = 0) -> None:
    """Wait until each channel of `bot` has been asked for, after the first `since` requests."""
    rooms = {channel for channel, room in relay.rooms.items() if bot.key in room.members}

    def asked() -> bool:
        queries = relay.requests[since:]
        return rooms <= {channel for query in queries for channel in query.get("#h", [])}

    await relay.until(asked)
