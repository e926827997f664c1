"""`hermes inbox`: what waits and what was given up, and another chance for it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_core.store import erasing, turns
from hermes_core.supervision.lock import HomeLock
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from tests.cli.rows import Rows, rows_in, run

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "home" / "state.db"


@pytest.fixture
def rows(database: Path) -> Iterator[Rows]:
    with rows_in(database) as rows:
        yield rows


def listed(hermes: Hermes, *options: str) -> list[dict[str, Any]]:
    result = hermes("inbox", "list", "--json", *options)
    assert result.returncode == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def test_listing_what_waits_and_what_was_given_up(rows: Rows, hermes: Hermes) -> None:
    dead = rows.dead(event="e1", text="the last straw")
    waiting = rows.arrive("later", event="e2")
    rows.arrive("gone", event="e3", ended="withdrawn")
    found = listed(hermes)
    assert [row["state"] for row in found] == ["done", "waiting", "dead"]
    assert [row["sequence"] for row in listed(hermes, "--dead")] == [dead]
    assert [row["sequence"] for row in listed(hermes, "--waiting")] == [waiting]
    assert listed(hermes, "--limit", "1") == found[:1]
    text = hermes("inbox", "list", "--dead").stdout
    assert f"inbox:{dead}" in text
    assert "the gateway crashed" in text
    assert "the last straw" in text


def test_a_message_that_could_not_be_read_says_so_everywhere(rows: Rows, hermes: Hermes) -> None:
    sequence = rows.arrive("hello", event="e1")
    rows.write(lambda tx: tx.execute("UPDATE inbox SET payload = x'ff'"))
    rows.write(lambda tx: turns.take(tx, "agent:main:demo:dm:c1", 101.0, coalesce=False))
    (found,) = listed(hermes, "--dead")
    assert (found["sequence"], found["text"]) == (sequence, "")
    assert found["reason"] == "what is stored of it cannot be read"
    assert found["reason"] in hermes("inbox", "list").stdout
    assert found["reason"] in hermes("explain", "e1").stdout


def test_what_a_kill_or_a_stop_cut_is_not_said_to_run(
    rows: Rows, hermes: Hermes, database: Path
) -> None:
    rows.arrive("killed", event="e1", chat="c1")
    rows.take("c1")
    rows.arrive("stopped", event="e2", chat="c2")
    taken = rows.take("c2")
    rows.write(lambda tx: turns.interrupt(tx, 1.0, "the gateway stopped", taken.turn_id))
    rows.arrive("never begun", event="e3", chat="c3")

    def states() -> list[str]:
        lines = hermes("inbox", "list", "--waiting").stdout.splitlines()[1:]
        return [re.split(r"\s{2,}", line)[1] for line in lines]

    assert states() == ["waiting", "waiting (cut)", "waiting (cut)"]
    with HomeLock(database.with_name("gateway.lock")):
        assert states() == ["waiting", "waiting (cut)", "running"]


@pytest.mark.case("CL-07")
def test_replay_and_discard_without_a_gateway(rows: Rows, hermes: Hermes) -> None:
    dead = rows.dead(event="e1")
    waiting = rows.arrive("later", event="e2")
    replayed = hermes("inbox", "replay", "e1")
    assert replayed.stdout == f"inbox:{dead} waits again, as inbox:{waiting + 1}\n"
    assert [row["sequence"] for row in listed(hermes, "--waiting")] == [waiting + 1, waiting]
    assert listed(hermes, "--dead") == []
    story = json.loads(hermes("explain", f"inbox:{dead}", "--json").stdout)
    assert f"replayed by hand as inbox:{waiting + 1}" in [step["reason"] for step in story["steps"]]
    for wanted in (str(dead), f"inbox:{waiting}"):
        result = hermes("inbox", "replay", wanted)
        assert (result.returncode, result.stdout) == (1, "")
        assert "only dead ones are replayed" in result.stderr
    assert hermes("inbox", "discard", f"inbox:{waiting}").returncode == 0
    assert [row["sequence"] for row in listed(hermes, "--waiting")] == [waiting + 1]
    again = hermes("inbox", "discard", f"inbox:{waiting}")
    assert (again.returncode, again.stdout) == (1, "")
    assert "there is nothing to discard" in again.stderr


@pytest.mark.case("CL-07")
def test_ids_that_name_nothing_or_too_much(rows: Rows, hermes: Hermes) -> None:
    for chat in ("c1", "c2"):
        rows.arrive(f"said in {chat}", event="e17", chat=chat)
    for action in ("replay", "discard"):
        for wanted in ("nope", "inbox:9", "", "-1x"):
            result = hermes("inbox", action, "--", wanted)
            assert (result.returncode, result.stdout) == (1, "")
            assert "there is no message" in result.stderr
        result = hermes("inbox", action, "e17")
        assert (result.returncode, result.stdout) == (1, "")
        assert "inbox:1 " in result.stderr
        assert "said in c2" in result.stderr
    assert len(listed(hermes, "--waiting")) == 2


def test_what_runs_is_left_alone(rows: Rows, hermes: Hermes) -> None:
    rows.arrive("now", event="e1")
    rows.take()
    result = hermes("inbox", "discard", "e1")
    assert (result.returncode, result.stdout) == (1, "")
    assert "being answered, or was when the gateway was killed" in result.stderr


def test_a_running_gateway_answers_what_is_replayed(
    rows: Rows, tmp_path: Path, hermes: Hermes
) -> None:
    dead = rows.dead(event="e0", text="try me again")

    async def play() -> None:
        platform, agent = ScriptedPlatform("demo"), ScriptedAgent()
        async with gateway(tmp_path / "home", platform, agent):
            await platform.say("before")
            assert await platform.next_text() == "before"
            done = await asyncio.to_thread(hermes, "inbox", "replay", str(dead))
            assert done.returncode == 0, done.stderr
            assert await platform.next_text() == "try me again"
            assert agent.runs[-1].attempt == 1
            repeated = await platform.say("try me again", event_id="e0")
            assert type(repeated).__name__ == "Duplicate"

    run(play())
    assert "answered" in json.loads(hermes("explain", "e0", "--json").stdout)["outcome"]


def test_a_running_gateway_forgets_what_is_discarded(tmp_path: Path, hermes: Hermes) -> None:
    async def play() -> list[str]:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        gate = agent.gate("wait")
        async with gateway(tmp_path / "home", platform, agent):
            for text in ("wait", "drop me", "keep me"):
                await platform.say(text)
            await agent.started(1)
            (_, unwanted, _) = await asyncio.to_thread(listed, hermes, "--waiting")
            done = await asyncio.to_thread(hermes, "inbox", "discard", str(unwanted["sequence"]))
            assert done.returncode == 0, done.stderr
            gate.set()
            return [await platform.next_text() for _ in range(2)]

    assert run(play()) == ["wait", "keep me"]
    assert listed(hermes, "--waiting") == []


def test_what_is_erased_by_age_is_listed_and_not_replayed(rows: Rows, hermes: Hermes) -> None:
    dead = rows.dead(event="e1", text="the last straw")
    rows.write(lambda tx: erasing.erase_inbox(tx, 1000.0))
    (row,) = listed(hermes, "--dead")
    assert (row["sequence"], row["text"], row["erased"]) == (dead, "", True)
    assert "(erased)" in hermes("inbox", "list").stdout
    refused = hermes("inbox", "replay", "e1")
    assert refused.returncode == 1
    assert f"the content of inbox:{dead} is erased by age" in refused.stderr
    assert listed(hermes, "--dead") == [row]
    assert hermes("inbox", "discard", "e1").returncode == 0
