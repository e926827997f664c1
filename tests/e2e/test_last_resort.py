"""The end comes in time, whatever hangs, and what hung is named."""

from __future__ import annotations

import configparser
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hermes_core.config.sections import GatewaySettings
from hermes_core.serving import EXIT_GRACE, START_LIMIT, STOP_MARGIN
from hermes_core.supervision.watchdog import ESCORT
from tests.e2e.stage import ROOT, SETTINGS, Running, Stage, until

HASTY = """
import sys
from hermes_core import serving
serving.START_LIMIT, serving.STOP_MARGIN = 3.0, 1.0
serving.EXECUTOR_GRACE = serving.EXIT_GRACE = 0.5
from hermes_core.cli import main
sys.argv = ["hermes", "run"]
sys.exit(main())
"""
"""`hermes run` with little patience."""

CLOSING = """
import asyncio, os, threading, time
from hermes_core import Adapter, Platform, Receipt, Settings, hookimpl

class Nothing(Settings):
    pass

class Stubborn(Adapter[Nothing]):
    @hookimpl
    async def connect(self):
        WORK

    @hookimpl
    async def disconnect(self):
        HANG

    @hookimpl
    async def send(self, message):
        return Receipt(message_id="x")

@hookimpl
def platforms():
    return [Platform(name="stubborn", adapter=Stubborn, settings=Nothing, max_length=99,
                     implicit=True)]
"""
UNIT = ROOT / "contrib" / "systemd" / "hermes.service"


def hasty(stage: Stage, **environment: str) -> Running:
    return stage.start([sys.executable, "-c", HASTY], **environment)


def stubborn(work: str = "pass", hang: str = "pass") -> str:
    return CLOSING.replace("WORK", work).replace("HANG", hang)


@pytest.mark.case("SH-09")
@pytest.mark.parametrize(
    ("work", "hang", "named"),
    [
        ("pass", "await asyncio.get_running_loop().create_future()", "disconnect"),
        ("threading.Thread(target=time.sleep, args=(600,), name='endless').start()", "", "endless"),
        ("asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)", "", "in a thread"),
    ],
    ids=["disconnect", "thread", "executor"],
)
def test_what_does_not_end_is_named_and_left_behind(
    stage: Stage, work: str, hang: str, named: str
) -> None:
    stage.settings(f'[gateway]\nshutdown_grace = "0s"\n{SETTINGS}')
    stage.install("stubborn", stubborn(work, hang or "pass"))
    # A hook that hangs has its own limit, which is longer than little patience.
    gateway = (stage.run() if hang else hasty(stage)).ready()
    gateway.logged("connected (profile=default account=stubborn)")
    began = time.monotonic()
    assert gateway.stop() == 0
    assert time.monotonic() - began < STOP_MARGIN
    assert named in gateway.log.partition("stopping: ")[2]
    # The next start has nothing to complain about: it was an end in order.
    second = stage.run().ready()
    assert "the last run" not in second.log
    second.kill()


@pytest.mark.case("SH-09")
def test_an_adapter_that_blocks_the_loop_at_the_end_is_ended_by_the_watchdog(stage: Stage) -> None:
    stage.settings(f'[gateway]\nshutdown_grace = "0s"\n{SETTINGS}')
    stage.install("stubborn", stubborn(hang="time.sleep(600)"))
    gateway = hasty(stage).ready()
    gateway.logged("connected (profile=default account=stubborn)")
    assert gateway.stop() == 1
    report = (stage.home / "watchdog.txt").read_text()
    assert report.startswith("the stop took more than 1 s")
    assert "hermes_plugin_stubborn.py" in report
    second = stage.run().ready()
    line = second.logged("the last run did not end by itself")
    assert "its watchdog ended it: the stop took more than 1 s" in line
    assert (stage.home / "watchdog.last.txt").read_text() == report
    second.kill()


