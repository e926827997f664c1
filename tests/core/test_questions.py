"""Questions of a running turn, and who may answer them."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from hermes_core import AgentEvent, Button, RateLimited, Text, Turn
from hermes_core.gateway import Gateway
from hermes_core.messages import Accepted, Denied, Refused
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, Sent, gateway
from tests.core.support import held_writes, store_of, until
from tests.store.support import one_batch

CHOICES = ["Allow", "Deny"]
ADMIN = '[platforms.scripted]\nallowed_users = ["u1", "u2"]\nadmins = ["boss"]\n'
Work = Callable[[Gateway, ScriptedPlatform], Awaitable[None]]


async def asks(turn: Turn) -> AsyncIterator[AgentEvent]:
    choice = await turn.ask("Delete it?", CHOICES)
    yield Text(f"chosen: {choice}")


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose time a test can let pass."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped


def run(
    path: Path,
    work: Work,
    *,
    platform: ScriptedPlatform | None = None,
    agent: Callable[[Turn], AsyncIterator[AgentEvent]] = asks,
    config: str = "",
) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            network = platform or ScriptedPlatform(buttons=True, edit=True)
            async with gateway(path, network, ScriptedAgent(agent), config=config) as running:
                await work(running, network)

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(main())


async def asked(platform: ScriptedPlatform) -> tuple[Sent, tuple[Button, ...]]:
    """The question that people see next, and its buttons."""
    sent = await platform.next_sent()
    assert sent.message.kind == "question"
    return sent, sent.message.buttons


async def ticks() -> None:
    """Let everything come as far as it can."""
    for _ in range(100):
        await asyncio.sleep(0)


def test_a_button_answers_the_question_and_goes(tmp_path: Path) -> None:
    async def work(_: Gateway, platform: ScriptedPlatform) -> None:
        await platform.say("hello")
        sent, buttons = await asked(platform)
        assert (sent.message.text, [button.label for button in buttons]) == ("Delete it?", CHOICES)
        assert all(len(button.value.encode()) <= 64 for button in buttons)
        await platform.press(buttons[1].value, message_id=sent.message_id)
        await until(lambda: {"Delete it?\n→ Deny", "chosen: Deny"} == set(platform.texts()))
        shown = {each.message_id: each.message for each in platform.sent}
        assert shown[sent.message_id].text == "Delete it?\n→ Deny"
        assert shown[sent.message_id].buttons == ()

    run(tmp_path, work)


@pytest.mark.parametrize("buttons", [True, False])
def test_a_command_answers_it_too(tmp_path: Path, buttons: bool) -> None:
    async def work(_: Gateway, platform: ScriptedPlatform) -> None:
        await platform.say("hello")
        sent, _buttons = await asked(platform)
        listed = "Delete it?\n1. Allow\n2. Deny\nAnswer with /choose and a number."
        assert sent.message.text == ("Delete it?" if buttons else listed)
        for wrong in ("/choose", "/choose 0", "/choose 3", "/choose ²", f"/choose {'1' * 5000}"):
            await platform.say(wrong)
            assert await platform.next_text() == "Use /choose with one of these numbers: 1, 2."
        await platform.say("/choose 1")
        assert {await platform.next_text() for _ in range(2)} == {"→ Allow", "chosen: Allow"}
        await platform.say("/choose 1")
        assert await platform.next_text() == "There is no question for you to answer."
        await platform.say("again")
        await asked(platform)
        await platform.say("/choose 1")
        assert await platform.next_text() == "Use /choose with one of these numbers: 3, 4."
        await platform.say("/choose 4")
        assert {await platform.next_text() for _ in range(2)} == {"→ Deny", "chosen: Deny"}

    run(tmp_path, work, platform=ScriptedPlatform(buttons=buttons))


@pytest.mark.case("AZ-08")
def test_only_its_person_or_an_admin_decides_there_and_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(running: Gateway, platform: ScriptedPlatform) -> None:
        await platform.say("hello", user="u1", chat="g", kind="group")
        sent, (allow, deny) = await asked(platform)
        press = partial(platform.press, message_id=sent.message_id)
        there = partial(press, chat="g")
        assert isinstance(await there(allow.value, user="u9"), Denied)
        assert isinstance(await there(allow.value, user="u2"), Accepted)
        assert isinstance(await press(allow.value, user="u1", chat="other"), Accepted)
        await there("q_0123456789", user="u1")
        assert len(platform.sent) == 1
        async with asyncio.TaskGroup() as both, one_batch(running.profiles["default"].store):
            both.create_task(there(deny.value, user="boss"))
            both.create_task(there(allow.value, user="u1"))
            await ticks()
        await until(lambda: "chosen: Deny" in platform.texts())
        await there(allow.value, user="u1")
        await platform.say("/choose 1", user="u1", chat="g", kind="group")
        await until(lambda: "There is no question for you to answer." in platform.texts())
        assert platform.texts()[0] == "Delete it?\n→ Deny"

    platform = ScriptedPlatform(buttons=True, edit=True, allow_all=False)
    run(tmp_path, work, platform=platform, config=ADMIN)
    assert [record for record in caplog.records if record.levelno > logging.WARNING] == []


@pytest.mark.case("AZ-08")
def test_a_question_that_nobody_answers_in_time_is_over(tmp_path: Path) -> None:
    async def impatient(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text(f"chosen: {await turn.ask('Delete it?', CHOICES, limit=0.05)}")

    async def work(_: Gateway, platform: ScriptedPlatform) -> None:
        await platform.say("hello")
        sent, buttons = await asked(platform)
        assert await platform.next_text() == "chosen: None"
        await platform.press(buttons[0].value, message_id=sent.message_id)
        await platform.say("again")
        await asked(platform)
        assert "→" not in "".join(platform.texts())

    run(tmp_path, work, platform=ScriptedPlatform(buttons=True), agent=impatient)


def test_a_question_ends_with_its_turn(tmp_path: Path) -> None:
    after: list[str | None] = []

    async def stubborn(turn: Turn) -> AsyncIterator[AgentEvent]:
        try:
            await turn.ask("Delete it?", CHOICES)
        except asyncio.CancelledError:
            after.append(await turn.ask("Really?", CHOICES))
            raise
        yield Text("never")

    async def work(_: Gateway, platform: ScriptedPlatform) -> None:
        await platform.say("hello")
        sent, buttons = await asked(platform)
        await platform.say("/stop")
        assert await platform.next_text() == "Stopped before it did anything: send it again if" + (
            " you still want it."
        )
        await platform.press(buttons[0].value, message_id=sent.message_id)
        await platform.say("/choose 1")
        assert await platform.next_text() == "There is no question for you to answer."
        assert after == [None]

    run(tmp_path, work, agent=stubborn)


@pytest.mark.parametrize(
    ("question", "choices"),
    [
        ("", CHOICES),
        ("  ", CHOICES),
        ("Q", []),
        ("Q", ["a", "a"]),
        ("Q", [""]),
        ("Q", ["a" * 41]),
        ("Q", ["a\nb"]),
        ("Q", [str(number) for number in range(9)]),
    ],
)
def test_what_cannot_be_asked_is_an_error_of_the_agent(
    tmp_path: Path, question: str, choices: list[str]
) -> None:
    errors: list[str] = []

    async def wrong(turn: Turn) -> AsyncIterator[AgentEvent]:
        try:
            await turn.ask(question, choices)
        except ValueError as error:
            errors.append(str(error))
        yield Text("done")

    async def work(_: Gateway, platform: ScriptedPlatform) -> None:
        await platform.say("hello")
        assert await platform.next_text() == "done"
        assert len(errors) == 1

    run(tmp_path, work, agent=wrong)


def test_a_question_that_comes_too_late_is_not_sent(tmp_path: Path) -> None:
    async def impatient(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text(f"chosen: {await turn.ask('Delete it?', CHOICES, limit=0.05)}")

    async def work(_: Gateway, platform: ScriptedPlatform) -> None:
        platform.results.append(RateLimited(0.3))
        await platform.say("hello")
        assert await platform.next_text() == "chosen: None"

    run(tmp_path, work, agent=impatient)


@pytest.mark.parametrize("by_button", [True, False])
def test_a_question_follows_its_chat_to_another_id(tmp_path: Path, by_button: bool) -> None:
    async def work(_: Gateway, platform: ScriptedPlatform) -> None:
        await platform.say("hello", chat="g", kind="group")
        sent, buttons = await asked(platform)
        await platform.migrate("g", "new")
        if by_button:
            await platform.press(
                buttons[1].value, message_id=sent.message_id, chat="new", kind="group"
            )
        else:
            await platform.say("/choose 2", chat="new", kind="group")
        await until(lambda: "chosen: Deny" in platform.texts("new"))

    run(tmp_path, work)


def test_who_is_told_that_a_choice_was_made_has_made_it(tmp_path: Path) -> None:
    """The loop hears of the press and of the end of the time at the same moment."""

    async def impatient(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text(f"chosen: {await turn.ask('Delete it?', CHOICES, limit=5.0)}")

    async def work(running: Gateway, platform: ScriptedPlatform) -> None:
        loop, store = asyncio.get_running_loop(), store_of(running)
        assert isinstance(loop, SkippingLoop)
        await platform.say("hello")
        sent, buttons = await asked(platform)
        taken, committed = threading.Event(), threading.Event()
        async with held_writes(running) as release:
            press = platform.press(buttons[0].value, message_id=sent.message_id)
            pressed = asyncio.ensure_future(press)
            await ticks()
            store.write(lambda _: taken.set())  # in one transaction with the press
            release()
            taken.wait()
            store.write(lambda _: committed.set())  # in the next one
            committed.wait()
            loop.skipped += 6.0
        await pressed
        await until(lambda: len(platform.texts()) == 2)
        assert platform.texts() == ["Delete it?\n→ Allow", "chosen: Allow"]

    run(tmp_path, work, agent=impatient)


def test_a_long_question_is_not_shown_again_with_its_answer(tmp_path: Path) -> None:
    question = " ".join(f"word{number}" for number in range(60))

    async def long(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text(f"chosen: {await turn.ask(question, CHOICES)}")

    async def work(_: Gateway, platform: ScriptedPlatform) -> None:
        await platform.say("hello")
        sent, buttons = await asked(platform)
        while not buttons:
            sent, buttons = await asked(platform)
        await platform.press(buttons[1].value, message_id=sent.message_id)
        await until(lambda: "chosen: Deny" in platform.texts())
        await until(lambda: any("→ Deny" in text for text in platform.texts()))
        shown = " ".join(platform.texts()).split()
        assert [word for word in shown if word.startswith("word")] == question.split()

    platform = ScriptedPlatform(buttons=True, edit=True, max_length=200)
    run(tmp_path, work, platform=platform, agent=long)


@pytest.mark.parametrize("by_button", [True, False])
def test_a_question_is_answered_although_no_more_messages_can_wait(
    tmp_path: Path, by_button: bool
) -> None:
    async def once(turn: Turn) -> AsyncIterator[AgentEvent]:
        asked = turn.messages[0].text == "hello"
        choice = await turn.ask("Delete it?", CHOICES) if asked else "nothing"
        yield Text(f"chosen: {choice}")

    async def work(_: Gateway, platform: ScriptedPlatform) -> None:
        await platform.say("hello")
        sent, buttons = await asked(platform)
        assert isinstance(await platform.say("waits"), Accepted)
        assert isinstance(await platform.say("does not"), Refused)
        if by_button:
            await platform.press(buttons[1].value, message_id=sent.message_id)
        else:
            await platform.say("/choose 2")
        await until(lambda: "chosen: Deny" in platform.texts())

    run(tmp_path, work, agent=once, config="[gateway]\nmax_waiting = 1\n")
