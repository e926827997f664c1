"""What every adapter must do, as checks that any platform's plugin proves itself with.

An author gives a `Network`: the far side of the adapter, a real server or a fake that speaks the
real protocol. Each check runs a whole gateway with the platform on it::

    @pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check, tmp_path):
        asyncio.run(check(Subject(hermes_line.platforms()[0], config, MyNetwork, tmp_path)))

Limits of rate are lifted and edits follow each other at once, so that the checks are fast.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from contextvars import Context, ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from hermes_core.agents import Turn
from hermes_core.gateway import Gateway
from hermes_core.hookspecs import hookimpl
from hermes_core.messages import AgentEvent, Text
from hermes_core.platforms import Platform
from hermes_core.testing.agent import ScriptedAgent
from hermes_core.testing.host import gateway

PATIENCE = 20.0
"""Seconds until an answer that does not come has failed to come."""
EDIT_INTERVAL = 0.01
"""Seconds between two edits of a preview, whatever the platform asks for."""
HOSTILE = (
    "snake_case and *odd [brackets](without end",
    "a < b && c > d; <b>not bold</b> & more",
    "https://example.org/a_b_c?d=e&f=1#g_h",
    "\u202eturned around\u202c, \U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467, e\u0301",
    "one.\n\ntwo!\nthree (3) {4} = 5 + 6 - 7 | 8",
    "`one` ``two`` ```three",
)
MARKUP = "`*_~\\"
"""What Markdown may take for itself out of a text that does not mean it."""


class Network(Protocol):
    """The far side: the account, and two people who each have a direct chat with it.

    One of them, the person, is on the account's list; the stranger is not.
    """

    async def say(self, text: str, *, stranger: bool = False) -> None:
        """The person, or the stranger, says something. Returns once the network has it; what the
        account cannot take now is kept for it, as the real network keeps it."""

    async def screen(self, *, stranger: bool = False) -> list[str]:
        """What the account's messages read now in the person's or the stranger's chat, oldest
        first: as a person sees them, edits applied, formatting as plain text."""

    async def change(self) -> None:
        """Wait until something changes on the screen, or for a short time."""

    async def offer_again(self) -> None:
        """Deliver the person's latest message once more, with the same id, as after a lost
        acknowledgement: at once to an account that is connected, else when it connects."""

    async def cut(self) -> None:
        """End every connection without a goodbye. New ones are welcome."""


@dataclass(frozen=True)
class Subject:
    """What is checked.

    `config` gives the section of the settings file that lets the platform work on a network, with
    the person's id in `allowed_users`. `make` gives a context of a new network. `home` is an empty
    directory.
    """

    platform: Platform
    config: Callable[[Network], str]
    make: Callable[[], AbstractAsyncContextManager[Network]]
    home: Path

    @asynccontextmanager
    async def running(self, network: Network, agent: ScriptedAgent) -> AsyncIterator[Gateway]:
        """A gateway on the network. Tasks that come from it, and from nobody else, are marked."""
        config = f'[agent]\nuse = "scripted"\n{self.config(network)}'
        async with AsyncExitStack() as stack:
            mark = _OF_GATEWAY.set(True)
            running = await stack.enter_async_context(
                gateway(self.home, _Hurried(self.platform), agent, config=config)
            )
            _OF_GATEWAY.reset(mark)
            yield running


class _Hurried:
    """A plugin with one platform, which never has to wait."""

    def __init__(self, platform: Platform) -> None:
        self._platform = replace(
            platform,
            rate=None,
            chat_rate=None,
            edit_interval=EDIT_INTERVAL,
            group_edit_interval=None,
        )

    @hookimpl
    def platforms(self) -> list[Platform]:
        return [self._platform]


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
    wanted = [_plain(text) for text in HOSTILE]
    async with subject.make() as network, subject.running(network, ScriptedAgent(_say_hostile)):
        for number in range(len(HOSTILE)):
            await network.say(str(number))
        await _wait(network, lambda seen: [_plain(text) for text in seen] == wanted, str(wanted))


async def sends_a_long_answer_whole(subject: Subject) -> None:
    """An answer of several messages arrives whole and in order."""
    words = [f"word{number}" for number in range(subject.platform.max_length * 3 // 8)]

    async def long(_: Turn) -> AsyncIterator[AgentEvent]:
        yield Text(" ".join(words))

    async with subject.make() as network, subject.running(network, ScriptedAgent(long)):
        await network.say("go on")
        await _wait(network, lambda seen: " ".join(seen).split() == words, f"{len(words)} words")
        assert len(await network.screen()) > 1, "a long answer was one message"


async def ends_a_streamed_answer_complete(subject: Subject) -> None:
    """An answer is shown while it is written, if the platform can edit, and in the end it stands
    there once, whole."""
    pieces = [f"piece{number} " for number in range(40)]
    shown = asyncio.Event()

    async def stream(_: Turn) -> AsyncIterator[AgentEvent]:
        yield Text(pieces[0])
        await shown.wait()
        for piece in pieces[1:]:
            yield Text(piece)
            await asyncio.sleep(EDIT_INTERVAL / 10)

    async with subject.make() as network, subject.running(network, ScriptedAgent(stream)):
        await network.say("stream")
        if subject.platform.edit:
            await _wait(network, bool, "the beginning of an answer, by a platform that can edit")
        shown.set()
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
        _same([run.texts for run in agent.runs], [("once",), ("twice",)], "turns")


async def is_silent_to_strangers(subject: Subject) -> None:
    """Somebody who is not on the list gets no turn and no answer."""
    agent = ScriptedAgent()
    async with subject.make() as network, subject.running(network, agent):
        await network.say("let me in", stranger=True)
        await network.say("hello")
        await _screen_reads(network, ["hello"])
        _same([run.texts for run in agent.runs], [("hello",)], "turns")
        _same(await network.screen(stranger=True), [], "messages to the stranger")


async def comes_back_after_a_lost_connection(subject: Subject) -> None:
    """What was said while the connection was gone is answered, once, when it is back."""
    async with subject.make() as network, subject.running(network, ScriptedAgent()):
        await network.say("before")
        await _screen_reads(network, ["before"])
        await network.cut()
        await network.say("meanwhile")
        await _screen_reads(network, ["before", "meanwhile"])


async def loses_nothing_between_two_lives(subject: Subject) -> None:
    """What was said while the gateway was down is answered, and nothing is answered again, though
    the network may not have learnt that it was taken."""
    async with subject.make() as network:
        async with subject.running(network, ScriptedAgent()):
            await network.say("first life")
            await _screen_reads(network, ["first life"])
        await network.offer_again()
        await network.say("in between")
        async with subject.running(network, ScriptedAgent()):
            await network.say("second life")
            await _screen_reads(network, ["first life", "in between", "second life"])


async def leaves_nothing_behind(subject: Subject) -> None:
    """After `disconnect` no task of the adapter is left, nor one of a connection that was lost."""
    async with subject.make() as network:
        with _marked_tasks() as tasks:
            async with subject.running(network, ScriptedAgent()):
                await network.say("hello")
                await _screen_reads(network, ["hello"])
                await network.cut()
                await network.say("again")
                await _screen_reads(network, ["hello", "again"])
        _same([task for task in tasks if not task.done()], [], "tasks that are left")


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
    await _wait(network, lambda seen: [text.strip() for text in seen] == wanted, str(wanted))


async def _wait(network: Network, done: Callable[[list[str]], bool], wanted: str) -> None:
    """Wait until the screen is as it should be. Raises AssertionError with what it is instead."""
    try:
        async with asyncio.timeout(PATIENCE):
            while not done(await network.screen()):
                await network.change()
    except TimeoutError:
        seen = await network.screen()
        raise AssertionError(
            f"after {PATIENCE:g} s the screen reads {seen!r:.1000}, not {wanted:.1000}"
        ) from None


def _same(seen: Sequence[object], wanted: Sequence[object], what: str) -> None:
    if seen != wanted:
        raise AssertionError(f"{what}: {seen!r:.1000}, not {wanted!r:.1000}")


def _plain(text: str) -> str:
    """A text without markup, blanks and the choice between two spellings of one character."""
    bare = text.translate(dict.fromkeys(map(ord, MARKUP)))
    return "".join(unicodedata.normalize("NFC", bare).split())


_OF_GATEWAY: ContextVar[bool] = ContextVar("of_gateway", default=False)
"""Set where the gateway is started, and so in all that comes from there: a task inherits the
context of whoever made it. The network may well run in the same loop."""


@contextmanager
def _marked_tasks() -> Iterator[list[asyncio.Task[Any]]]:
    """All tasks that the gateway makes."""
    tasks: list[asyncio.Task[Any]] = []
    loop = asyncio.get_running_loop()

    def make(
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **more: Any,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=loop, **more)
        context: Context | None = more.get("context")
        if _OF_GATEWAY.get() if context is None else context.get(_OF_GATEWAY, False):
            tasks.append(task)
        return task

    before = loop.get_task_factory()
    loop.set_task_factory(make)
    try:
        yield tasks
    finally:
        loop.set_task_factory(before)
