"""Another relay, in Python and with other habits: `nostr-relay`. It asks for authentication at once
and never answers it, refuses requests by a NOTICE and events without naming them, and knows nothing
of Buzz or HTTP bridges.

`make test` installs it. Without make, its command is looked for in PATH.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hermes_buzz.testing import Person, QuickBuzz, Witness, config_for
from hermes_core import DeliveryInfo, hookimpl
from hermes_core.gateway import Gateway
from hermes_core.testing import ScriptedAgent, gateway

PEERS = Path(sys.prefix) / "peers" / "bin"
COMMAND = shutil.which("nostr-relay", path=os.pathsep.join([str(PEERS), os.environ["PATH"]]))
pytestmark = pytest.mark.skipif(
    COMMAND is None, reason="nostr-relay is not installed: make test does, where it can"
)
CHANNEL = "general"
SETTINGS = """
relay_urls: [{url}]
storage:
  sqlalchemy.url: sqlite+aiosqlite:///{path}
  validators: [nostr_relay.validators.is_signed, nostr_relay.validators.is_recent]
gunicorn: {{bind: "{host}", workers: 1, loglevel: info}}
authentication:
  enabled: true
  relay_urls: [{url}]
  actions: {{save: {save}, query: a}}
message_timeout: 1800
subscription_limit: 32
max_limit: 6000
"""
OPEN, LISTED = "a", "w"
"""Who may write: everybody, or who has that role."""


class Relay:
    """The relay, in a process of its own; it keeps its address and what it has stored."""

    def __init__(self, directory: Path, save: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._host = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"ws://{self._host}"
        self._directory = directory
        self._file = directory / "relay.yaml"
        path = directory / "relay.sqlite3"
        text = SETTINGS.format(url=self.url, host=self._host, path=path, save=save)
        self._file.write_text(text)
        self._process: asyncio.subprocess.Process

    async def start(self) -> None:
        self._process = await self._run("serve")

    async def stop(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()
        await self._process.wait()

    async def may_write(self, person: Person) -> None:
        """Give somebody the role that `LISTED` wants, from their next connection on, as soon as the
        relay has its tables."""
        words = ("role", "set", "-p", person.key, "-r", OPEN + LISTED)
        while await (await self._run(*words)).wait() != 0:
            pass

    async def _run(self, *words: str) -> asyncio.subprocess.Process:
        assert COMMAND is not None
        with (self._directory / "relay.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(COMMAND, "-c", str(self._file), *words),
                cwd=self._directory,
                stdout=log,
                stderr=log,
            )


class Member:
    """A person on that relay, and what they see of the bot."""

    def __init__(self, relay: Relay, person: Person, bot: Person) -> None:
        self._relay = relay
        self._person = person
        self._bot = bot
        self.answers: dict[str, dict[str, Any]] = {}
        """What the bot has said, by its ids."""
        self.connections = 0
        self._change = asyncio.Event()
        self._socket: aiohttp.ClientWebSocketResponse

    async def stay(self) -> None:
        """Be connected whenever the relay is up, and read everything the bot says, until cancelled.

        Whatever was read before comes again with each connection."""
        async with aiohttp.ClientSession() as http:
            while True:
                try:
                    async with http.ws_connect(self._relay.url) as self._socket:
                        await self._read()
                except aiohttp.ClientError:
                    await asyncio.sleep(0.05)

    async def _read(self) -> None:
        challenge = json.loads((await self._socket.receive()).data)[1]
        tags = [["relay", self._relay.url], ["challenge", challenge]]
        await self._send(["AUTH", self._person.event(22242, tags=tags, at=int(time.time()))])
        await self._send(["REQ", "a", {"kinds": [9], "authors": [self._bot.key]}])
        self.connections += 1
        self._change.set()
        async for message in self._socket:
            frame = json.loads(message.data)
            if frame[0] == "EVENT":
                assert self.answers.get(frame[2]["id"], frame[2]) == frame[2]
                self.answers[frame[2]["id"]] = frame[2]
            self._change.set()

    async def _send(self, frame: list[Any]) -> None:
        await self._socket.send_str(json.dumps(frame))

    async def say(self, text: str, *tags: list[str]) -> str:
        """A message that mentions the bot; its id."""
        found = [["h", CHANNEL], ["p", self._bot.key], *tags]
        event = self._person.event(9, text, found, at=int(time.time()))
        await self._send(["EVENT", event])
        return str(event["id"])

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to be heard."""
        while not condition():
            self._change.clear()
            await self._change.wait()

    async def answered(self, *texts: str) -> list[dict[str, Any]]:
        """Wait until the bot has said these things, each once and nothing else; its events."""
        await self.until(lambda: len(self.answers) >= len(texts))
        assert sorted(event["content"] for event in self.answers.values()) == sorted(texts)
        return [
            next(event for event in self.answers.values() if event["content"] == text)
            for text in texts
        ]


