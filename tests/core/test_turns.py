"""One turn: what the agent says becomes one commit, or nothing does."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core import (
    Accepted,
    Agent,
    AgentError,
    AgentEvent,
    AgentType,
    Commentary,
    Final,
    Message,
    ProfileScope,
    Sender,
    Settings,
    Text,
    Turn,
    TurnEnd,
    TurnInfo,
    hookimpl,
)
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from tests.core.support import (
    HASTY,
    held_writes,
    no_room_for,
    room_again,
    rows,
    run,
    settle,
    store_of,
    until,
)


def first_text(turn: Turn) -> str:
    return turn.messages[0].text


class Listener:
    """Hears how turns begin and end."""

    def __init__(self) -> None:
        self.begun: list[TurnInfo] = []
        self.ended: list[TurnEnd] = []

    @hookimpl
    def on_turn_start(self, scope: ProfileScope, turn: TurnInfo) -> None:
        self.begun.append(turn)

    @hookimpl
    def on_turn_end(self, scope: ProfileScope, turn: TurnEnd) -> None:
        self.ended.append(turn)


# ── text ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.case("DB-13")
def test_a_bad_character_ends_neither_a_session_nor_its_record(tmp_path: Path) -> None:
    bad = "a\ud83db\x00c"

    async def says(turn: Turn) -> AsyncIterator[AgentEvent]:
        what = first_text(turn)
        if what.startswith("reply"):
            yield Commentary(bad)
            yield Text(bad)
        elif what.startswith("error"):
            raise AgentError(bad)
        else:
            yield Text(what)

    async def scenario() -> None:
        platform, agent, listener = ScriptedPlatform(edit=True), ScriptedAgent(says), Listener()
        async with gateway(tmp_path, platform, agent, listener):
            event = Message(
                address=platform.address(),
                sender=Sender(id="u1", name=bad),
                event_id="bad",
                text=bad,
                quoted=bad,
            )
            assert isinstance(await platform.inject(event), Accepted)
            good = "a\ufffdb\ufffdc"
            assert await platform.next_text() == good
            for what in ("reply", "error"):
                await platform.say(what)
            await until(lambda: platform.texts() == [good, good, good])
            for number in range(10):
                await platform.say(f"n{number}")
            await until(lambda: platform.texts()[-1] == "n9")
        async with gateway(tmp_path, platform, agent):
            await platform.say("after", event_id="after")
            await until(lambda: platform.texts()[-1] == "after")
        for heard in (*listener.begun, *listener.ended):
            repr(heard).encode()

    run(scenario())
    said = [text for (text,) in rows(tmp_path, "SELECT text FROM message ORDER BY id")]
    assert said[:4] == ["a\ufffdb\ufffdc", "a\ufffdb\ufffdc", "reply", "a\ufffdb\ufffdc"]
    assert [text for text in said if text.startswith("n")] == [
        f"n{number}" for number in range(10) for _ in "qa"
    ]
    assert rows(tmp_path, "SELECT DISTINCT sender_name FROM message WHERE id = 1") == [
        ("a\ufffdb\ufffdc",)
    ]


@pytest.mark.case("DL-17")
@pytest.mark.parametrize(
    "text",
    [
        "",
        "\x00",
        "a\x00b",
        "\ud83d",
        "x" * 1_000_000,
        "\n" * 100_000,
        "\u202eevil",
        "e" + "\u0301" * 10_000,
        "／ｓｔｏｐ",
    ],
    ids=["nothing", "nul", "nul inside", "surrogate", "long", "lines", "rtl", "marks", "wide"],
)
def test_whatever_people_write_the_next_message_is_answered(tmp_path: Path, text: str) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent):
            assert isinstance(await platform.say(text), Accepted)
            await platform.say("ping")
            await until(lambda: "ping" in platform.texts())
        shown = platform.texts()
        assert shown[-1] == "ping"
        if text.strip():
            assert "".join(shown[:-1]) == text.replace("\x00", "\ufffd").replace("\ud83d", "\ufffd")
        else:
            assert shown[0]  # something reaches the chat

    run(scenario())


pieces = st.lists(st.text(st.characters(), max_size=5), max_size=6)


@given(pieces, st.none() | st.text(max_size=8), st.booleans())
@settings(max_examples=30)
def test_the_final_text_is_what_arrives_and_what_is_remembered(
    tmp_path_factory: pytest.TempPathFactory, said: list[str], final: str | None, edit: bool
) -> None:
    home = tmp_path_factory.mktemp("home")

    async def says(turn: Turn) -> AsyncIterator[AgentEvent]:
        for piece in said:
            yield Text(piece)
            await asyncio.sleep(0)
        if final is not None:
            yield Final(final)

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(edit=edit), ScriptedAgent(says)
        async with gateway(home, platform, agent):
            await platform.say("go")
            await until(lambda: bool(platform.texts()))
        text = "".join(said) if final is None else final
        if text.strip():
            assert platform.texts() == [text.replace("\x00", "\ufffd")]
            answers = rows(home, "SELECT text FROM message WHERE role = 'assistant'")
            assert answers == [(text.replace("\x00", "\ufffd"),)]
        else:
            assert len(platform.texts()) == 1
            assert rows(home, "SELECT text FROM message WHERE role = 'assistant'") == []

    run(scenario())


@pytest.mark.case("DL-15")
@pytest.mark.parametrize("said", [[], [""], [" \n"], ["\u200b"]])
def test_no_answer_is_said_to_be_none(
    tmp_path: Path, said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def says(turn: Turn) -> AsyncIterator[AgentEvent]:
        for piece in said:
            yield Text(piece)

    async def scenario() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(says)):
            await platform.say("go")
            assert await platform.next_text()

    run(scenario())


@pytest.mark.parametrize("token", ["[SILENT]", " NO_REPLY\n"])
def test_an_agent_may_choose_to_say_nothing(tmp_path: Path, token: str) -> None:
    async def scenario() -> None:
        async def says(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text(token if first_text(turn) == "quiet" else "pong")

        platform, listener = ScriptedPlatform(), Listener()
        async with gateway(tmp_path, platform, ScriptedAgent(says), listener):
            await platform.say("quiet")
            await platform.say("ping")
            assert await platform.next_text() == "pong"
            await until(lambda: len(listener.ended) == 2)
        assert [(end.outcome, end.error) for end in listener.ended] == [
            ("silent", ""),
            ("answered", ""),
        ]

    run(scenario())


def test_an_error_meant_for_people_is_shown_and_any_other_is_not(tmp_path: Path) -> None:
    async def says(turn: Turn) -> AsyncIterator[AgentEvent]:
        if first_text(turn) == "kind":
            raise AgentError("The model is asleep.")
        yield Text("half of it, and then: ")
        raise RuntimeError("token=secret")

    async def scenario() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(says)):
            await platform.say("kind")
            assert await platform.next_text() == "The model is asleep."
            await platform.say("unkind")
            shown = await platform.next_text()
            assert shown
            assert "secret" not in shown

    run(scenario())


def test_an_agent_that_talks_without_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_core.answers.MAX_ANSWER", 10_000)

    async def says(turn: Turn) -> AsyncIterator[AgentEvent]:
        while first_text(turn) == "go":
            yield Text("on and on ")
        yield Text("pong")

    async def scenario() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(says)):
            await platform.say("go")
            assert "too long" in await platform.next_text()
            await platform.say("ping")
            assert await platform.next_text() == "pong"

    run(scenario())


def test_an_agent_that_cannot_be_built_is_said_to_be_missing(tmp_path: Path) -> None:
    class Broken(Agent[Settings]):
        def __init__(self, settings: Settings, scope: ProfileScope) -> None:
            raise RuntimeError("scripted")

    class Plugin:
        @hookimpl
        def agents(self) -> list[AgentType]:
            return [AgentType("broken", Broken, Settings)]

    async def scenario() -> None:
        platform = ScriptedPlatform()
        config = '[agent]\nuse = "broken"\n'
        async with gateway(tmp_path, platform, Plugin(), config=config):
            for text in ("one", "two"):
                await platform.say(text)
                assert await platform.next_text()

    run(scenario())


# ── time ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("setting", ['inactivity = "5s"', 'total = "8s"'])
def test_a_turn_that_takes_too_long_ends_and_the_next_one_runs(
    tmp_path: Path, setting: str
) -> None:
    async def says(turn: Turn) -> AsyncIterator[AgentEvent]:
        if first_text(turn) == "ping":
            yield Text("pong")
            return
        while setting.startswith("total"):
            yield Text("still at it ")
            await asyncio.sleep(1)
        yield Text("wait ")
        await asyncio.get_running_loop().create_future()

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent(says)
        config = f"[sessions]\n{setting}\n"
        async with gateway(tmp_path, platform, agent, config=config):
            began = asyncio.get_running_loop().time()
            await platform.say("go")
            await platform.say("ping")
            assert "too long" in await platform.next_text()
            assert asyncio.get_running_loop().time() - began >= 5
            assert await platform.next_text() == "pong"

    run(scenario(), speed=HASTY)


# ── the one commit ───────────────────────────────────────────────────────────────────────────────


def test_a_stop_that_is_committed_first_leaves_no_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent, listener = ScriptedPlatform(), ScriptedAgent(), Listener()
        gate = agent.gate("A")
        async with gateway(tmp_path, platform, agent, listener) as running:
            await platform.say("A")
            await agent.started(1)
            async with held_writes(running):
                stop = asyncio.create_task(platform.say("/stop"))
                await settle()
                gate.set()  # the agent ends before the stop is committed, its turn after it
                await settle()
            await stop
            assert (await platform.next_text()).startswith("Stopped")
            await platform.say("B")
            assert await platform.next_text() == "B"
            await until(lambda: len(listener.ended) == 2)
        assert [end.outcome for end in listener.ended] == ["cancelled", "answered"]
        assert listener.ended[0].text == ""

    run(scenario())
    assert rows(tmp_path, "SELECT text FROM message ORDER BY id") == [("B",), ("B",)]


def test_an_end_that_cannot_be_written_is_written_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        gate = agent.gate("A")
        async with gateway(tmp_path, platform, agent) as running:
            await platform.say("A")
            await agent.started(1)
            await no_room_for(running, "UPDATE OF ended_at ON turn")
            gate.set()
            await asyncio.sleep(3)
            assert platform.attempts == []
            await room_again(running)
            assert await platform.next_text() == "A"
            await platform.say("B")
            assert await platform.next_text() == "B"
        assert len(agent.runs) == 2

    run(scenario(), speed=HASTY)


def test_turns_that_cannot_begin_on_a_full_disk_begin_later_and_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent) as running:
            running.drain.begin("somebody", 60)
            for chat in "abc":
                await platform.say(chat, chat=chat)
            await no_room_for(running, "INSERT ON turn")
            running.drain.end()
            await asyncio.sleep(10)
            assert "full" in store_of(running).trouble
            await room_again(running)
            await until(lambda: all(chat in platform.texts(chat) for chat in "abc"))
            assert store_of(running).trouble == ""

    with caplog.at_level(logging.WARNING, "hermes_core"):
        run(scenario(), speed=HASTY)
    said = [record for record in caplog.records if record.name != "hermes_core.plugins.loading"]
    assert [record.name for record in said] == ["hermes_core.store.episode"] * 2
    assert not any(record.exc_info for record in said)


def test_an_end_that_can_never_be_written_fails_its_turn_and_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent) as running:
            await store_of(running).write(
                lambda tx: tx.execute(
                    "CREATE TEMP TRIGGER wrong BEFORE INSERT ON message WHEN new.text = 'A'"
                    " BEGIN SELECT RAISE(ABORT, 'wrong'); END"
                )
            )
            await platform.say("A")
            assert (await platform.next_text()).startswith("Something went wrong")
            await platform.say("B")
            assert await platform.next_text() == "B"

    run(scenario(), speed=HASTY)
    assert rows(tmp_path, "SELECT state FROM turn ORDER BY rowid") == [("failed",), ("answered",)]


def test_the_commit_holds_everything_or_nothing(tmp_path: Path) -> None:
    """Whatever another process sees of a turn, it sees all of it."""

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        seen: list[tuple[int, ...]] = []
        query = (
            "SELECT (SELECT COUNT(*) FROM turn WHERE state = 'answered'),"
            " (SELECT COUNT(*) FROM message WHERE role = 'user'),"
            " (SELECT COUNT(*) FROM message WHERE role = 'assistant'),"
            " (SELECT COUNT(*) FROM outbox),"
            " (SELECT COUNT(*) FROM inbox WHERE state = 'done')"
        )
        async with gateway(tmp_path, platform, agent):
            with_reader = sqlite3.connect(f"file:{tmp_path / 'state.db'}?mode=ro", uri=True)
            for number in range(50):
                await platform.say(str(number))
            while len(platform.sent) < 50:
                seen.append(with_reader.execute(query).fetchone())
                await asyncio.sleep(0)
            with_reader.close()
        assert len(set(seen)) > 1
        assert all(len(set(counts)) == 1 for counts in seen)

    run(scenario())


def test_what_observers_hear_of_a_turn_is_what_happened(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent, listener = ScriptedPlatform(), ScriptedAgent(), Listener()
        async with gateway(tmp_path, platform, agent, listener):
            await platform.say("hello", event_id="x")
            assert await platform.next_text() == "hello"
            await until(lambda: bool(listener.ended))
        (begun,), (ended,) = listener.begun, listener.ended
        assert begun == ended.turn
        assert begun.messages == ("hello",)
        assert begun.event_ids == ("x",)
        assert begun.session_key == "agent:main:scripted:dm:c1"
        assert (ended.outcome, ended.text, ended.error) == ("answered", "hello", "")

    run(scenario())


def test_an_agent_sees_no_address(tmp_path: Path) -> None:
    async def scenario() -> None:
        seen: list[Any] = []

        async def looks(turn: Turn) -> AsyncIterator[AgentEvent]:
            seen.extend([turn.id, turn.session_id, turn.hint, turn.chat_kind, *turn.messages])
            seen.extend(await turn.history())
            yield Text("ok")

        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(looks)):
            for text in ("one", "two"):
                await platform.say(text, chat="the-chat-id", kind="dm")
                assert await platform.next_text() == "ok"
        assert "the-chat-id" not in repr(seen)

    run(scenario())


# ── interrupted by a stop of the gateway ─────────────────────────────────────────────────────────


class Stubborn:
    """An agent that is cut in its first run, and ends in one of three ways."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.held = asyncio.Event()
        self.forever = asyncio.Event()

    async def says(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text(f"{first_text(turn)}: one")
        if first_text(turn) == "go" and not self.held.is_set():
            self.held.set()
            if not await self._wait():
                return
        yield Text(", two")

    async def _wait(self) -> bool:
        while not self.forever.is_set():
            try:
                await self.forever.wait()
            except asyncio.CancelledError:
                if self.how == "lets it pass":
                    raise
                if self.how == "ends by itself":
                    return False
        return True


@pytest.mark.parametrize("how", ["lets it pass", "ends by itself", "swallows it"])
def test_a_turn_that_a_stop_cuts_runs_again_after_the_next_start(tmp_path: Path, how: str) -> None:
    async def scenario() -> None:
        stubborn = Stubborn(how)
        platform, agent = ScriptedPlatform(), ScriptedAgent(stubborn.says)
        config = '[gateway]\nshutdown_grace = "0s"\n'
        async with gateway(tmp_path, platform, agent, config=config):
            await platform.say("go")
            await stubborn.held.wait()
            await platform.say("then")
        assert platform.attempts == []
        async with gateway(tmp_path, platform, agent, config=config):
            texts = [await platform.next_text() for _ in range(2)]
            assert texts == ["go: one, two", "then: one, two"]
        stubborn.forever.set()
        assert [turn.texts for turn in agent.runs] == [("go",), ("go",), ("then",)]

    run(scenario(), speed=HASTY)
