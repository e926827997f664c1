"""One turn at a time for each session, in order, whatever happens to the turns."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from hermes_core import Accepted, Address, AgentEvent, Final, Sender, Text, Turn
from hermes_core.gateway import Gateway
from hermes_core.store import Tx
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from tests.core.support import HASTY, JUDGED, Judge, rows, run, store_of, until

FAST = '[gateway]\ndurability = "normal"\n'
"""For tests with many turns: nothing here depends on the power supply."""


def status(running: Gateway) -> dict[str, Any]:
    return running.profiles["default"].status()


async def idle(running: Gateway) -> None:
    await until(lambda: not status(running)["busy_sessions"])


async def next_texts(platform: ScriptedPlatform, count: int) -> list[str]:
    return [await platform.next_text() for _ in range(count)]


def first_text(turn: Turn) -> str:
    return turn.messages[0].text


# ── order, without loss ──────────────────────────────────────────────────────────────────────────


@pytest.mark.case("DR-01")
def test_a_long_chain_of_follow_ups_does_not_grow_the_stack(tmp_path: Path) -> None:
    links = 3000

    async def scenario() -> None:
        platform = ScriptedPlatform()

        async def chain(turn: Turn) -> AsyncIterator[AgentEvent]:
            link = int(first_text(turn))
            yield Text(first_text(turn))
            if link < links:
                assert isinstance(await platform.say(str(link + 1)), Accepted)

        agent = ScriptedAgent(chain)
        async with gateway(tmp_path, platform, agent, config=FAST) as running:
            await platform.say("0")
            assert await next_texts(platform, links + 1) == [str(n) for n in range(links + 1)]
            await idle(running)
        assert [turn.texts for turn in agent.runs] == [(str(n),) for n in range(links + 1)]
        assert abs(agent.runs[10].depth - agent.runs[links].depth) <= 2
        assert {turn.at_once for turn in agent.runs} == {1}

    run(scenario(), limit=60)


@pytest.mark.case("DR-02")
def test_a_message_that_comes_while_a_turn_is_cleaned_up_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        stopping, stopped = asyncio.Event(), asyncio.Event()

        async def typing(address: Address, active: bool) -> None:
            if not active:
                stopping.set()
                await stopped.wait()

        platform, agent = ScriptedPlatform(typing=typing), ScriptedAgent()
        async with gateway(tmp_path, platform, agent) as running:
            await platform.say("M1")
            await stopping.wait()
            assert isinstance(await platform.say("LATE"), Accepted)
            stopped.set()
            assert await next_texts(platform, 2) == ["M1", "LATE"]
            await idle(running)
        assert platform.texts() == ["M1", "LATE"]
        assert len(agent.runs) == 2

    run(scenario())


@pytest.mark.case("DR-04")
def test_what_comes_while_a_turn_runs_waits_its_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        gate = agent.gate("m1")
        async with gateway(tmp_path, platform, agent) as running:
            await platform.say("m1")
            await agent.started(1)
            for number in range(2, 6):
                await platform.say(f"m{number}")
            assert status(running)["waiting"] == 4
            gate.set()
            assert await next_texts(platform, 5) == ["m1", "m2", "m3", "m4", "m5"]
            assert status(running)["waiting"] == 0
        assert [turn.texts for turn in agent.runs] == [("m1",), ("m2",), ("m3",), ("m4",), ("m5",)]

    run(scenario())


def test_a_burst_is_answered_whole_and_in_order(tmp_path: Path) -> None:
    """Turns end while earlier answers are on their way, and commits are shared."""

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        chats = ["c1", "c2", "c3"]
        async with gateway(tmp_path, platform, agent, config=FAST):
            for number in range(150):
                await asyncio.gather(*(platform.say(str(number), chat=chat) for chat in chats))
            await next_texts(platform, 450)
            for chat in chats:
                assert platform.texts(chat) == [str(number) for number in range(150)]
        assert {turn.at_once for turn in agent.runs} == {1}

    run(scenario())


@pytest.mark.case("DR-16")
def test_a_turn_sees_what_the_one_before_it_did_and_sessions_overlap(tmp_path: Path) -> None:
    async def scenario() -> None:
        at_once: set[str] = set()
        most = 0

        async def count(turn: Turn) -> AsyncIterator[AgentEvent]:
            nonlocal most
            said = [line.text for line in await turn.history() if line.role == "assistant"]
            at_once.add(turn.session_id)
            most = max(most, len(at_once))
            await asyncio.sleep(0.02)
            at_once.remove(turn.session_id)
            yield Text(str(int(said[-1]) + 1 if said else 1))

        platform, agent = ScriptedPlatform(), ScriptedAgent(count)
        chats = [f"c{number}" for number in range(10)]
        async with gateway(tmp_path, platform, agent, config=FAST):
            await asyncio.gather(*(platform.say("+1", chat=c) for c in chats for _ in range(20)))
            await next_texts(platform, 200)
            for chat in chats:
                assert platform.texts(chat) == [str(number) for number in range(1, 21)]
        assert most > 1

    run(scenario())


def test_a_session_that_is_stuck_delays_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        gate = agent.gate("stuck")
        async with gateway(tmp_path, platform, agent, config=FAST) as running:
            await platform.say("stuck", chat="c0")
            await agent.started(1)
            for number in range(1, 101):
                await platform.say(f"n{number}", chat=f"c{number}")
            assert {await platform.next_text() for _ in range(100)} == {
                f"n{number}" for number in range(1, 101)
            }
            assert len(status(running)["running_turns"]) == 1
            gate.set()
            assert await platform.next_text() == "stuck"

    run(scenario())


def test_no_more_turns_run_at_once_than_the_settings_say(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        gate = agent.gate("wait")
        config = "[gateway]\nmax_running_turns = 3\n"
        async with gateway(tmp_path, platform, agent, config=config) as running:
            for number in range(10):
                await platform.say("wait", chat=f"c{number}")
            await agent.started(3)
            assert len(status(running)["running_turns"]) == 3
            assert len(agent.runs) == 3
            gate.set()
            assert await next_texts(platform, 10) == ["wait"] * 10

    run(scenario())


# ── every way a turn can end ─────────────────────────────────────────────────────────────────────


class Unspeakable(Exception):
    def __str__(self) -> NoReturn:
        raise RuntimeError("even this fails")


async def die(turn: Turn) -> AsyncIterator[AgentEvent]:
    """End as the message says."""
    errors: dict[str, BaseException] = {
        "an error": ValueError("scripted"),
        "an unspeakable error": Unspeakable(),
        "a cancellation": asyncio.CancelledError(),
        "a time-out": TimeoutError(),
        "no memory": MemoryError(),
        "a system exit": SystemExit(3),
        "an interrupt": KeyboardInterrupt(),
        "a closed generator": GeneratorExit(),
    }
    what = first_text(turn)
    if what == "ping":
        yield Text("pong")
    elif what in errors:
        raise errors[what]
    elif what == "a closed executor":
        await asyncio.get_running_loop().shutdown_default_executor()
        yield Text("closed it")
    elif what == "half an answer":
        yield Text("this is ")
        raise ValueError("scripted")
    elif what == "an error at the end":
        try:
            yield Final("never shown")
        finally:
            raise ValueError("scripted")


ENDS = [
    "nothing",
    "an error",
    "an unspeakable error",
    "a cancellation",
    "a time-out",
    "no memory",
    "a system exit",
    "an interrupt",
    "a closed generator",
    "a closed executor",
    "half an answer",
    "an error at the end",
]


@pytest.mark.case("DR-08")
@pytest.mark.parametrize("edit", [False, True], ids=["whole answers", "streamed answers"])
def test_however_a_turn_ends_its_session_goes_on(
    tmp_path: Path, edit: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "hermes_core.runs")

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(edit=edit), ScriptedAgent(die)
        async with gateway(tmp_path, platform, agent) as running:
            for end in ENDS:
                await platform.say(end, chat=end)
            for end in ENDS:
                await platform.say("ping", chat=end)
            await until(lambda: all(platform.texts(end)[1:] == ["pong"] for end in ENDS))
            for end in ENDS:
                (told, _) = platform.texts(end)
                assert told == "closed it" if end == "a closed executor" else "scripted" not in told
            await idle(running)
            assert status(running)["running_turns"] == []

    run(scenario())
    # Each failure is one record that names the session and the error.
    records = [record for record in caplog.records if record.name == "hermes_core.runs"]
    assert len(records) == len(ENDS) - 1
    assert len({record.__dict__["session"] for record in records}) == len(records)
    text = "\n".join(record.getMessage() for record in records)
    for name in ("ValueError", "Unspeakable", "CancelledError", "TimeoutError", "SystemExit"):
        assert name in text
    ended = rows(tmp_path, "SELECT DISTINCT state FROM turn ORDER BY state")
    assert ended == [("answered",), ("failed",), ("silent",)]


# ── stopped by a person ──────────────────────────────────────────────────────────────────────────


@pytest.mark.case("DR-10")
def test_after_a_stop_the_session_is_free(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        first, _ = agent.gate("A"), agent.gate("B")
        async with gateway(tmp_path, platform, agent) as running:
            await platform.say("A")
            await agent.started(1)
            await platform.say("B")
            first.set()
            assert await platform.next_text() == "A"
            await agent.started(2)
            await platform.say("/stop")
            assert (await platform.next_text()).startswith("Stopped")
            await idle(running)
            await platform.say("/stop")
            assert await platform.next_text() == "Nothing is running."
            await platform.say("D")
            assert await platform.next_text() == "D"
            await idle(running)
        assert [turn.texts for turn in agent.runs] == [("A",), ("B",), ("D",)]

    run(scenario())
    assert rows(tmp_path, "SELECT state FROM turn ORDER BY rowid") == [
        ("answered",),
        ("cancelled",),
        ("answered",),
    ]


def test_stopped_twice_a_turn_takes_nothing_with_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        agent.gate("A")
        async with gateway(tmp_path, platform, agent):
            await platform.say("A")
            await agent.started(1)
            await platform.say("B")
            await platform.say("C")
            await asyncio.gather(platform.say("/stop"), platform.say("/stop"))
            texts = sorted(await next_texts(platform, 4))
            assert texts[:2] == ["B", "C"]
            assert "2 messages waiting" in texts[3]
        assert [turn.texts for turn in agent.runs] == [("A",), ("B",), ("C",)]

    run(scenario())


def test_the_message_after_a_stop_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        agent.gate("A")
        async with gateway(tmp_path, platform, agent):
            for round_ in range(5):
                await platform.say("A")
                await agent.started(2 * round_ + 1)
                await asyncio.gather(platform.say("/stop"), platform.say(f"next {round_}"))
                assert {await platform.next_text() for _ in range(2)} >= {f"next {round_}"}

    run(scenario())


def test_a_stop_before_the_agent_begins_keeps_it_from_beginning(tmp_path: Path) -> None:
    async def scenario() -> None:
        asked, go = asyncio.Event(), asyncio.Event()
        times = 0

        async def at_the_start_of_the_turn(sender: Sender) -> bool:
            nonlocal times
            times += 1
            if times == 2:
                asked.set()
                await go.wait()
            return True

        platform, agent = ScriptedPlatform(allow_all=False), ScriptedAgent()
        judge = Judge(at_the_start_of_the_turn)
        async with gateway(tmp_path, platform, agent, ("judge", judge), config=JUDGED):
            await platform.say("A")
            await asked.wait()
            await platform.say("/stop")
            assert (await platform.next_text()).startswith("Stopped")
            go.set()
            await platform.say("B")
            assert await platform.next_text() == "B"
        assert [turn.texts for turn in agent.runs] == [("B",)]

    run(scenario())


def test_an_agent_that_swallows_its_cancellation_is_left_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        released, over = asyncio.Event(), asyncio.Event()

        async def deaf(turn: Turn) -> AsyncIterator[AgentEvent]:
            if first_text(turn) != "deaf":
                yield Text(first_text(turn))
                return
            yield Text("before ")
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue
            yield Text("much too late")
            over.set()

        platform, agent = ScriptedPlatform(edit=True), ScriptedAgent(deaf)
        async with gateway(tmp_path, platform, agent) as running:
            await platform.say("deaf")
            await agent.started(1)
            await platform.say("next")
            await platform.say("/stop")
            assert "1 message waiting" in await platform.next_text()
            assert await platform.next_text() == "next"
            assert len(status(running)["abandoned_turns"]) == 1
            released.set()
            await over.wait()
            await until(lambda: not status(running)["abandoned_turns"])
            await platform.say("after")
            assert await platform.next_text() == "after"
        assert "late" not in "".join(sent.message.text for sent in platform.sent)

    run(scenario(), speed=HASTY)
    assert rows(tmp_path, "SELECT text FROM message WHERE text LIKE '%late%'") == []


def test_an_agent_that_ends_by_itself_when_it_is_stopped_has_not_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async def polite(turn: Turn) -> AsyncIterator[AgentEvent]:
            if first_text(turn) == "ping":
                yield Text("pong")
                return
            yield Text("half of ")
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                yield Text("it")

        platform, agent = ScriptedPlatform(), ScriptedAgent(polite)
        async with gateway(tmp_path, platform, agent):
            await platform.say("long")
            await agent.started(1)
            await platform.say("/stop")
            assert (await platform.next_text()).startswith("Stopped")
            await platform.say("ping")
            assert await platform.next_text() == "pong"
        assert len(platform.sent) == 2

    run(scenario())


def no_odd_turns(tx: Tx, tried: list[None]) -> None:
    tx.create_function("tried", 0, lambda: tried.append(None))
    tx.execute(
        "CREATE TEMP TRIGGER no_odd_turns BEFORE INSERT ON turn WHEN new.session_key LIKE '%odd%'"
        " BEGIN SELECT tried(); SELECT RAISE(ABORT, 'odd'); END"
    )


def test_a_session_that_cannot_go_on_takes_no_place_from_others_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = "[gateway]\nmax_running_turns = 1\n"
    tried: list[None] = []

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent, config=config) as running:
            running.drain.begin("somebody", 60)
            await platform.say("hello", chat="odd")
            await store_of(running).write(lambda tx: no_odd_turns(tx, tried))
            running.drain.end()
            began = asyncio.get_running_loop().time()
            for number in map(str, range(20)):
                await platform.say(number)
                await until(lambda number=number: number in platform.texts("c1"))  # type: ignore[misc]
            assert asyncio.get_running_loop().time() - began < 10 * HASTY
            await asyncio.sleep(10)

    run(scenario(), speed=HASTY)
    assert caplog.text.count("a session is held up") == 1
    assert len(tried) < 50
