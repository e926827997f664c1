"""`hermes status` tells the truth about a process, and a stuck one can be ended."""

from __future__ import annotations

import os
import signal

import pytest

from tests.e2e.stage import HERMES, Running, Stage, until

BLOCK = """
import os
from hermes_core import hookimpl

@hookimpl
async def on_turn_start(turn):
    if turn.messages[0] == "block" and turn.attempt == 1:
        open(os.environ["SCENE"] + "/blocked", "w").close()
        open(os.environ["SCENE"] + "/fifo").close()
"""


def block(stage: Stage) -> Running:
    """A gateway whose event loop a hook holds until somebody opens the pipe."""
    stage.install("block", BLOCK)
    os.mkfifo(stage.scene / "fifo")
    gateway = stage.run().ready()
    assert stage.say("block")["type"] == "Accepted"
    until((stage.scene / "blocked").exists)
    return gateway


@pytest.mark.case("CL-01")
def test_idle_starting_frozen_and_dead(stage: Stage) -> None:
    stage.install("wait", "open(__import__('os').environ['SCENE'] + '/fifo').close()\n")
    os.mkfifo(stage.scene / "fifo")
    gateway = stage.run()
    until(lambda: stage.status()[0] != 3)
    code, facts = stage.status()
    assert (code, facts["state"], facts["pid"]) == (4, "starting", gateway.pid)
    (stage.scene / "fifo").open("w").close()
    gateway.ready()
    assert (stage.status()[0], stage.status()[1]["state"]) == (0, "running")
    gateway.signal(signal.SIGSTOP)
    code, facts = stage.status()
    assert (code, facts["state"]) == (4, "unresponsive")
    gateway.signal(signal.SIGCONT)
    assert stage.status()[1]["held"] is None, "a process that stood still was not held by a plugin"
    stage.say("gate on")
    stage.began("gate on")
    gateway.signal(signal.SIGTERM)
    gateway.logged("stopping: no new turn begins")
    assert (stage.status()[0], stage.status()[1]["state"]) == (0, "stopping")
    gateway.kill()
    assert (stage.status()[0], stage.status()[1]["state"]) == (3, "stopped")


@pytest.mark.case("CL-01")
@pytest.mark.case("PL-07")
def test_a_hook_that_holds_the_loop_is_named_while_it_does(stage: Stage) -> None:
    gateway = block(stage)
    line = gateway.logged("the event loop is held by")
    assert "plugin block in on_turn_start" in line
    code, facts = stage.status()
    assert (code, facts["state"], facts["pid"]) == (4, "unresponsive", gateway.pid)
    (stage.scene / "fifo").open("w").close()
    stage.answered("block")
    code, facts = stage.status()
    assert code == 0
    assert facts["held"]["by"] == "plugin block in on_turn_start"
    assert facts["held"]["seconds"] >= 1
    assert "was held once, last" in stage.hermes("status").stdout
    assert gateway.stop() == 0


@pytest.mark.case("CL-06")
def test_a_gateway_that_is_stuck_can_be_stopped_and_replaced(stage: Stage) -> None:
    gateway = block(stage)
    asked = stage.hermes("restart")
    assert asked.returncode == 1
    assert "did not answer" in asked.stderr
    assert gateway.process.poll() is None
    second = stage.run("--replace", "--grace", "1").ready()
    assert gateway.wait() == -signal.SIGKILL
    assert stage.status()[1]["pid"] == second.pid
    stage.answered("block")
    assert stage.runs()[-1] == ("block", 2)
    assert second.stop() == 0


@pytest.mark.case("CL-06")
def test_stop_ends_a_stuck_gateway_by_force_and_says_who_it_was(stage: Stage) -> None:
    gateway = block(stage)
    stopped = stage.hermes("stop", "--grace", "1")
    assert (stopped.returncode, stopped.stdout) == (0, f"stopped the gateway (pid {gateway.pid})\n")
    assert gateway.wait() == -signal.SIGKILL
    assert stage.hermes("stop").returncode == 1
    assert stage.status()[0] == 3


@pytest.mark.case("CL-06")
def test_replace_takes_over_from_a_healthy_one_in_order(stage: Stage) -> None:
    first = stage.run().ready()
    stage.say_all(["gate one", "two"])
    stage.began("gate one")
    second = stage.start([*HERMES, "run", "--replace"])
    first.logged("stopping: no new turn begins")
    stage.open_gate("one")
    assert first.wait() == 0
    second.ready()
    stage.answered("gate one", "two")
    assert stage.answers() == ["gate one", "two"]
    assert second.stop() == 0


def test_status_shows_what_waits_and_what_went_wrong(stage: Stage) -> None:
    stage.install(
        "faulty",
        """
        from hermes_core import hookimpl

        @hookimpl
        async def on_turn_end():
            raise RuntimeError("no luck")
        """,
    )
    gateway = stage.run().ready()
    stage.say_all([f"n{number}" for number in range(6)])
    stage.answered("n5")
    stage.say_all(["gate one", "two", "three"])
    stage.began("gate one")
    code, facts = stage.status()
    assert code == 0
    profile = facts["profiles"][0]
    assert (len(profile["running_turns"]), profile["waiting"]) == (1, 2)
    assert profile["oldest_waiting"] > 0
    until(lambda: stage.status()[1]["breakers"] == [{"plugin": "faulty", "hook": "on_turn_end"}])
    shown = stage.hermes("status").stdout
    assert "waiting messages: 2, the oldest came " in shown
    assert "plugin faulty: on_turn_end is left out after repeated failures" in shown
    stage.open_gate("one")
    assert gateway.stop() == 0


QUIET = """
from hermes_core import Adapter, Platform, Settings, hookimpl

class Quiet(Adapter[Settings]):
    @hookimpl
    async def connect(self, is_reconnect): ...
    @hookimpl
    async def send(self, message): ...

@hookimpl
def platforms():
    return [Platform("quiet", Quiet, Settings, max_length=100)]
"""


def test_a_gateway_that_no_chat_network_reaches_says_so(stage: Stage) -> None:
    stage.install("quiet", QUIET)
    gateway = stage.run()
    said = gateway.logged("no chat network is configured")
    assert "hermes chat" in said
    assert "hermes setup" in said
    assert gateway.ready().stop() == 0
    stage.settings('[agent]\nuse = "scene"\n[platforms.quiet]\n')
    gateway = stage.run().ready()
    assert gateway.stop() == 0
    assert "no chat network" not in gateway.log
