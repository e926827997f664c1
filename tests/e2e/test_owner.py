"""Who owns a home: one process, whatever files say and whoever has its number."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial

import pytest

from hermes_core.supervision.identity import Identity
from hermes_core.supervision.lock import holder
from tests.e2e.stage import HERMES, READY, Running, Stage, sleeper, until


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = sleeper()
    yield process
    assert process.poll() is None, "it has nothing to do with Hermes and still runs"
    process.kill()
    process.wait()


@pytest.mark.case("SH-04")
@pytest.mark.case("SH-05")
def test_whatever_a_lock_file_says_the_home_is_free(
    stage: Stage, stranger: subprocess.Popen[bytes]
) -> None:
    lock = stage.home / "gateway.lock"
    pids = (1, -1, stranger.pid, os.getpid(), 2**22 + 1)
    for content in ("", "text", *(json.dumps({"pid": pid, "started": ""}) for pid in pids)):
        lock.write_text(content)
        assert holder(lock) is None
    strange = Identity.of(stranger.pid)
    assert strange is not None
    lock.write_text(json.dumps(strange.to_json()))
    assert stage.status()[0] == 3
    assert stage.hermes("stop", "--grace", "1").returncode == 1
    gateway = stage.run("--replace").ready()
    assert stage.status()[1]["pid"] == gateway.pid
    gateway.kill()
    assert str(gateway.pid) in lock.read_text(), "what kill -9 left behind"
    assert stage.status()[0] == 3
    second = stage.run().ready()
    assert second.stop() == 0


@pytest.mark.case("SH-04")
def test_a_directory_in_place_of_the_lock_file_is_a_clear_error(stage: Stage) -> None:
    (stage.home / "gateway.lock").mkdir()
    refused = stage.hermes("run")
    assert refused.returncode == 1
    assert "gateway.lock" in refused.stderr
    assert "a directory stands where a file is needed" in refused.stderr
    assert "Traceback" not in refused.stderr


def _one_serves(both: list[Running]) -> bool:
    ended = [one.process.poll() is not None for one in both]
    return any(READY in one.log for one in both) and any(ended)


@pytest.mark.case("SH-08")
def test_of_gateways_that_start_at_once_one_survives(stage: Stage) -> None:
    link = stage.path / "link"
    link.symlink_to(stage.home)
    for _ in range(3):
        both = [stage.run(), stage.run(HERMES_HOME=str(link))]
        until(partial(_one_serves, both))
        (loser,) = [one for one in both if one.process.poll() is not None]
        (winner,) = [one for one in both if one is not loser]
        assert loser.wait() == 1
        assert f"process {winner.pid} (hermes run) holds this home" in loser.log
        assert stage.status()[1]["pid"] == winner.pid
        assert winner.stop() == 0


@pytest.mark.case("SH-08")
def test_a_start_during_a_stop_leaves_the_one_that_stops_alone(stage: Stage) -> None:
    gateway = stage.run().ready()
    stage.say("gate one")
    stage.began("gate one")
    stopping = stage.start([*HERMES, "stop"])
    gateway.logged("stopping: no new turn begins")
    refused = stage.hermes("run")
    assert refused.returncode == 1
    assert f"process {gateway.pid} (hermes run) holds this home" in refused.stderr
    stage.open_gate("one")
    assert gateway.wait() == 0
    assert stopping.wait() == 0
    assert stage.answers() == ["gate one"]
