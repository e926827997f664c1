"""A gateway in a process of its own, killed in the middle of a conversation."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from hermes_buzz.testing import BuzzRelay, Person, config_for

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("hermes_echo") is None, reason="needs hermes-plugin-echo"
)

FINAL_ONLY = "streaming = false"
"""A preview that a kill orphans stays on the screen: previews are shown at most once, by design."""


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
    """Two people in two channels, and one of them in a direct chat. Who is a member is what the
    relay's front says; what is counted is what is in the relay's own store."""

    def __init__(self, relay: BuzzRelay) -> None:
        self.alice, self.bob, self.bot = Person("alice"), Person("bob"), Person("bot")
        people = (self.alice, self.bob, self.bot)
        self.channels = [relay.channel(name, *people) for name in ("one", "two")]
        self.direct = relay.channel("", self.alice, self.bot, kind="dm")
        self.relay = relay
        self.said: list[str] = []

    async def go_on(self, round_: str) -> None:
        """Seven messages, some in a thread, and a reaction and an edit that want no answer."""
        root = ""
        for number, person in enumerate((self.alice, self.bob, self.alice)):
            for channel in self.channels:
                text = f"{round_} {person.name} {self.channels.index(channel)} {number}"
                threaded = root if channel == self.channels[0] else ""
                told = await self._say(person, channel, text, threaded)
                root = root or told
        told = await self._say(self.alice, self.direct, f"{round_} direct", "")
        about = [["e", told]]
        await self.relay.say(self.alice, self.direct, "👍", kind=7, tags=about)

    async def _say(self, person: Person, channel: str, text: str, root: str) -> str:
        self.said.append(text)
        return await self.relay.say(person, channel, text, mentions=[self.bot], root=root)

    async def answers(self) -> list[str]:
        """What people see of the bot: its messages, each as it was edited last."""
        stored = await self.relay.stored({"authors": [self.bot.key], "kinds": [9, 40003]})
        shown: dict[str, str] = {}
        for event in sorted(stored, key=lambda event: (event["created_at"], event["kind"])):
            edited = [tag[1] for tag in event["tags"] if tag[0] == "e"]
            is_edit = event["kind"] == 40003
            shown[edited[0] if is_edit else event["id"]] = event["content"]
        return list(shown.values())

    async def answered(self, count: int) -> None:
        while sum(text in self.said for text in await self.answers()) < count:
            await self.relay.next_event(self.bot, 9, 40003)


def test_every_message_is_answered_once_though_the_gateway_is_killed_twice(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        gateway = Gateway(home)
        async with BuzzRelay() as relay:
            talk = Conversation(relay)
            config = config_for(relay, talk.bot, home, talk.alice, talk.bob, more=FINAL_ONLY)
            (home / "config.toml").write_text(f'[agent]\nuse = "echo"\n{config}')
            try:
                await gateway.start()
                await relay.until(lambda: sum("#h" in query for query in relay.requests) >= 3)
                await talk.go_on("first")
                await talk.answered(3)
                await gateway.end(signal.SIGKILL)
                await talk.go_on("second")
                await gateway.start()
                await talk.answered(9)
                await talk.go_on("third")
                await gateway.end(signal.SIGKILL)
                await gateway.start()
                await talk.answered(len(talk.said))
                assert await gateway.end(signal.SIGTERM) == 0
            finally:
                await gateway.end(signal.SIGKILL)
            assert Counter(await talk.answers()) == Counter(talk.said)

    async def limited() -> None:
        async with asyncio.timeout(90):
            await test()

    asyncio.run(limited())
