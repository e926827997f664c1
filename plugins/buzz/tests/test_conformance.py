"""What every adapter must do, on a relay on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hermes_buzz import platform
from hermes_buzz.adapter import BuzzAdapter
from hermes_buzz.testing import BuzzRelay, Person, config_for
from hermes_core.testing import conformance
from hermes_core.testing.conformance import Check, Network, Subject


class Quick(BuzzAdapter):
    """The adapter, without a pause."""

    first_pause = 0.01


class Buzz:
    """A person and a stranger who each have a direct channel with the bot.

    They never speak twice in a second: a relay dates by the second, and gives back what has one
    date in no order of its own.
    """

    def __init__(self, relay: BuzzRelay) -> None:
        self.relay = relay
        self.person, self.stranger, self.bot = Person("person"), Person("stranger"), Person("bot")
        self._chat = relay.channel("", self.person, self.bot, kind="dm")
        self._other = relay.channel("", self.stranger, self.bot, kind="dm")
        self._date = 0

    async def say(self, text: str, *, stranger: bool = False) -> None:
        self._date = max(self._date + 1, self.relay.now())
        who, where = (self.stranger, self._other) if stranger else (self.person, self._chat)
        await self.relay.say(who, where, text, at=self._date)

    async def screen(self, *, stranger: bool = False) -> list[str]:
        chat = self._other if stranger else self._chat
        shown: dict[str, str] = {}
        for event in self.relay.seen:
            if event["pubkey"] != self.bot.key or ["h", chat] not in event["tags"]:
                continue
            if event["kind"] == 9:
                shown[event["id"]] = event["content"]
            elif event["kind"] == 40003:
                target = next(tag[1] for tag in event["tags"] if tag[0] == "e")
                shown[target] = event["content"]
        return list(shown.values())

    async def change(self) -> None:
        await self.relay.change()

    async def offer_again(self) -> None:
        """A relay offers what it has at every connection; to one that is there, it is repeated."""
        mine = [event for event in self.relay.seen if event["pubkey"] == self.person.key]
        for client in self.relay.clients:
            for subscription in client.subscriptions(self._chat):
                await client.send(json.dumps(["EVENT", subscription, mine[-1]]))

    async def cut(self) -> None:
        self.relay.cut()


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_it_does_what_every_adapter_must(tmp_path: Path, check: Check) -> None:
    home = tmp_path / "home"
    network: Buzz

    @asynccontextmanager
    async def make() -> AsyncIterator[Network]:
        nonlocal network
        async with BuzzRelay() as relay:
            network = Buzz(relay)
            yield network

    def config(_: Network) -> str:
        return config_for(network.relay, network.bot, home, network.person)

    asyncio.run(check(Subject(platform(Quick), config, make, home)))
