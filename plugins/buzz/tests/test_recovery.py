"""A gateway in a process of its own, killed twice in the middle of a conversation.

Who is a member, and the file that is fetched, come from this package's imitation of the HTTP side;
what is counted is what is in the relay's own store. `tools/accept_wheels.py` runs this very file
where nothing is installed but wheels.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from hermes_buzz.testing import BuzzRelay, Person, config_for

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("hermes_command") is None, reason="needs hermes-plugin-command"
)

Json = dict[str, Any]
PROGRAM = """
import json, sys, time
(message,) = json.load(sys.stdin)["messages"]
files = [open(file["path"]).read() for file in message["attachments"]]
for word in ["answer", "to", message["text"], *files]:
    print(word, end=" ", flush=True)
    time.sleep(0.1)
"""
"""An agent that takes its time, so that people see the beginning of its answer before the end."""


class Gateway:
    """``hermes run``, again and again."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with (self._home.parent / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "hermes_core.cli", "run"),
                env=os.environ | {"HERMES_HOME": str(self._home)},
                cwd=self._home,
                stdout=log,
                stderr=log,
            )

    async def end(self, number: signal.Signals) -> int:
        """Send a signal and wait for the exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self._process.wait()


class Conversation:
    """Two people in two channels, and one of them in a direct chat. `expected` has the answer to
    each message by the message's id."""

    def __init__(self, relay: BuzzRelay) -> None:
        self.alice, self.bob, self.bot = Person("alice"), Person("bob"), Person("bot")
        people = (self.alice, self.bob, self.bot)
        self.one, self.two = (relay.channel(name, *people) for name in ("one", "two"))
        self.direct = relay.channel("", self.alice, self.bot, kind="dm")
        self.relay = relay
        self.expected: dict[str, str] = {}

    async def go_on(self, round_: str) -> None:
        """Eight messages to answer, in threads and out of them, one mentioning the bot only when it
        is edited, one with a file; and a reaction and an edit that want no answer."""
        root = await self.ask(self.alice, self.one, f"{round_} root")
        await self.ask(self.bob, self.one, f"{round_} in its thread", root=root)
        await self.ask(self.bob, self.two, f"{round_} top level")
        await self.ask_by_an_edit(self.alice, self.two, f"{round_} mentioned late")
        await self.ask(self.alice, self.one, f"{round_} in the thread again", root=root)
        file = self.file(f"{round_} content")
        await self.ask(self.bob, self.two, f"{round_} file", tags=[file], more=f"{round_} content")
        told = await self.ask(self.alice, self.direct, f"{round_} direct")
        await self.ask(self.alice, self.direct, f"{round_} direct thread", root=told)
        await self.relay.say(self.alice, self.direct, "👍", kind=7, tags=[["e", told]])

    async def edit_what_was_answered(self) -> None:
        about = [["e", next(iter(self.expected))]]
        await self.relay.say(self.alice, self.one, "said better", kind=40003, tags=about)

    async def ask(
        self,
        person: Person,
        channel: str,
        text: str,
        *,
        root: str = "",
        tags: list[list[str]] | None = None,
        more: str = "",
    ) -> str:
        told = await self.relay.say(
            person, channel, text, mentions=[self.bot], root=root, tags=tags or []
        )
        self.expected[told] = " ".join(filter(None, ("answer to", text, more)))
        return told

    async def ask_by_an_edit(self, person: Person, channel: str, text: str) -> None:
        told = await self.relay.say(person, channel, "nobody is mentioned")
        about = [["e", told]]
        await self.relay.say(person, channel, text, kind=40003, mentions=[self.bot], tags=about)
        self.expected[told] = f"answer to {text}"

    def file(self, content: str) -> list[str]:
        """A file at the relay, and the tag that describes it."""
        data = content.encode()
        digest = sha256(data).hexdigest()
        self.relay.bridge.files[digest] = (data, "text/plain")
        url = f"{self.relay.http_url}/media/{digest}.txt"
        return ["imeta", f"url {url}", "m text/plain", f"x {digest}", f"size {len(data)}"]

    # ── what the relay has stored ────────────────────────────────────────────────────────────────

    async def answers(self) -> list[tuple[str, str]]:
        """Every message of the bot: the id that it replies to, and its text as edited last."""
        stored = await self.relay.stored({"authors": [self.bot.key], "kinds": [9, 40003]})
        edits = sorted(
            (event for event in stored if event["kind"] == 40003),
            key=lambda event: (event["created_at"], len(event["content"])),
        )
        texts: dict[str, str] = {_e(event, 0): event["content"] for event in edits}
        return [
            (_e(event, -1), texts.get(event["id"], str(event["content"])).strip())
            for event in stored
            if event["kind"] == 9
        ]

    async def until(self, condition: Callable[[list[tuple[str, str]]], bool]) -> None:
        while not condition(await self.answers()):
            await self.relay.next_event(self.bot, 9, 40003)

    async def answered(self, count: int) -> None:
        def are(answers: list[tuple[str, str]]) -> bool:
            return sum(self.expected.get(to) == text for to, text in answers) >= count

        await self.until(are)


def _e(event: Json, index: int) -> str:
    found: list[str] = [tag[1] for tag in event["tags"] if tag[0] == "e"]
    return found[index] if found else ""


async def scenario(home: Path) -> None:
    gateway = Gateway(home)
    async with BuzzRelay() as relay:
        talk = Conversation(relay)
        program = home / "agent.py"
        program.write_text(PROGRAM)
        argv = f'argv = ["{sys.executable}", "{program}"]'
        config = config_for(relay, talk.bot, home, talk.alice, talk.bob)
        (home / "config.toml").write_text(f'[agent]\nuse = "command"\ncommand.{argv}\n{config}')
        try:
            await gateway.start()
            await relay.until(lambda: sum("#h" in query for query in relay.requests) >= 3)
            await talk.go_on("first")
            await talk.answered(3)
            begun = await talk.ask(talk.alice, talk.direct, "one more " * 5 + "thing")
            await talk.until(lambda answers: any(to == begun for to, _ in answers))
            await gateway.end(signal.SIGKILL)  # in the middle of an answer that people see

            await talk.edit_what_was_answered()
            await talk.go_on("second")
            await gateway.start()
            await talk.answered(12)
            await talk.go_on("third")
            await gateway.end(signal.SIGKILL)  # with some taken in, some not, some answered

            await gateway.start()
            await talk.answered(len(talk.expected))
            assert await gateway.end(signal.SIGTERM) == 0
        finally:
            await gateway.end(signal.SIGKILL)
        assert sorted(await talk.answers()) == sorted(talk.expected.items())


def test_every_message_is_answered_once_though_the_gateway_is_killed_twice(
    tmp_path: Path,
) -> None:
    async def limited(home: Path) -> None:
        async with asyncio.timeout(120):
            await scenario(home)

    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    asyncio.run(limited(home))
