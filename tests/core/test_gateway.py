"""A whole gateway: started on what there is, stopped without losing anything."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from hermes_core import (
    Accepted,
    AdapterContext,
    AgentEvent,
    Handled,
    PluginError,
    Service,
    ServiceContext,
    Text,
    Turn,
    hookimpl,
)
from hermes_core.errors import ForeignDatabase, HermesError, HomeLocked, NewerSchema
from hermes_core.store.migrations import STEPS
from hermes_core.supervision.control import request
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, WallClock, gateway, home_at
from tests.core.support import HASTY, rows, run, settle, until

FAST = '[gateway]\ndurability = "normal"\n'


async def next_texts(platform: ScriptedPlatform, count: int) -> list[str]:
    return [await platform.next_text() for _ in range(count)]


# ── stop ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_pause_holds_for_those_who_wait_for_a_free_place(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        gate = agent.gate("one")
        config = "[gateway]\nmax_running_turns = 1\n"
        async with gateway(tmp_path, platform, agent, config=config) as running:
            await platform.say("one", chat="c1")
            await agent.started(1)
            await platform.say("two", chat="c2")
            await settle()
            running.drain.begin("somebody", 60)
            gate.set()
            await until(lambda: "one" in platform.texts())
            await settle()
            assert len(agent.runs) == 1
            running.drain.end()
            await until(lambda: "two" in platform.texts())

    run(scenario())


def test_a_stop_during_a_pause_begins_no_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent) as running:
            running.drain.begin("somebody", 60)
            await platform.say("one")
            await settle()
        assert agent.runs == []
        async with gateway(tmp_path, platform, agent):
            await agent.started(1)

    run(scenario())


def test_a_stop_ends_a_profile_that_is_just_beginning(tmp_path: Path) -> None:
    class Slow:
        def __init__(self, context: ServiceContext) -> None:
            self.profile = context.scope.name

        async def start(self) -> None:
            if self.profile == "work":
                beginning.set()
                await asyncio.Event().wait()

        async def stop(self) -> None:
            pass

    class Plugin:
        @hookimpl
        def services(self) -> list[Service]:
            return [Service("slow", Slow)]

    beginning = asyncio.Event()
    config = '[gateway]\nprofiles = ["default", "work"]\n'

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent, Plugin(), config=config):
            work = tmp_path / "profiles" / "work"
            work.mkdir(mode=0o700, parents=True)
            (work / "config.toml").write_text('[agent]\nuse = "scripted"\n')
            await beginning.wait()
        assert [one.name for one in threading.enumerate() if one.name == "hermes-write"] == []

    run(scenario())


def test_an_adapter_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    class Broken(ScriptedPlatform):
        def made(self, context: AdapterContext) -> None:
            raise SystemExit("broken")

    async def scenario() -> None:
        with pytest.raises(PluginError, match=r"scripted@default.*SystemExit: broken"):
            async with gateway(tmp_path, Broken(), ScriptedAgent()):
                pass

    run(scenario())


@pytest.mark.case("SH-01")
def test_a_stop_finishes_what_runs_and_keeps_what_waits_for_the_next_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        gate = agent.gate("m1")
        async with gateway(tmp_path, platform, agent) as running:
            await platform.say("m1")
            await agent.started(1)
            for number in range(2, 6):
                await platform.say(f"m{number}")
            await platform.say("other", chat="c2")
            assert await platform.next_text() == "other"
            stopping = asyncio.create_task(running.stop())
            await asyncio.sleep(0.01)
            gate.set()
            await stopping
            assert platform.texts() == ["other", "m1"]
        assert len(agent.runs) == 2
        async with gateway(tmp_path, platform, agent):
            assert await platform.next_text() == "m1"  # read now, delivered before the stop
            assert await next_texts(platform, 4) == ["m2", "m3", "m4", "m5"]
        assert [turn.texts[0] for turn in agent.runs] == ["m1", "other", "m2", "m3", "m4", "m5"]
        assert {turn.attempt for turn in agent.runs} == {1}

    run(scenario())


@pytest.mark.case("SH-01")
def test_what_comes_during_a_stop_is_kept_and_each_chat_is_told_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        gate = agent.gate("m1")
        async with gateway(tmp_path, platform, agent) as running:
            await platform.say("m1")
            await agent.started(1)
            stopping = asyncio.create_task(running.stop())
            await asyncio.sleep(0.01)
            for number in range(2, 5):
                assert isinstance(await platform.say(f"m{number}"), Accepted)
                assert isinstance(await platform.say(f"o{number}", chat="c2"), Accepted)
            gate.set()
            await stopping
        for chat in ("c1", "c2"):
            notices = [
                sent.message.text
                for sent in platform.sent
                if sent.message.kind == "notice" and sent.message.address.chat_id == chat
            ]
            assert len(notices) == 1
        platform.forget()
        async with gateway(tmp_path, platform, agent):
            await until(lambda: len(platform.sent) == 6)
            assert platform.texts("c1") == ["m2", "m3", "m4"]
            assert platform.texts("c2") == ["o2", "o3", "o4"]

    run(scenario())


def test_stopped_again_a_gateway_is_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent) as running:
            await platform.say("hello")
            assert await platform.next_text() == "hello"
            await running.stop()
            await running.stop()

    run(scenario())


def test_nothing_of_a_gateway_is_left_when_it_has_stopped(tmp_path: Path) -> None:
    async def scenario() -> None:
        before = asyncio.all_tasks()
        platform, agent = ScriptedPlatform(edit=True), ScriptedAgent()
        async with gateway(tmp_path, platform, agent):
            for number in range(20):
                await platform.say(str(number), chat=f"c{number % 3}")
            await next_texts(platform, 20)
        assert asyncio.all_tasks() == before

    run(scenario())
    names = {path.name for path in tmp_path.iterdir()}
    assert not [name for name in names if name.endswith(("-wal", "-shm", "-journal"))]


# ── start ────────────────────────────────────────────────────────────────────────────────────────


def everything_in(home: Path) -> dict[str, str]:
    return {
        str(path.relative_to(home)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in home.rglob("*")
        if path.is_file()
    }


def test_a_home_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "state.db")) as theirs:
        theirs.execute("CREATE TABLE messages (id)")
        theirs.commit()
    (tmp_path / "config.yaml").write_text("model: theirs")
    before = everything_in(tmp_path)

    async def scenario() -> None:
        async with gateway(tmp_path, ScriptedPlatform()):
            raise AssertionError("it must not start")

    with pytest.raises(ForeignDatabase):
        run(scenario())
    assert everything_in(tmp_path) == before


@pytest.mark.case("DB-17")
def test_a_database_from_the_future_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent()):
            pass

    run(scenario())
    with closing(sqlite3.connect(tmp_path / "state.db")) as database:
        database.execute(f"PRAGMA user_version = {len(STEPS) + 1}")
    before = (tmp_path / "state.db").read_bytes()
    with pytest.raises(NewerSchema):
        run(scenario())
    assert (tmp_path / "state.db").read_bytes() == before
    # The lock is free again: the right version can be started at once.
    with closing(sqlite3.connect(tmp_path / "state.db")) as database:
        database.execute(f"PRAGMA user_version = {len(STEPS)}")
    run(scenario())


@pytest.mark.case("SH-08")
def test_a_home_has_one_gateway(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent()):
            with pytest.raises(HomeLocked) as refused:
                async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent()):
                    raise AssertionError("it must not start")
            assert refused.value.pid == os.getpid()
            await platform.say("still there")
            assert await platform.next_text() == "still there"

    run(scenario())


def test_a_request_to_stop_ends_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent()):
            await asyncio.to_thread(request, home_at(tmp_path).state_root, "stop")
            await asyncio.get_running_loop().create_future()

    with pytest.raises(HermesError, match="told to stop"):
        run(scenario())


# ── what it runs on ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.case("DB-12")
def test_sessions_made_in_one_frozen_instant_are_as_many_as_there_are(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent, config=FAST, wall=WallClock()):
            await asyncio.gather(*(platform.say("hi", chat=f"c{n}") for n in range(500)))
            await next_texts(platform, 500)

    run(scenario())
    assert rows(
        tmp_path, "SELECT COUNT(DISTINCT id), COUNT(DISTINCT session_key) FROM session"
    ) == [(500, 500)]
    assert rows(tmp_path, "SELECT COUNT(DISTINCT id) FROM turn") == [(500,)]


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""


@pytest.mark.case("DB-06")
def test_a_lock_of_another_process_costs_no_message_and_no_sign_of_life(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        home = home_at(tmp_path)
        async with gateway(tmp_path, platform, agent):
            await platform.say("before")
            assert await platform.next_text() == "before"
            stranger = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                HOLD,
                home.database(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            assert stranger.stdout is not None
            assert await stranger.stdout.readline() == b"held\n"
            calls = [
                asyncio.create_task(platform.say(f"n{number}", chat=f"c{number % 20}"))
                for number in range(50)
            ]
            for _ in range(3):
                async with asyncio.timeout(1):
                    status = await asyncio.to_thread(request, home.state_root, "status")
                assert status["pid"] == os.getpid()
            assert not any(call.done() for call in calls)
            await stranger.communicate(b"go\n")
            results = await asyncio.gather(*calls)
            assert all(isinstance(result, Accepted) for result in results)
            await next_texts(platform, 50)
        for chat in range(20):
            expected = [f"n{number}" for number in range(50) if number % 20 == chat]
            before = ["before"] if chat == 1 else []
            assert platform.texts(f"c{chat}") == [*before, *expected]

    run(scenario())


def test_a_clock_that_jumps_disturbs_nothing(tmp_path: Path) -> None:
    clock = WallClock()

    async def scenario() -> None:
        async def jumps(turn: Turn) -> AsyncIterator[AgentEvent]:
            clock.advance(float(turn.messages[0].text))
            yield Text("there")

        platform, agent = ScriptedPlatform(), ScriptedAgent(jumps)
        async with gateway(tmp_path, platform, agent, wall=clock):
            for step in ("86400", "-172800", "0", "3600", "-7200"):
                await platform.say(step)
                assert (await platform.next_text()).endswith("there")

    run(scenario())


def test_commands_work_beside_a_turn_that_is_stuck(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        agent.gate("stuck")
        config = "[gateway]\nmax_running_turns = 1\n"
        async with gateway(tmp_path, platform, agent, config=config):
            await platform.say("stuck")
            await agent.started(1)
            for text in ("/status", "/help", "/whoami"):
                assert isinstance(await platform.say(text, chat="c2"), Handled)
                assert await platform.next_text()
            await platform.say("/stop")
            assert (await platform.next_text()).startswith("Stopped")
            await platform.say("go on", chat="c2")
            assert await platform.next_text() == "go on"

    run(scenario(), speed=HASTY)
