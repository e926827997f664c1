from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import pytest

import hermes_line
from hermes_core.testing import ScriptedAgent, gateway
from hermes_line.adapter import LineAdapter
from hermes_line.network import Event, Network

CONFIG = """
[platforms.line]
token = "env:LINE_TOKEN"
allowed_users = ["u1"]
"""


class FakeNetwork(Network):
    """A network in memory. Each one that an adapter has logged in to is put into `logins`."""

    logins: ClassVar[asyncio.Queue[FakeNetwork]]

    def __init__(self, token: str) -> None:
        super().__init__(token)
        self.token = token
        self.incoming: asyncio.Queue[Event] = asyncio.Queue()
        self.acknowledged: list[str] = []
        self.sent: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    async def log_in(self) -> str:
        if self.token == "revoked":
            raise PermissionError
        self.logins.put_nowait(self)
        return "bot"

    async def events(self) -> AsyncIterator[Event]:
        while True:
            yield await self.incoming.get()

    async def acknowledge(self, event: Event) -> None:
        self.acknowledged.append(event.id)

    async def send(self, chat: str, text: str) -> str:
        self.sent.put_nowait((chat, text))
        return f"m{self.sent.qsize()}"

    async def close(self) -> None:
        self.acknowledged.append("closed")


@pytest.fixture(autouse=True)
def _fake_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeNetwork, "logins", asyncio.Queue(), raising=False)
    monkeypatch.setattr(LineAdapter, "network_type", FakeNetwork)
    monkeypatch.setenv("LINE_TOKEN", "secret")


def says(event_id: str, user: str, text: str) -> Event:
    return Event(event_id, chat="c1", is_group=False, user=user, user_name=user, text=text)


def test_a_person_is_answered_and_a_stranger_is_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gateway(tmp_path, hermes_line, ScriptedAgent(), config=CONFIG):
            network = await FakeNetwork.logins.get()
            assert network.token == "secret"
            network.incoming.put_nowait(says("e1", "stranger", "let me in"))
            network.incoming.put_nowait(says("e2", "u1", "hello"))
            assert await network.sent.get() == ("c1", "hello")
        assert network.acknowledged == ["e1", "e2", "closed"]
        assert network.sent.empty()

    asyncio.run(scenario())


def test_an_event_that_comes_again_is_acknowledged_and_not_answered_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gateway(tmp_path, hermes_line, ScriptedAgent(), config=CONFIG):
            network = await FakeNetwork.logins.get()
            for event_id, text in (("e1", "one"), ("e1", "one"), ("e2", "two")):
                network.incoming.put_nowait(says(event_id, "u1", text))
            assert await network.sent.get() == ("c1", "one")
            assert await network.sent.get() == ("c1", "two")
        assert network.acknowledged == ["e1", "e1", "e2", "closed"]

    asyncio.run(scenario())
