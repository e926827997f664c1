"""Another relay, in Python and with other habits: `nostr-relay`. It asks for authentication at once
and never answers it, refuses requests by a NOTICE, and knows nothing of Buzz or HTTP bridges.

Its command is looked for in PATH, or where NOSTR_RELAY says: it needs an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hermes_buzz.testing import BuzzRelay, Person, QuickBuzz, Witness, config_for
from hermes_core.testing import ScriptedAgent, gateway

COMMAND = os.environ.get("NOSTR_RELAY") or shutil.which("nostr-relay")
pytestmark = pytest.mark.skipif(COMMAND is None, reason="nostr-relay is not installed")
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
  actions: {{save: a, query: a}}
message_timeout: 1800
subscription_limit: 32
max_limit: 6000
"""


@dataclass
class Place:
    """Where the relay is: as much of `BuzzRelay` as the settings need."""

    url: str


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Place]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
    file = directory / "relay.yaml"
    text = SETTINGS.format(url=f"ws://{host}", host=host, path=directory / "relay.sqlite3")
    file.write_text(text)
    assert COMMAND is not None
    with (directory / "relay.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *(COMMAND, "-c", str(file), "serve"), cwd=directory, stdout=log, stderr=log
        )
    try:
        yield Place(f"ws://{host}")
    finally:
        process.terminate()
        await process.wait()


class Member:
    """A person on that relay."""

    def __init__(self, person: Person, url: str, http: aiohttp.ClientSession) -> None:
        self._person = person
        self._url = url
        self._http = http
        self._socket: aiohttp.ClientWebSocketResponse

    async def enter(self, now: int) -> None:
        """Connect as soon as the relay is up, and authenticate."""
        while True:
            try:
                self._socket = await self._http.ws_connect(self._url)
                break
            except aiohttp.ClientError:
                await asyncio.sleep(0.05)
        challenge = (await self.frame())[1]
        tags = [["relay", self._url], ["challenge", challenge]]
        await self.send(["AUTH", self._person.event(22242, tags=tags, at=now)])

    async def send(self, frame: list[Any]) -> None:
        await self._socket.send_str(json.dumps(frame))

    async def frame(self) -> list[Any]:
        found: list[Any] = json.loads((await self._socket.receive()).data)
        return found


def test_a_conversation_on_another_relay(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        now = BuzzRelay().now()
        async with running(tmp_path) as relay, aiohttp.ClientSession() as http:
            member = Member(alice, relay.url, http)
            await member.enter(now)
            witness = Witness()
            home = tmp_path / "home"
            more = f'channels = ["{CHANNEL}"]\nstreaming = false'
            config = f'[agent]\nuse = "scripted"\n{config_for(relay, bot, home, alice, more=more)}'
            async with gateway(home, QuickBuzz(), ScriptedAgent(), witness, config=config):
                await witness.until(lambda: witness.connected == 1)
                await member.send(["REQ", "a", {"kinds": [9], "authors": [bot.key]}])
                tags = [["h", CHANNEL], ["p", bot.key]]
                question = alice.event(9, "hello", tags, at=now)
                await member.send(["EVENT", question])
                while (frame := await member.frame())[0] != "EVENT":
                    pass
            assert frame[2]["content"] == "hello"
            assert ["e", question["id"], "", "reply"] in frame[2]["tags"]

    async def limited() -> None:
        async with asyncio.timeout(40):
            await test()

    asyncio.run(limited())
