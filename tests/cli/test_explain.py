"""`hermes explain`: the whole story behind any id, and no story where there is none."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hermes_core.errors import SendRejected
from hermes_core.store import erasing
from hermes_core.testing import OK, ScriptedAgent, ScriptedPlatform, gateway
from tests.cli.rows import Rows, rows_in, run

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[Rows]:
    with rows_in(tmp_path / "home" / "state.db") as rows:
        yield rows


def story(hermes: Hermes, wanted: str) -> dict[str, Any]:
    result = hermes("explain", wanted, "--json")
    assert result.returncode == 0, result.stderr
    told: dict[str, Any] = json.loads(result.stdout)
    return told


def whats(told: dict[str, Any]) -> list[str]:
    times = [step["at"] for step in told["steps"]]
    assert times == sorted(times)
    assert all(step["reason"] for step in told["steps"] if step["end"])
    return [step["what"] for step in told["steps"]]


def test_every_id_of_an_answered_message_tells_the_same_story(rows: Rows, hermes: Hermes) -> None:
    sequence = rows.arrive("hello", event="e1")
    taken = rows.take()
    first, second = rows.answer(taken, "one ", "two")
    rows.settle(first, "delivered", message="m7")
    rows.settle(second, "failed", reason="refused by the platform: blocked", at=104.0)
    ids = (f"inbox:{sequence}", "1", "e1", taken.turn_id, taken.turn_id[:8], first, second, "m7")
    told = [story(hermes, wanted) for wanted in ids]
    assert all(one["steps"] == told[0]["steps"] for one in told)
    assert whats(told[0]) == ["received", "turn", "turn", "outbox", "outbox", "delivered", "failed"]
    assert told[0]["outcome"] == "answered, partly sent"
    assert told[0]["steps"][-1]["reason"] == "refused by the platform: blocked"
    assert told[0]["steps"][0]["said"] == "hello"
    text = hermes("explain", "e1").stdout
    assert "message e1 from u1 on demo, chat c1: hello" in text
    assert "arrived as message m7 after 1 attempt" in text
    assert text.endswith("outcome: answered, partly sent\n")


def test_a_turn_that_a_crash_cut_is_told_with_its_second_attempt(
    rows: Rows, hermes: Hermes
) -> None:
    rows.arrive("hello", event="e1")
    cut = rows.take(at=101.0)
    rows.crash(at=110.0)
    again = rows.take(at=111.0)
    rows.answer(again, "hi", at=112.0)
    for wanted in ("e1", cut.turn_id, again.turn_id):
        told = story(hermes, wanted)
        turns = [step["id"] for step in told["steps"] if step["what"] == "turn"]
        assert turns == [cut.turn_id, cut.turn_id, again.turn_id, again.turn_id]
        assert "the gateway crashed" in [step["reason"] for step in told["steps"]]
        assert told["outcome"] == "answered, pending"


def test_what_waits_runs_or_was_given_up(rows: Rows, hermes: Hermes) -> None:
    rows.dead(event="e1")
    told = story(hermes, "e1")
    assert whats(told)[-1] == "dead"
    assert told["steps"][-1]["reason"] == "the gateway crashed"
    rows.arrive("next", event="e2", chat="c2")
    assert story(hermes, "e2")["outcome"].startswith("waits for its turn")
    turn = rows.take("c2")
    assert story(hermes, "e2")["outcome"].startswith(f"turn {turn.turn_id} is running")
    rows.arrive("gone", event="e3", ended="withdrawn")
    assert story(hermes, "e3")["outcome"] == "withdrawn"


def test_a_session_is_told_with_its_turns(rows: Rows, hermes: Hermes) -> None:
    for number in range(60):
        rows.arrive(f"text {number}", event=f"e{number}", at=100.0 + number)
        taken = rows.take(at=100.25 + number)
        rows.answer(taken, "ok", at=100.5 + number)
    told = story(hermes, taken.session_id)
    assert told["left_out"] == 10
    assert whats(told)[0] == "session"
    assert sum(step["what"] == "received" for step in told["steps"]) == 50
    assert told["outcome"] == "current, 60 turns, 60 lines of transcript"
    assert "10 earlier turns are left out" in hermes("explain", taken.session_id).stdout


@pytest.mark.case("CL-07")
def test_an_id_of_several_things_lists_them(rows: Rows, hermes: Hermes) -> None:
    """Platforms number their messages per chat."""
    for chat in ("c1", "c2"):
        rows.arrive(f"said in {chat}", event="17", chat=chat)
    result = hermes("explain", "17")
    assert (result.returncode, result.stdout) == (1, "")
    assert "inbox:1 " in result.stderr
    assert "inbox:2 " in result.stderr
    assert "said in c2" in result.stderr
    assert story(hermes, "inbox:2")["steps"][0]["said"] == "said in c2"
    # A number may be a sequence and a platform's id at once.
    rows.arrive("third", event="1", chat="c3")
    listed = hermes("explain", "1").stderr
    assert "inbox:1 " in listed
    assert "inbox:3 " in listed
    turns = [rows.take(chat).turn_id for chat in ("c1", "c2")]
    begins = hermes("explain", "t_").stderr
    assert all(turn in begins for turn in turns)


@pytest.mark.case("CL-07")
def test_an_unknown_id_is_not_found(rows: Rows, hermes: Hermes) -> None:
    rows.arrive("hello", event="e1")
    for wanted in ("nope", "t_0000", "inbox:9", "99999999999999999999999", "%", "e_", ""):
        result = hermes("explain", wanted)
        assert (result.returncode, result.stdout) == (1, ""), wanted
        assert "nothing is known of" in result.stderr
        assert "`hermes auth denials`" in result.stderr


@pytest.mark.case("CL-07")
def test_trouble_with_the_database_is_a_failure(hermes: Hermes, tmp_path: Path) -> None:
    path = tmp_path / "home" / "state.db"
    result = hermes("explain", "e1")
    assert result.returncode == 1
    assert "there is no state database yet" in result.stderr
    assert not path.parent.exists(), "looking creates nothing"
    with rows_in(path) as rows:
        for number in range(200):
            rows.arrive("text " * 100, event=f"e{number}", chat=f"c{number}")
    damaged = bytearray(path.read_bytes())
    damaged[8192:] = b"\x55" * (len(damaged) - 8192)
    path.write_bytes(damaged)
    result = hermes("explain", "e1")
    assert result.returncode == 1
    assert "cannot use the state database" in result.stderr
    assert "Traceback" not in result.stderr


def test_edits_and_what_was_erased(rows: Rows, hermes: Hermes) -> None:
    rows.arrive("hello", event="e1", at=100.0)
    rows.arrive("hullo", event="e2", message="e1", at=100.5, ended="changed a waiting message")
    rows.answer(rows.take(), "hi")
    rows.write(lambda tx: tx.execute("UPDATE inbox SET payload = X''"))
    rows.write(lambda tx: tx.execute("UPDATE outbox SET payload = X''"))
    told = story(hermes, "e1")
    assert "changed a waiting message" in [step["reason"] for step in told["steps"]]
    assert {step["said"] for step in told["steps"]} == {""}
    assert story(hermes, "e2")["steps"] == told["steps"]


def test_beside_a_running_gateway(tmp_path: Path, hermes: Hermes) -> None:
    async def play() -> list[dict[str, Any]]:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path / "home", platform, agent):
            platform.results.extend([OK, SendRejected("blocked")])
            await platform.say("hello")
            await platform.next_text()
            await platform.say("/sessions")
            await platform.say("/help all")
            await platform.next_text()
            return [await asyncio.to_thread(story, hermes, wanted) for wanted in ("e1", "e2", "m1")]

    answered, command, sent = run(play())
    assert answered["outcome"] == "answered, sent"
    assert command["outcome"] == "refused by the platform"
    assert "command sessions" in [step["reason"] for step in command["steps"]]
    assert sent["steps"] == answered["steps"]


def test_a_story_whose_content_is_erased_says_so(rows: Rows, hermes: Hermes) -> None:
    sequence = rows.arrive("hello", event="e1")
    taken = rows.take()
    first, second = rows.answer(taken, "one ", "two")
    rows.settle(first, "delivered", message="m7")
    rows.settle(second, "failed", reason="refused by the platform: blocked")
    before = whats(story(hermes, "e1"))
    rows.write(lambda tx: erasing.erase_inbox(tx, 1000.0))
    rows.write(lambda tx: erasing.erase_outbox(tx, 1000.0))
    for wanted in (f"inbox:{sequence}", "e1", taken.turn_id, first, "m7"):
        told = story(hermes, wanted)
        assert whats(told) == before
        assert told["outcome"] == "answered, partly sent"
        assert {step["said"] for step in told["steps"]} == {""}
    text = hermes("explain", "e1").stdout
    assert "message e1 from u1 on demo, chat c1 (its content is erased by age)" in text
    assert text.count("erased by age") == 3
