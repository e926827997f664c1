"""The lock between real processes: kill -9, forks, and many that start at once."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_core.errors import HomeLocked
from hermes_core.supervision.identity import Identity
from hermes_core.supervision.lock import HomeLock, holder

Start = Callable[..., "subprocess.Popen[str]"]

HOLD = """
import sys
from pathlib import Path
from hermes_core.supervision.lock import HomeLock

HomeLock(Path(sys.argv[1]), runs="hermes run").acquire()
print("held", flush=True)
sys.stdin.read()
"""

HOLD_WITH_CHILDREN = """
import os, subprocess, sys
from pathlib import Path
from hermes_core.supervision.lock import HomeLock

HomeLock(Path(sys.argv[1])).acquire()
if os.fork() == 0:
    sys.stdin.read()
    os._exit(0)
started = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"])
print("held", flush=True)
started.wait()
"""

RACE = """
import json, sys
from pathlib import Path
from hermes_core.errors import HomeLocked
from hermes_core.supervision.lock import HomeLock

for line in sys.stdin:
    lock = HomeLock(Path(line.strip()))
    try:
        lock.acquire()
    except HomeLocked as error:
        print(json.dumps({"won": False, "pid": error.pid}), flush=True)
    else:
        print(json.dumps({"won": True, "pid": None}), flush=True)
        sys.stdin.readline()
        lock.release()
"""

TINY_FILES = """
import resource, signal, sys
from pathlib import Path
from hermes_core.errors import HermesError
from hermes_core.supervision.lock import HomeLock

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
try:
    HomeLock(Path(sys.argv[1])).acquire()
except HermesError as error:
    print(error, flush=True)
"""


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


@pytest.mark.case("SH-08")
def test_the_second_process_is_told_who_the_first_is(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "gateway.lock"
    first = start(HOLD, path)
    assert hear(first) == "held"
    content = path.read_bytes()
    with pytest.raises(HomeLocked) as refusal:
        HomeLock(path).acquire()
    assert refusal.value.pid == first.pid
    assert path.read_bytes() == content
    found = holder(path)
    assert found is not None
    assert found.identity == Identity.of(first.pid)


@pytest.mark.case("SH-04")
def test_kill_9_frees_the_home_at_once(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "gateway.lock"
    for _ in range(3):
        process = start(HOLD, path)
        assert hear(process) == "held"
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert json.loads(path.read_text())["pid"] == process.pid
        assert holder(path) is None
    with HomeLock(path):
        pass


def test_children_do_not_keep_the_home(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "gateway.lock"
    process = start(HOLD_WITH_CHILDREN, path)
    assert hear(process) == "held"
    assert holder(path) is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    # Both children still run: they wait for the end of their standard input.
    with HomeLock(path):
        pass


@pytest.mark.case("SH-08")
def test_twenty_races_of_four_have_one_winner_each(start: Start, tmp_path: Path) -> None:
    racers = [start(RACE) for _ in range(4)]
    link = tmp_path / "link"
    for number in range(20):
        home = tmp_path / f"home-{number}"
        home.mkdir()
        link.unlink(missing_ok=True)
        link.symlink_to(home)
        for index, racer in enumerate(racers):
            say(racer, f"{link if index % 2 else home}/gateway.lock")
        results = [json.loads(hear(racer)) for racer in racers]
        winners = [racer for racer, result in zip(racers, results, strict=True) if result["won"]]
        assert len(winners) == 1
        assert {result["pid"] for result in results} == {None, winners[0].pid}
        assert [entry.name for entry in home.iterdir()] == ["gateway.lock"]
        say(winners[0], "release")


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit of file sizes")
def test_a_full_disk_is_one_clear_line_and_keeps_nothing_locked(
    start: Start, tmp_path: Path
) -> None:
    path = tmp_path / "gateway.lock"
    process = start(TINY_FILES, path)
    assert "cannot lock the home: File too large" in hear(process)
    with HomeLock(path):
        pass
