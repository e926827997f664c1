from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import hermes_line
from hermes_core.testing import ScriptedAgent, conformance, gateway
from hermes_core.testing.conformance import Check, Network, Subject
from hermes_line.adapter import LineAdapter
from hermes_line.testing import GROUP, PERSON, FakeNetwork, FakeServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    """What every adapter in the test connects to."""
    server = FakeServer("secret")

    def network(adapter: LineAdapter) -> FakeNetwork:
        return FakeNetwork(adapter.settings.token.reveal(), server)

    monkeypatch.setattr(LineAdapter, "network", network)
    return server


def config(home: Path) -> str:
    secret = home / "line.token"
    secret.write_text("secret")
    secret.chmod(0o600)
    return f'[platforms.line]\ntoken = "file:{secret}"\nallowed_users = ["{PERSON}"]\n'


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_it_does_what_every_adapter_must(tmp_path: Path, server: FakeServer, check: Check) -> None:
    @asynccontextmanager
    async def make() -> AsyncIterator[Network]:
        yield server

    line = hermes_line.platforms()[0]
    asyncio.run(check(Subject(line, lambda _: config(tmp_path), make, tmp_path)))


def test_in_a_group_it_answers_what_mentions_it(tmp_path: Path, server: FakeServer) -> None:
    async def scenario() -> None:
        async with gateway(tmp_path, hermes_line, ScriptedAgent(), config=config(tmp_path)):
            await server.say_in_group("who is for lunch?", mention=False)
            await server.say_in_group("hello, bot", mention=True)
            while not server.shown:
                await server.change()
        assert server.shown == [(GROUP, "hello, bot")]

    asyncio.run(scenario())


def test_an_event_is_acknowledged_whatever_becomes_of_it(
    tmp_path: Path, server: FakeServer
) -> None:
    async def scenario() -> None:
        async with gateway(tmp_path, hermes_line, ScriptedAgent(), config=config(tmp_path)):
            await server.say("let me in", stranger=True)
            await server.say("hello")
            await server.offer_again()
            while server.acknowledged != ["e1", "e2", "e2"]:
                await server.change()

    asyncio.run(scenario())
