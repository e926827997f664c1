"""Stop, drain, restart: what runs, what waits, and what people are told meanwhile."""

from __future__ import annotations

import signal
import time

import pytest

from hermes_core.errors import HermesError
from tests.e2e.stage import READY, SETTINGS, Stage, until


def with_grace(seconds: float) -> str:
    return f'[gateway]\nshutdown_grace = "{seconds}s"\n{SETTINGS}'


@pytest.mark.case("SH-01")
def test_a_stop_lets_turns_finish_and_begins_the_others_again(stage: Stage) -> None:
    stage.settings(with_grace(3))
    gateway = stage.run().ready()
    for chat in ("soon", "later", "never"):
        stage.say(f"gate {chat}", chat=chat)
        stage.began(f"gate {chat}")
    gateway.signal(signal.SIGTERM)
    gateway.logged("stopping: no new turn begins")
    stage.open_gate("soon")
    stage.answered("gate soon")
    assert stage.say("behind", chat="later")["type"] == "Accepted"
    until(lambda: any("about to restart" in text for text in stage.sent("later")))
    stage.open_gate("later")
    assert gateway.wait() == 0
    assert stage.answers() == ["gate soon", "gate later"]
    stage.open_gate("never")
    stage.run().ready()
    stage.answered("gate never", "behind")
    assert stage.runs()[3:] in (
        [("gate never", 2), ("behind", 1)],
        [("behind", 1), ("gate never", 2)],
    )
    assert [len(stage.answers(chat)) for chat in ("soon", "later", "never")] == [1, 2, 1]
    # Only the chat in which somebody wrote during the stop was told about it, once.
    assert len(stage.sent()) == 5


@pytest.mark.case("SH-02")
def test_kill_9_during_a_drain_loses_nothing(stage: Stage) -> None:
    stage.settings(with_grace(30))
    gateway = stage.run().ready()
    for chat in ("a", "b"):
        stage.say_all([f"gate {chat}", f"{chat}1", f"{chat}2"], chat=chat)
        stage.began(f"gate {chat}")
    gateway.signal(signal.SIGTERM)
    gateway.logged("stopping: no new turn begins")
    stage.open_gate("a")
    stage.answered("gate a")
    gateway.kill()
    stage.open_gate("b")
    stage.run().ready()
    stage.answered("gate b", "a1", "a2", "b1", "b2")
    assert stage.answers("a") == ["gate a", "a1", "a2"]
    assert stage.answers("b") == ["gate b", "b1", "b2"]
    assert stage.runs().count(("gate a", 1)) == 1
    assert ("gate a", 2) not in stage.runs()
    assert ("gate b", 2) in stage.runs()


@pytest.mark.case("DR-12")
def test_a_drain_that_nobody_ends_ends_by_itself(stage: Stage) -> None:
    gateway = stage.run().ready()
    begun = stage.hermes("drain", "--for", "4")
    assert begun.returncode == 0, begun.stderr
    stage.say_all(["one", "two"])
    code, facts = stage.status()
    assert code == 0
    assert facts["drain"]["owner"]
    assert 0 < facts["drain"]["seconds_left"] < 4
    shown = stage.hermes("status").stdout
    assert f"draining: asked for by {facts['drain']['owner']}" in shown
    if time.time() < facts["drain"]["since"] + 3:
        assert stage.runs() == []
    stage.answered("one", "two")
    assert len([text for text in stage.sent() if "being worked on" in text]) == 1
    assert stage.status()[1]["drain"] is None
    assert gateway.stop() == 0


@pytest.mark.case("DR-06")
def test_what_is_accepted_during_a_stop_runs_and_what_is_not_is_said_so(stage: Stage) -> None:
    stage.settings(f"{with_grace(30)}[sessions]\nmax_waiting = 8\n")
    gateway = stage.run().ready()
    stage.say("gate one")
    stage.began("gate one")
    gateway.signal(signal.SIGTERM)
    gateway.logged("stopping: no new turn begins")
    outcomes = [outcome["type"] for outcome in stage.say_all([f"n{n}" for n in range(12)])]
    assert outcomes == ["Accepted"] * 8 + ["Refused"] * 4
    until(lambda: len([text for text in stage.sent() if "Not taken" in text]) == 1)
    stage.open_gate("one")
    assert gateway.wait() == 0
    assert stage.answers() == ["gate one"]
    stage.run().ready()
    stage.answered("n7")
    assert stage.answers() == ["gate one", *(f"n{n}" for n in range(8))]


@pytest.mark.case("DR-14")
def test_a_turn_that_asks_for_a_restart_is_finished_before_it(stage: Stage) -> None:
    stage.settings(with_grace(30))
    gateway = stage.run().ready()
    stage.say_all(["restart me", "next"])
    gateway.logged("stopping: no new turn begins")
    stage.open_gate("me")
    gateway.ready(starts=2)
    stage.answered("restart me", "next")
    assert stage.answers() == ["restart me", "next"]
    assert stage.runs() == [("restart me", 1), ("next", 1)]
    assert gateway.stop() == 0


@pytest.mark.case("DR-14")
def test_a_turn_that_asks_for_a_restart_and_is_too_slow_is_taken_up_afterwards(
    stage: Stage,
) -> None:
    stage.settings(with_grace(0.5))
    gateway = stage.run().ready()
    stage.say("restart me")
    gateway.ready(starts=2)
    stage.open_gate("me")
    stage.answered("restart me")
    assert stage.runs() == [("restart me", 1), ("restart me", 2)]
    assert len(stage.sent()) == 1
    assert gateway.stop() == 0


@pytest.mark.case("DR-14")
@pytest.mark.case("SH-13")
def test_a_turn_that_asks_for_a_restart_each_time_is_given_up(stage: Stage) -> None:
    stage.settings(with_grace(0))
    gateway = stage.run().ready()
    stage.say_all(["always me", "next"])
    stage.answered("next")
    gateway.ready(starts=6)
    assert [attempt for text, attempt in stage.runs() if text == "always me"] == [1, 2, 3, 4, 5]
    assert len([text for text in stage.sent() if "was stopped each time" in text]) == 1
    assert "always me" in stage.hermes("inbox", "list", "--dead").stdout
    assert gateway.stop() == 0
    assert gateway.log.count(READY) == 6


@pytest.mark.case("SH-13")
def test_a_restart_command_that_is_offered_again_is_not_obeyed_again(stage: Stage) -> None:
    stage.settings(f'{SETTINGS}[platforms.wire]\nadmins = ["boss"]\nallowed_users = ["boss"]\n')
    gateway = stage.run().ready()
    assert stage.say("/restart", user="boss", event_id="r1")["type"] == "Handled"
    gateway.ready(starts=2)
    for _ in range(3):
        assert stage.say("/restart", user="boss", event_id="r1")["type"] == "Duplicate"
    stage.say("still there?", user="boss")
    stage.answered("still there?")
    assert len([text for text in stage.sent() if text == "Restarting."]) == 1
    assert gateway.log.count(READY) == 2
    assert gateway.stop() == 0


def test_a_second_signal_ends_a_stop_at_once_and_loses_nothing(stage: Stage) -> None:
    stage.settings(with_grace(30))
    gateway = stage.run().ready()
    stage.say_all(["held one", "two"])
    stage.began("held one")
    gateway.signal(signal.SIGTERM)
    gateway.logged("stopping: no new turn begins")
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 1
    with pytest.raises(HermesError):
        stage.say("nobody hears this")
    stage.open_gate("one")
    stage.run().ready()
    stage.answered("held one", "two")
    assert stage.runs() == [("held one", 1), ("held one", 2), ("two", 1)]