class Failures:
    """A plugin that notes what could not be delivered."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.told = asyncio.Event()

    @hookimpl
    def on_delivery_failed(self, delivery: DeliveryInfo) -> None:
        self.reasons.append(delivery.reason)
        self.told.set()


World = Callable[..., Any]


@asynccontextmanager
async def place(path: Path, save: str = OPEN) -> AsyncIterator[tuple[Relay, Member, Person, World]]:
    """A relay, a person on it, a bot, and what starts its gateway there, always the same one."""
    alice, bot = Person("alice"), Person("bot")
    relay = Relay(path, save)
    await relay.start()
    if save == LISTED:
        await relay.may_write(alice)
    member = Member(relay, alice, bot)
    staying = asyncio.create_task(member.stay())
    await member.until(lambda: member.connections == 1)
    home = path / "home"

    @asynccontextmanager
    async def connected(*plugins: object) -> AsyncIterator[Gateway]:
        witness = Witness()
        plugins = (QuickBuzz(), ScriptedAgent(), witness, *plugins)
        more = f'channels = ["{CHANNEL}"]\nstreaming = false\nprogress = "none"'
        config = f'[agent]\nuse = "scripted"\n{config_for(relay, bot, home, alice, more=more)}'
        async with gateway(home, *plugins, config=config) as running:
            await witness.until(lambda: witness.connected == 1)
            yield running

    try:
        yield relay, member, bot, connected
    finally:
        staying.cancel()
        await asyncio.wait({staying})
        await relay.stop()


def run(test: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(90):
            await test

    asyncio.run(limited())


def references(event: dict[str, Any]) -> list[list[str]]:
    return [tag for tag in event["tags"] if tag[0] == "e"]


def test_a_conversation_over_a_restart_of_the_relay_and_one_of_the_gateway(tmp_path: Path) -> None:
    async def test() -> None:
        async with place(tmp_path) as (relay, alice, _, connected):
            async with connected():
                question = await alice.say("one")
                (answer,) = await alice.answered("one")
                assert references(answer) == [["e", question, "", "reply"]]
                root = ["e", question, "", "root"]
                deeper = await alice.say("two", root, ["e", answer["id"], "", "reply"])
                _, answer = await alice.answered("one", "two")
                assert references(answer) == [root, ["e", deeper, "", "reply"]]
                await relay.stop()
                await relay.start()
                await alice.until(lambda: alice.connections == 2)
                await alice.say("three")
                await alice.answered("one", "two", "three")
            await alice.say("four")
            async with connected():
                await alice.say("five")
                await alice.answered("one", "two", "three", "four", "five")
            async with connected():
                await alice.say("six")
                await alice.answered("one", "two", "three", "four", "five", "six")

    run(test())


def test_a_refusal_that_names_no_event_is_that_of_the_answer(tmp_path: Path) -> None:
    async def test() -> None:
        async with place(tmp_path, save=LISTED) as (relay, alice, bot, connected):
            failures = Failures()
            async with connected(failures) as running:
                await alice.say("one")
                await failures.told.wait()
                assert "permission denied" in failures.reasons[0]
                account = running.profiles["default"].accounts.get("buzz")
                assert account is not None
                assert account.connected
            await relay.may_write(bot)
            async with connected():
                await alice.say("two")
                await alice.answered("two")

    run(test())
