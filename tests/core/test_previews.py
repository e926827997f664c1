"""What people see of an answer while it is written, and that it ends whole, in one message."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from hermes_core import (
    AgentEvent,
    ChatKind,
    Final,
    Outbound,
    OutcomeUnknown,
    RateLimited,
    Receipt,
    SendFailed,
    SendRejected,
    Text,
    Turn,
    Unreachable,
)
from hermes_core.testing import (
    OK,
    Hang,
    Result,
    ScriptedAgent,
    ScriptedPlatform,
    StoreThenRaise,
    gateway,
)
from tests.core.support import (
    HASTY,
    SHORT,
    UNKNOWN,
    rows,
    run,
    three_parts,
    until,
)


@pytest.mark.case("DL-13")
@pytest.mark.parametrize("limited", [False, True], ids=["in time", "while limited"])
def test_a_streamed_answer_ends_complete(tmp_path: Path, limited: bool) -> None:
    pieces = [f"piece {number}\n" for number in range(40)]

    async def pausing(turn: Turn) -> AsyncIterator[AgentEvent]:
        for number, piece in enumerate(pieces):
            if number < 37:
                await asyncio.sleep(0.2)
            yield Text(piece)

    async def scenario() -> None:
        platform = ScriptedPlatform(edit=True, edit_interval=1.0)
        if limited:
            platform.results.extend([OK, RateLimited(2), OK, RateLimited(3)])
        async with gateway(tmp_path, platform, ScriptedAgent(pausing)):
            await platform.say("go")
            assert await platform.next_text() == "".join(pieces)
        assert platform.texts() == ["".join(pieces)]
        assert len({sent.message_id for sent in platform.sent}) == 1
        shown = [sent.message.text for sent in platform.sent]
        assert all("".join(pieces).startswith(text) for text in shown)
        assert 3 < len(shown) < 20

    run(scenario(), speed=HASTY)


@pytest.mark.case("DL-06")
def test_what_a_pause_kept_from_being_shown_is_shown_after_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async def speak(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text("one ")
            await until(lambda: len(platform.sent) == 1)
            platform.results.append(RateLimited(2))
            yield Text("two ")
            await until(lambda: platform.sent[-1].message.text.strip() == "one two")
            yield Text("three")

        platform = ScriptedPlatform(edit=True, edit_interval=1.0)
        async with gateway(tmp_path, platform, ScriptedAgent(speak)):
            await platform.say("go")
            assert await platform.next_text() == "one two three"
        assert [sent.message.kind for sent in platform.sent[:2]] == ["preview", "preview"]

    run(scenario(), speed=HASTY)


@pytest.mark.parametrize("kind", ["dm", "group"])
def test_a_preview_is_edited_less_often_where_many_read_it(tmp_path: Path, kind: ChatKind) -> None:
    async def speak(turn: Turn) -> AsyncIterator[AgentEvent]:
        for number in range(5):
            await asyncio.sleep(3)
            yield Text(f"{number} ")
        await asyncio.sleep(3)

    async def scenario() -> None:
        platform = ScriptedPlatform(edit=True, edit_interval=1.0, group_edit_interval=3600.0)
        async with gateway(tmp_path, platform, ScriptedAgent(speak)):
            await platform.say("go", kind=kind)
            assert await platform.next_text() == "0 1 2 3 4 "
        edits = [sent for sent in platform.sent if sent.call == "edit"]
        assert (len(edits) == 1) is (kind == "group")  # the final text

    run(scenario(), speed=HASTY)


def test_a_streamed_answer_of_many_parts_continues_its_preview(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(**SHORT, edit=True), ScriptedAgent(three_parts)
        async with gateway(tmp_path, platform, agent):
            await platform.say("go")
            await until(lambda: len(platform.texts()) == 3)
        assert "".join(platform.texts()) == "111111 222222 333333"
        assert len({sent.message_id for sent in platform.sent}) == 3

    run(scenario())


def test_a_preview_costs_no_more_when_the_answer_grows(tmp_path: Path) -> None:
    measured = 0

    def length(text: str) -> int:
        nonlocal measured
        measured += len(text)
        return len(text)

    def has_grown(before: int) -> bool:
        return len(platform.sent) > before

    async def grows(turn: Turn) -> AsyncIterator[AgentEvent]:
        for number in range(20):
            shown = len(platform.sent)
            yield Final(f"{number} " + "word " * 20_000)
            await until(partial(has_grown, shown))
        yield Final("short")

    async def scenario() -> None:
        async with gateway(tmp_path, platform, ScriptedAgent(grows)):
            await platform.say("go")
            assert await platform.next_text() == "short"

    platform = ScriptedPlatform(edit=True, max_length=200, length=length)
    run(scenario())
    assert len(platform.sent) >= 21
    assert measured < 21 * 20 * 200


def test_what_an_agent_takes_back_is_not_on_the_screen_at_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async def changes(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text("a first try")
            await until(lambda: bool(platform.sent))
            yield Final("the answer")

        platform = ScriptedPlatform(edit=True)
        async with gateway(tmp_path, platform, ScriptedAgent(changes)):
            await platform.say("go")
            await until(lambda: platform.texts() == ["the answer"])
        assert len({sent.message_id for sent in platform.sent}) == 1

    run(scenario())


@pytest.mark.parametrize(
    "result",
    [Hang(), SendFailed("scripted"), ValueError("scripted"), SendRejected("scripted")],
    ids=["hangs", "fails", "breaks", "is refused"],
)
def test_a_preview_that_fails_costs_nothing_but_itself(tmp_path: Path, result: Result) -> None:
    async def scenario() -> None:
        async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text("one ")
            await until(lambda: bool(platform.attempts))
            yield Text("two")

        platform = ScriptedPlatform(edit=True)
        platform.results.append(result)
        async with gateway(tmp_path, platform, ScriptedAgent(slowly)):
            await platform.say("go")
            assert await platform.next_text() == "one two"
        assert platform.texts() == ["one two"]

    run(scenario(), speed=HASTY)


@pytest.mark.parametrize("result", UNKNOWN, ids=["lost", "arrived", "broke", "unspeakable", "hung"])
@pytest.mark.parametrize("reconciles", [True, False], ids=["can tell", "cannot tell"])
def test_a_preview_that_may_have_arrived_is_completed_and_never_shown_twice(
    tmp_path: Path, result: Result, reconciles: bool
) -> None:
    async def scenario() -> None:
        async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text("one ")
            await until(lambda: bool(platform.attempts))
            yield Text("two ")
            await asyncio.sleep(5)  # of a hasty clock: time for more previews
            yield Text("three")

        platform = ScriptedPlatform(edit=True, edit_interval=1, reconciles=reconciles)
        platform.results.append(result)
        async with gateway(tmp_path, platform, ScriptedAgent(slowly)):
            await platform.say("go")
            await until(lambda: "one two three" in platform.texts())
        shown = {sent.message_id: sent.message.text for sent in platform.sent}
        arrived = isinstance(result, StoreThenRaise)
        stray = ["one "] if arrived and not reconciles else []
        assert list(shown.values()) == [*stray, "one two three"]

    run(scenario(), speed=HASTY)


@pytest.mark.parametrize("error", [RateLimited(1.0), Unreachable("scripted")])
@pytest.mark.parametrize("first", ["preview", "answer"])
def test_a_platform_that_cannot_tell_just_now_is_asked_again(
    tmp_path: Path, error: Exception, first: str
) -> None:
    """Whether what was sent first arrived: the beginning of an answer, or all of it."""
    errors = deque([error])

    class Busy(ScriptedPlatform):
        async def found(self, message: Outbound) -> Receipt | None:
            if errors:
                raise errors.popleft()
            return await super().found(message)

    async def scenario() -> None:
        async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text("one ")
            if first == "preview":
                await until(lambda: bool(platform.sent))
            yield Text("two")

        platform = Busy(edit=first == "preview", edit_interval=100, reconciles=True)
        platform.results.append(StoreThenRaise(OutcomeUnknown("scripted")))
        config = '[platforms.scripted]\non_unknown = "drop"\n'
        async with gateway(tmp_path, platform, ScriptedAgent(slowly), config=config) as running:
            await platform.say("go")
            await until(lambda: not errors)
            await until(lambda: running.profiles["default"].delivery.idle(platform.address()))
            platform.lose_connection()
            await platform.say("/whoami")
            await until(lambda: any("admitted" in text for text in platform.texts()))
        shown = {sent.message_id: sent.message.text for sent in platform.sent}
        assert list(shown.values())[:-1] == ["one two"]

    run(scenario(), speed=HASTY)
    states = rows(tmp_path, "SELECT state FROM outbox ORDER BY sequence")
    assert states == [("delivered",), ("delivered",)]


@pytest.mark.parametrize("token", ["[SILENT]", "NO_REPLY", " [SILENT]\n"])
def test_nothing_is_shown_of_an_answer_that_chooses_silence(tmp_path: Path, token: str) -> None:
    async def silent(turn: Turn) -> AsyncIterator[AgentEvent]:
        if turn.messages[0].text == "again":
            yield Text("[SIL")
            yield Text("LY] no")
        else:
            for character in token:
                yield Text(character)
                await asyncio.sleep(1)  # of a hasty clock: time for a preview

    async def scenario() -> None:
        platform = ScriptedPlatform(edit=True)
        async with gateway(tmp_path, platform, ScriptedAgent(silent)) as running:
            await platform.say("go")
            await until(lambda: running.profiles["default"].status()["turns"] == {"silent": 1})
            assert platform.sent == []
            await platform.say("again")
            assert await platform.next_text() == "[SILLY] no"

    run(scenario(), speed=HASTY)


def test_where_there_are_drafts_an_answer_is_drafted_and_sent_once(tmp_path: Path) -> None:
    async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text("one ")
        await until(lambda: platform.drafted == ["one "])
        await asyncio.sleep(45)  # of a hasty clock: a draft is shown again before it goes
        assert set(platform.drafted) == {"one "}
        assert len(platform.drafted) >= 3
        yield Text("two")
        await until(lambda: "one two" in platform.drafted)

    async def scenario() -> None:
        async with gateway(tmp_path, platform, ScriptedAgent(slowly)):
            await platform.say("go")
            assert await platform.next_text() == "one two"
        assert [(sent.call, sent.message.text) for sent in platform.sent] == [("send", "one two")]

    platform = ScriptedPlatform(edit=True, drafts=["dm"])
    run(scenario(), speed=HASTY)


@pytest.mark.parametrize("error", [SendRejected("no drafts here"), ValueError("scripted"), None])
def test_where_drafts_fail_once_answers_are_shown_by_edits(
    tmp_path: Path, error: Exception | None
) -> None:
    async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text("one ")
        await until(lambda: bool(platform.sent))
        yield Text("two")

    async def scenario() -> None:
        async with gateway(tmp_path, platform, ScriptedAgent(slowly)):
            await platform.say("go", kind="dm" if error else "group")
            await until(lambda: platform.texts() == ["one two"])
        assert platform.drafted == []
        assert platform.sent[0].message.text == "one "
        assert len({sent.message_id for sent in platform.sent}) == 1

    platform = ScriptedPlatform(edit=True, drafts=["dm"])
    platform.draft_results.extend([error] if error else [])
    run(scenario(), speed=HASTY)


def test_a_draft_that_is_limited_is_shown_later(tmp_path: Path) -> None:
    async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text("one ")
        await until(lambda: not platform.draft_results)
        yield Text("two ")
        await until(lambda: bool(platform.drafted))
        yield Text("three")

    async def scenario() -> None:
        async with gateway(tmp_path, platform, ScriptedAgent(slowly)):
            await platform.say("go")
            assert await platform.next_text() == "one two three"
        assert len(platform.sent) == 1

    platform = ScriptedPlatform(edit=True, drafts=["dm"])
    platform.draft_results.append(RateLimited(5))
    run(scenario(), speed=HASTY)


def test_the_log_says_once_a_turn_why_no_preview_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hermes_core.previews")

    async def scenario() -> None:
        async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
            for number in range(1, 4):
                yield Text(f"{number} ")
                await until(partial(attempted, number))

        def attempted(count: int) -> bool:
            return len(platform.attempts) >= count

        platform = ScriptedPlatform(edit=True, edit_interval=1)
        platform.results.extend([SendFailed("nobody is there")] * 3)
        async with gateway(tmp_path, platform, ScriptedAgent(slowly)):
            await platform.say("go")
            assert await platform.next_text() == "1 2 3 "
        assert len(caplog.records) == 1

    run(scenario(), speed=HASTY)


def test_a_preview_that_can_no_longer_be_edited_is_followed_by_a_message(tmp_path: Path) -> None:
    async def scenario() -> None:
        async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text("one ")
            await until(lambda: bool(platform.sent))
            platform.results.append(SendRejected("message to edit not found"))
            yield Text("two")

        platform = ScriptedPlatform(edit=True, edit_interval=60)
        async with gateway(tmp_path, platform, ScriptedAgent(slowly)):
            await platform.say("go")
            await until(lambda: "one two" in platform.texts())
        assert platform.texts() == ["one two"]

    run(scenario(), speed=HASTY)
