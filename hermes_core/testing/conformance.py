"""What every adapter must do, as checks that any platform's plugin proves itself with.

An author gives a `Network`: the far side of the adapter, a real server or a fake that speaks the
real protocol. Each check runs a whole gateway with the plugin on it::

    @pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda c: c.__name__)
    def test_conformance(check, tmp_path):
        asyncio.run(check(Subject(hermes_line, config, MyNetwork, tmp_path, max_length=2000)))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hermes_core.agents import Turn
from hermes_core.gateway import Gateway
from hermes_core.messages import AgentEvent, Text
from hermes_core.testing.agent import ScriptedAgent
from hermes_core.testing.host import gateway

PATIENCE = 20.0
"""Seconds until an answer that does not come has failed to come."""
HOSTILE = (
    "snake_case and *odd [brackets](without end",
    "a < b && c > d; <b>not bold</b> &amp;",
    "\u202eturned around\u202c, \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467, e\u0301",
    "`one` ``two`` ```three",
)


class Network(Protocol):
    """The far side: one direct chat between the account and a person who may speak."""

    async def say(self, text: str, *, stranger: bool = False) -> None:
        """The person, or somebody else in a chat of their own, says something."""

    async def screen(self) -> list[str]:
        """What the account's messages in the person's chat read now, oldest first, as plain
        text."""

    async def change(self) -> None:
        """Wait until something changes on the screen, or for a short time."""

    async def offer_again(self) -> None:
        """Deliver the latest event once more, as after a lost acknowledgement."""

    async def cut(self) -> None:
        """End every connection. What is said meanwhile is kept, as the real network keeps it."""


@dataclass(frozen=True)
class Subject:
    """What is checked. `make` gives a context of a new network, on which `config` lets the plugin
    work; `max_length` is the platform's own."""

    plugin: object
    config: Callable[[Network], str]
    make: Callable[[], AbstractAsyncContextManager[Network]]
    home: Path
    max_length: int

    @asynccontextmanager
    async def running(self, network: Network, agent: ScriptedAgent) -> AsyncIterator[Gateway]:
        config = f'[agent]\nuse = "scripted"\n{self.config(network)}'
        async with gateway(self.home, self.plugin, agent, config=config) as running:
            yield running


Check = Callable[[Subject], Coroutine[None, None, None]]


async def is_answered_in_order(subject: Subject) -> None:
    """Messages are answered, each once, in the order in which they were said."""
    wanted = [f"message {number}" for number in range(10)]
    async with subject.make() as network, subject.running(network, ScriptedAgent()):
        for text in wanted:
            await network.say(text)
        await _screen_reads(network, wanted)


async def keeps_text_as_it_is(subject: Subject) -> None:
    """Text that looks like markup, and text that is hard to count, arrives with nothing lost."""
    async with subject.make() as network, subject.running(network, ScriptedAgent(_say_hostile)):
        for number in range(len(HOSTILE)):
            await network.say(str(number))
        await _wait(network, lambda seen: len(seen) == len(HOSTILE))
        for text, seen in zip(HOSTILE, await network.screen(), strict=True):
            assert _letters(seen) == _letters(text), f"{text!r} became {seen!r}"


async def sends_a_long_answer_whole(subject: Subject) -> None:
    """An answer of several messages arrives whole and in order."""
    words = [f"word{number}" for number in range(subject.max_length * 3 // 8)]

    async def long(_: Turn) -> AsyncIterator[AgentEvent]:
        yield Text(" ".join(words))

    async with subject.make() as network, subject.running(network, ScriptedAgent(long)):
        await network.say("go on")
        await _wait(network, lambda seen: " ".join(seen).split() == words)
        assert len(await network.screen()) > 1, "a long answer was one message"


async def ends_a_streamed_answer_complete(subject: Subject) -> None:
    """However the answer is shown while it is written, in the end it stands there once, whole."""
    pieces = [f"piece{number} " for number in range(40)]

    async def stream(_: Turn) -> AsyncIterator[AgentEvent]:
        for piece in pieces:
            yield Text(piece)
            await asyncio.sleep(0)

    async with subject.make() as network, subject.running(network, ScriptedAgent(stream)):
        await network.say("stream")
        await _screen_reads(network, ["".join(pieces).strip()])


async def handles_an_event_once(subject: Subject) -> None:
    """An event that the network offers again is answered once."""
    agent = ScriptedAgent()
    async with subject.make() as network, subject.running(network, agent):
        await network.say("once")
        await _screen_reads(network, ["once"])
        await network.offer_again()
        await network.say("twice")
        await _screen_reads(network, ["once", "twice"])
        assert [run.texts for run in agent.runs] == [("once",), ("twice",)]


async def is_silent_to_strangers(subject: Subject) -> None:
    """Somebody who is not on the list gets no turn."""
    agent = ScriptedAgent()
    async with subject.make() as network, subject.running(network, agent):
        await network.say("let me in", stranger=True)
        await network.say("hello")
        await _screen_reads(network, ["hello"])
        assert [run.texts for run in agent.runs] == [("hello",)]


async def comes_back_after_a_lost_connection(subject: Subject) -> None:
    """What was said while the connection was gone is answered, once, when it is back."""
    async with subject.make() as network, subject.running(network, ScriptedAgent()):
        await network.say("before")
        await _screen_reads(network, ["before"])
        await network.cut()
        await network.say("meanwhile")
        await _screen_reads(network, ["before", "meanwhile"])


async def loses_nothing_between_two_lives(subject: Subject) -> None:
    """What was said while the gateway was down is answered, and nothing is answered again."""
    async with subject.make() as network:
        async with subject.running(network, ScriptedAgent()):
            await network.say("first life")
            await _screen_reads(network, ["first life"])
        await network.say("in between")
        async with subject.running(network, ScriptedAgent()):
            await network.say("second life")
            await _screen_reads(network, ["first life", "in between", "second life"])


async def leaves_nothing_behind(subject: Subject) -> None:
    """After `disconnect` no task of the adapter is left."""
    async with subject.make() as network:
        before = asyncio.all_tasks()
        async with subject.running(network, ScriptedAgent()):
            await network.say("hello")
            await _screen_reads(network, ["hello"])
        left = [task for task in asyncio.all_tasks() - before if not _of_server(task)]
        assert left == [], f"left behind: {left}"


CHECKS: tuple[Check, ...] = (
    is_answered_in_order,
    keeps_text_as_it_is,
    sends_a_long_answer_whole,
    ends_a_streamed_answer_complete,
    handles_an_event_once,
    is_silent_to_strangers,
    comes_back_after_a_lost_connection,
    loses_nothing_between_two_lives,
    leaves_nothing_behind,
)


async def _say_hostile(turn: Turn) -> AsyncIterator[AgentEvent]:
    yield Text(HOSTILE[int(turn.messages[0].text)])


async def _screen_reads(network: Network, wanted: list[str]) -> None:
    await _wait(network, lambda seen: [text.strip() for text in seen] == wanted)


async def _wait(network: Network, done: Callable[[list[str]], bool]) -> None:
    """Wait until the screen is as it should be. Raises AssertionError with what it is instead."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not done(await network.screen()):
                await network.change()
    except TimeoutError:
        seen = await network.screen()
        raise AssertionError(f"after {PATIENCE:g} s the screen reads {seen!r:.1000}") from None


def _letters(text: str) -> str:
    """A text without what markup may take for itself."""
    return "".join(ch for ch in text if ch.isalnum())


def _of_server(task: asyncio.Task[object]) -> bool:
    """Tasks of the test's own server are not the adapter's. A network names them `server ...`."""
    return task.get_name().startswith("server")
