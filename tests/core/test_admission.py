"""What `receive` promises: one outcome, in order, once, and a commit before it is said."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core import (
    Accepted,
    Deleted,
    Denied,
    Duplicate,
    Edited,
    Handled,
    Message,
    NotReady,
    Reaction,
    Received,
    Refused,
    Sender,
)
from hermes_core.store import Tx
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, WallClock, gateway
from tests.core.support import (
    JUDGED,
    Judge,
    held_writes,
    received,
    rows,
    run,
    settle,
    store_of,
    until,
)


def outcomes(results: list[Received]) -> Counter[str]:
    return Counter(type(result).__name__.lower() for result in results)


# ── order ────────────────────────────────────────────────────────────────────────────────────────


def test_a_slow_decision_is_not_overtaken_in_its_chat_and_delays_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        go = asyncio.Event()

        async def slowly(sender: Sender) -> bool:
            if sender.id == "slow":
                await go.wait()
            return True

        platform, agent = ScriptedPlatform(allow_all=False), ScriptedAgent()
        judge = Judge(slowly)
        async with gateway(tmp_path, platform, agent, ("judge", judge), config=JUDGED):
            calls = [
                asyncio.create_task(platform.say(text, user=user, kind="group"))
                for text, user in [("1", "slow"), ("2", "fast"), ("3", "slow"), ("4", "fast")]
            ]
            await settle()
            assert isinstance(await platform.say("other", user="fast", chat="c2"), Accepted)
            assert not any(call.done() for call in calls)
            go.set()
            results = await asyncio.gather(*calls)
            sequences = [result.sequence for result in results if isinstance(result, Accepted)]
            assert len(sequences) == 4
            assert sequences == sorted(sequences)

    run(scenario())


def test_a_caller_that_gives_up_while_it_waits_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    async def scenario() -> None:
        go = asyncio.Event()

        async def wait(sender: Sender) -> bool:
            if sender.id == "slow":
                await go.wait()
            return True

        platform, agent = ScriptedPlatform(allow_all=False), ScriptedAgent()
        judge = Judge(wait)
        async with gateway(tmp_path, platform, agent, ("judge", judge), config=JUDGED) as running:
            first, second, third = (
                asyncio.create_task(platform.say(text, user=user, kind="group"))
                for text, user in [("1", "slow"), ("2", "fast"), ("3", "fast")]
            )
            await settle()
            second.cancel()
            await settle()
            assert second.cancelled()
            assert not third.done()  # the place that became free is not the first one
            go.set()
            one, three = await first, await third
            assert isinstance(one, Accepted)
            assert isinstance(three, Accepted)
            assert one.sequence < three.sequence
            assert {await platform.next_text() for _ in range(2)} == {"1", "3"}
            assert received(running) == {"received": 3, "accepted": 2, "not_ready": 1}

    run(scenario())


# ── once ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.case("TG-01")
def test_an_event_that_is_offered_again_is_the_first_one_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent) as running:
            results = await asyncio.gather(*(platform.say("a", event_id="x") for _ in range(20)))
            assert outcomes(results) == {"accepted": 1, "duplicate": 19}
            assert isinstance(results[0], Accepted)
            sequence = results[0].sequence
            assert set(results[1:]) == {Duplicate(sequence)}
            assert await platform.next_text() == "a"
            assert await platform.say("changed", event_id="x") == Duplicate(sequence)
            assert received(running) == {"received": 21, "accepted": 1, "duplicate": 20}
        async with gateway(tmp_path, platform, agent):
            assert await platform.say("a", event_id="x") == Duplicate(sequence)
            assert isinstance(await platform.say("b"), Accepted)
            assert await platform.next_text() == "b"
        assert [turn.texts for turn in agent.runs] == [("a",), ("b",)]

    run(scenario())


def test_the_same_id_in_another_chat_or_account_is_another_event(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        config = "[platforms.scripted]\n[platforms.scripted.accounts.ops]\n"
        async with gateway(tmp_path, platform, agent, config=config):
            await until(lambda: len(platform.connects) == 2)
            results = [
                await platform.say("a", event_id="x"),
                await platform.say("b", event_id="x", chat="c2"),
                await platform.say("c", event_id="x", account="ops"),
            ]
            assert outcomes(results) == {"accepted": 3}
            assert {await platform.next_text() for _ in results} == {"a", "b", "c"}
            again = await platform.say("b", event_id="x", chat="c2")
            assert isinstance(results[1], Accepted)
            assert again == Duplicate(results[1].sequence)

    run(scenario())


def test_an_event_without_an_id_is_always_a_new_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent):
            results = [await platform.say("a", event_id="") for _ in range(3)]
            assert outcomes(results) == {"accepted": 3}
            assert [await platform.next_text() for _ in results] == ["a"] * 3

    run(scenario())


def test_edits_deletions_and_reactions_are_events_of_their_own_and_start_no_turn(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        address, sender = platform.address(), Sender(id="u1")
        async with gateway(tmp_path, platform, agent) as running:
            await platform.say("a", event_id="m")
            assert await platform.next_text() == "a"
            for event in (
                Edited(address=address, sender=sender, event_id="1", message_id="m", text="b"),
                Reaction(address=address, sender=sender, event_id="2", message_id="m", emoji="+"),
                Deleted(address=address, sender=sender, event_id="3", message_id="m"),
            ):
                result = await platform.inject(event)
                assert isinstance(result, Accepted)
                assert await platform.inject(event) == Duplicate(result.sequence)
            await platform.say("c")
            assert await platform.next_text() == "c"
            assert received(running) == {"received": 8, "accepted": 5, "duplicate": 3}
        assert [turn.texts for turn in agent.runs] == [("a",), ("c",)]

    run(scenario())


# ── the commit comes first ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["hello", "/help"])
def test_a_caller_that_gives_up_before_the_commit_is_answered_all_the_same(
    tmp_path: Path, text: str
) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent) as running:
            async with held_writes(running):
                call = asyncio.create_task(platform.say(text, event_id="x"))
                await settle()
                call.cancel()
                await settle()
                assert call.cancelled()
            assert await platform.next_text()
            assert isinstance(await platform.say(text, event_id="x"), Duplicate)
            assert received(running) == {"received": 2, "not_ready": 1, "duplicate": 1}
        assert len(agent.runs) == (0 if text.startswith("/") else 1)

    run(scenario())


def test_nothing_is_said_before_it_is_committed(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent) as running:
            async with held_writes(running):
                call = asyncio.create_task(platform.say("hello"))
                await settle()
                assert not call.done()
                assert not agent.runs
            assert isinstance(await call, Accepted)
            assert await platform.next_text() == "hello"

    run(scenario())


def test_a_full_disk_is_not_acknowledged_and_the_same_event_is_taken_later(tmp_path: Path) -> None:
    def full(tx: Tx) -> None:
        (pages,) = tx.execute("PRAGMA page_count").fetchone()
        tx.execute(f"PRAGMA max_page_count = {pages}")

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        text = "x" * 500_000
        async with gateway(tmp_path, platform, agent) as running:
            await store_of(running).write(full)
            with pytest.raises(NotReady, match="full"):
                await platform.say(text, event_id="x")
            await store_of(running).write(lambda tx: tx.execute("PRAGMA max_page_count = 1000000"))
            assert isinstance(await platform.say(text, event_id="x"), Accepted)
            await until(lambda: len("".join(platform.texts())) == len(text))
            assert received(running) == {"received": 2, "not_ready": 1, "accepted": 1}

    run(scenario())


def test_after_the_end_nothing_is_acknowledged(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent) as running:
            await platform.say("a")
            assert await platform.next_text() == "a"
        with pytest.raises(NotReady):
            await platform.say("b", event_id="late")
        async with gateway(tmp_path, platform, agent) as running:
            assert isinstance(await platform.say("b", event_id="late"), Accepted)
            assert await platform.next_text() == "b"
        assert received(running) == {"received": 1, "accepted": 1}

    run(scenario())


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.case("DR-06")
def test_as_many_are_accepted_as_run_later_and_the_others_are_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        gate = agent.gate("first")
        config = "[sessions]\nmax_waiting = 32\n"
        async with gateway(tmp_path, platform, agent, config=config) as running:
            await platform.say("first")
            await agent.started(1)
            results = [await platform.say(f"n{number}") for number in range(50)]
            assert outcomes(results) == {"accepted": 32, "refused": 18}
            told = (await platform.next_sent()).message
            assert told.kind == "notice"
            assert "waiting" in told.text
            assert received(running) == {"received": 51, "accepted": 33, "refused": 18}
            gate.set()
            answers = [await platform.next_text() for _ in range(33)]
            assert answers == ["first", *(f"n{number}" for number in range(32))]
            # There is room again, also for one that was refused before.
            assert isinstance(await platform.say("n40", event_id="again"), Accepted)
            assert await platform.next_text() == "n40"
        assert len(agent.runs) == 34

    run(scenario())


def test_a_repeat_of_what_waits_is_a_repeat_also_when_nothing_more_may_wait(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        gate = agent.gate("first")
        async with gateway(tmp_path, platform, agent, config="[sessions]\nmax_waiting = 1\n"):
            await platform.say("first")
            await agent.started(1)
            waiting = await platform.say("second", event_id="x")
            assert isinstance(waiting, Accepted)
            assert await platform.say("second", event_id="x") == Duplicate(waiting.sequence)
            assert isinstance(await platform.say("third"), Refused)
            gate.set()
            assert await platform.next_text() == "Not taken: too many messages are waiting already."
            assert [await platform.next_text() for _ in range(2)] == ["first", "second"]

    run(scenario())


@pytest.mark.case("DL-17")
def test_a_message_beyond_the_limit_is_refused_and_its_sender_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent):
            result = await platform.say("x" * 1_100_000)
            assert isinstance(result, Refused)
            assert await platform.next_text() == f"Not taken: {result.reason}."
            await platform.say("ping")
            assert await platform.next_text() == "ping"
        assert len(agent.runs) == 1

    run(scenario())


def test_a_flood_of_refused_messages_is_no_flood_of_notices(tmp_path: Path) -> None:
    wall = WallClock()
    full = "too many messages are waiting already"

    async def refused(platform: ScriptedPlatform, count: int, chat: str = "c1") -> None:
        for _ in range(count):
            assert isinstance(await platform.say("more", chat=chat), Refused)

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        config = "[sessions]\nmax_waiting = 1\n"
        async with gateway(tmp_path, platform, agent, config=config, wall=wall) as running:
            running.drain.begin("somebody", 600)
            for chat in ("c1", "c2"):
                await platform.say("waits", chat=chat)
                await platform.next_text()  # that the gateway is being worked on
            await refused(platform, 20)
            assert await platform.next_text() == f"Not taken: {full}."
            await refused(platform, 1, chat="c2")
            assert await platform.next_text() == f"Not taken: {full}."
            assert isinstance(await platform.say("x" * 1_100_000), Refused)
            assert await platform.next_text() == "Not taken: the message is too long."
            wall.advance(59)
            await refused(platform, 1)
            wall.advance(1)
            await refused(platform, 3)
            assert await platform.next_text() == f"Not taken: {full} (nor were 20 before it)."
            wall.advance(60)
            await refused(platform, 1)
            assert await platform.next_text() == f"Not taken: {full} (nor were 2 before it)."
            wall.advance(-3600)
            await refused(platform, 1)
            assert await platform.next_text() == f"Not taken: {full}."
        assert len([text for text in platform.texts() if text.startswith("Not taken")]) == 6

    run(scenario())


# ── everything at once ───────────────────────────────────────────────────────────────────────────

actions = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "say", "/help", "/stop", "own", "stranger", "long"]),
        st.sampled_from(["c1", "c2"]),
        st.integers(0, 5),
        st.sampled_from(["wait", "beside", "give up"]),
    ),
    max_size=15,
)


@given(actions)
@settings(max_examples=25)
def test_every_call_has_one_outcome_and_the_counters_add_up(
    steps: list[tuple[str, str, int, str]],
) -> None:
    async def scenario(home: Path) -> None:
        platform, agent = ScriptedPlatform(allow_all=False), ScriptedAgent()
        judge = Judge(lambda sender: True if sender.id in {"u1", "bot"} else None)
        async with gateway(home, platform, agent, ("judge", judge), config=JUDGED) as running:
            await until(lambda: bool(platform.connects))
            calls: list[asyncio.Task[Received]] = []
            for what, chat, number, how in steps:
                text = {"say": "text", "long": "x" * 1_100_000}.get(what, what)
                user = {"own": "bot", "stranger": "u9"}.get(what, "u1")
                event = Message(
                    address=platform.address(chat),
                    sender=Sender(id=user),
                    event_id=f"{what}{number}",
                    text=text,
                )
                call = asyncio.create_task(platform.inject(event))
                calls.append(call)
                if how == "wait":
                    await call
                elif how == "give up":
                    await settle(number)
                    call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            seen = Counter(
                "not_ready" if call.cancelled() else type(call.result()).__name__.lower()
                for call in calls
            )
            counted = received(running)
            # A call that was given up before it began was never made.
            never = len(calls) - counted.pop("received", 0)
            seen["not_ready"] -= never
            assert never >= 0
            assert counted == +seen
        stored = rows(home, "SELECT account, chat_id, event_id FROM inbox")
        assert len(stored) == len(set(stored)) >= seen["accepted"] + seen["handled"]
        waiting = rows(home, "SELECT * FROM inbox WHERE state NOT IN ('done', 'waiting')")
        assert waiting == []

    with tempfile.TemporaryDirectory() as directory:
        run(scenario(Path(directory)))


def test_commands_are_told_apart_from_text(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent):
            assert isinstance(await platform.say("/help"), Handled)
            assert "/stop" in await platform.next_text()
            for text in ("/nothing like that", "／help", " /help", "//help", "/"):
                assert isinstance(await platform.say(text), Accepted)
                assert await platform.next_text() == text

    run(scenario())


@pytest.mark.case("AZ-14")
def test_an_account_does_not_answer_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(own_id="me"), ScriptedAgent()
        async with gateway(tmp_path, platform, agent) as running:
            await until(lambda: bool(platform.connects))
            for kind in ("dm", "group"):
                assert isinstance(await platform.say("echo", user="me", kind=kind), Denied)
            await platform.say("ping")
            assert await platform.next_text() == "ping"
            assert received(running) == {"received": 3, "denied": 2, "accepted": 1}
        assert len(agent.runs) == 1

    run(scenario())
