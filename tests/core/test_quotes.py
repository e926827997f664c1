"""What a message replies to, for an agent that was not told of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from hermes_core import AgentEvent, Message, Sender, Text, Turn
from hermes_core.messages import Denied, Received
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from tests.core.support import until

Work = Callable[[ScriptedPlatform], Awaitable[None]]


def run(path: Path, known: Mapping[str, str] | None, work: Work) -> list[str]:
    """What the agent was given as quotes, in order."""
    seen: list[str] = []

    async def note(turn: Turn) -> AsyncIterator[AgentEvent]:
        seen.extend(message.quoted for message in turn.messages)
        yield Text("noted")

    async def main() -> None:
        async with asyncio.timeout(20):
            platform = ScriptedPlatform(quoted=known, allow_all=False)
            config = '[platforms.scripted]\nallowed_users = ["u1", "u2"]\n'
            async with gateway(path, platform, ScriptedAgent(note), config=config):
                await work(platform)

    asyncio.run(main())
    return seen


async def reply(
    platform: ScriptedPlatform,
    event_id: str,
    to: str | None,
    *,
    quoted: str = "",
    user: str = "u1",
    chat: str = "",
) -> Received:
    """Let a person reply to a message, and wait until that is answered."""
    event = Message(
        address=platform.address(chat, kind="group") if chat else platform.address(),
        sender=Sender(id=user),
        event_id=event_id,
        text=event_id,
        reply_to=to,
        quoted=quoted,
        mentions_me=True,
    )
    before = len(platform.texts())
    outcome = await platform.inject(event)
    if not isinstance(outcome, Denied):
        await until(lambda: len(platform.texts()) > before)
    return outcome


def test_an_agent_is_given_the_text_that_a_message_replies_to(tmp_path: Path) -> None:
    async def work(platform: ScriptedPlatform) -> None:
        await reply(platform, "e1", "m1")
        assert platform.quotes_asked == ["m1"]

    assert run(tmp_path, {"m1": "an\0 earlier word"}, work) == [
        "an\N{REPLACEMENT CHARACTER} earlier word"
    ]


def test_what_it_was_told_already_is_not_looked_up(tmp_path: Path) -> None:
    async def work(platform: ScriptedPlatform) -> None:
        await reply(platform, "e1", None)
        await reply(platform, "e2", "e1")
        await reply(platform, "e3", "m1", quoted="the network's own")
        assert platform.quotes_asked == []

    assert run(tmp_path, {"e1": "again"}, work) == ["", "", "the network's own"]


def test_nothing_is_looked_up_for_a_stranger(tmp_path: Path) -> None:
    async def work(platform: ScriptedPlatform) -> None:
        assert isinstance(await reply(platform, "e1", "m1", user="u9"), Denied)
        await reply(platform, "e2", None)
        assert platform.quotes_asked == []

    assert run(tmp_path, {"m1": "secret"}, work) == [""]


@pytest.mark.parametrize("known", [{}, None], ids=["it is gone", "the platform cannot"])
def test_a_quote_that_cannot_be_had_costs_nothing(
    tmp_path: Path, known: Mapping[str, str] | None
) -> None:
    async def work(platform: ScriptedPlatform) -> None:
        await reply(platform, "e1", "m1")

    assert run(tmp_path, known, work) == [""]


def test_a_quote_is_not_longer_than_an_agent_has_use_for(tmp_path: Path) -> None:
    async def work(platform: ScriptedPlatform) -> None:
        await reply(platform, "e1", "m1")

    (quoted,) = run(tmp_path, {"m1": "x" * 100_000}, work)
    assert len(quoted) == 4000


def test_what_another_session_was_told_is_looked_up(tmp_path: Path) -> None:
    """In a group everybody has a session of their own."""

    async def work(platform: ScriptedPlatform) -> None:
        await reply(platform, "e1", None, chat="g")
        await reply(platform, "e2", "e1", user="u2", chat="g")
        await reply(platform, "e3", "e1", chat="g")
        assert platform.quotes_asked == ["e1"]

    assert run(tmp_path, {"e1": "what u1 said"}, work) == ["", "what u1 said", ""]


def test_what_was_told_before_a_session_began_anew_is_looked_up(tmp_path: Path) -> None:
    async def work(platform: ScriptedPlatform) -> None:
        await reply(platform, "e1", None)
        await platform.say("/new", event_id="new")
        await until(lambda: len(platform.texts()) == 2)
        await reply(platform, "e2", "e1")

    assert run(tmp_path, {"e1": "before"}, work) == ["", "before"]