@pytest.mark.case("WD-04")
def test_a_deadlock_at_import_ends_with_the_code_for_a_restart_and_is_told_next_time(
    stage: Stage,
) -> None:
    stage.install(
        "locked",
        "import threading\nlock = threading.Lock()\nlock.acquire()\n"
        "import os\nif 'STUCK' in os.environ: lock.acquire()\n",
    )
    began = time.monotonic()
    assert hasty(stage, STUCK="1").wait() == 75
    assert time.monotonic() - began < 3 + ESCORT + 5
    assert "hermes_plugin_locked.py" in (stage.home / "watchdog.txt").read_text()
    second = stage.run().ready()
    line = second.logged("the last run did not end by itself")
    assert "the start took more than 3 s" in line
    second.kill()


def test_a_run_that_was_killed_is_told_next_time(stage: Stage) -> None:
    stage.run().ready().kill()
    second = stage.run().ready()
    assert "it was killed, or lost its power" in second.logged("the last run did not end by itself")
    assert second.stop() == 0
    third = stage.run().ready()
    assert "the last run" not in third.log
    third.kill()


WATCHED = """
import logging, os, resource, sys, threading, time
from pathlib import Path
from hermes_core.supervision.watchdog import Deadline

def hang():
    logging._lock.acquire() if sys.argv[2] == "log lock" else None
    if sys.argv[2] == "stderr closed":
        sys.stderr.close()
        os.close(2)
    if sys.argv[2] == "disk full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    if sys.argv[2] == "import lock":
        sys.path.insert(0, sys.argv[3])
        import hangs
    time.sleep(600)

with Deadline(0.2, code=75, report=Path(sys.argv[1]), what="a test"):
    hang()
"""


@pytest.mark.case("WD-06")
@pytest.mark.parametrize("what", ["log lock", "stderr closed", "disk full", "import lock"])
def test_the_last_resort_needs_nothing(tmp_path: Path, what: str) -> None:
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(600)\n")
    report = tmp_path / "report"
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, report, what, tmp_path],
        cwd=ROOT, timeout=30, check=False, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 75
    if what != "disk full":
        assert "a test took more than 0.2 s" in report.read_text()
        assert "most recent call first" in report.read_text()


@pytest.mark.case("SH-10")
def test_the_service_unit_gives_a_stop_the_time_it_may_take() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[method-assign,assignment]
    unit.read(UNIT)
    service = unit["Service"]
    longest = GatewaySettings().shutdown_grace + STOP_MARGIN + EXIT_GRACE + ESCORT
    assert int(service["TimeoutStopSec"]) > longest
    assert int(service["TimeoutStartSec"]) > START_LIMIT + ESCORT
    assert service["Type"] == "notify"
    assert service["NotifyAccess"] == "main"
    assert service["RestartForceExitStatus"] == "75"
    assert service["RestartPreventExitStatus"] == "2 78"
    assert service["KillMode"] == "mixed"


@pytest.mark.case("SH-10")
@pytest.mark.parametrize("grace", [0.0, 600.0])
def test_a_service_manager_is_told_how_long_a_stop_may_take(stage: Stage, grace: float) -> None:
    """The limit of the unit counts for no more than the settings say: it is asked for what they
    need."""
    stage.settings(f'[gateway]\nshutdown_grace = "{grace}s"\n{SETTINGS}')
    address = f"\0hermes-test-{stage.path.name}-{time.monotonic_ns()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        manager.settimeout(30)
        gateway = stage.run(NOTIFY_SOCKET=f"@{address[1:]}")
        assert manager.recv(1000) == b"READY=1"
        stage.say("held one")
        stage.began("held one")
        began = time.monotonic()
        gateway.signal(signal.SIGTERM)
        lines = dict(line.split("=") for line in manager.recv(1000).decode().splitlines())
        assert lines["STOPPING"] == "1"
        asked = int(lines["EXTEND_TIMEOUT_USEC"]) / 1e6
        assert asked == grace + STOP_MARGIN + EXIT_GRACE + ESCORT
        if grace:
            gateway.kill()
        else:
            assert gateway.wait() == 0
            assert time.monotonic() - began < asked
    until(lambda: stage.status()[0] == 3)
