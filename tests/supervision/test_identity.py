from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from hermes_core.supervision.identity import Identity, started_by_ps


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def test_the_running_process_is_alive_and_only_it() -> None:
    me = Identity.current()
    assert me.pid == os.getpid()
    assert me.alive()
    assert Identity.of(os.getpid()) == me
    assert Identity.of(os.getppid()) != me


def test_a_process_is_another_one_when_it_started_at_another_time(
    sleeper: subprocess.Popen[bytes],
) -> None:
    identity = Identity.of(sleeper.pid)
    assert identity is not None
    impostor = Identity(sleeper.pid, Identity.current().started + "0")
    assert identity.alive()
    assert not impostor.alive()
    assert not impostor.signal(signal.SIGKILL)
    assert sleeper.poll() is None


def test_a_process_is_gone_as_soon_as_it_was_killed(sleeper: subprocess.Popen[bytes]) -> None:
    identity = Identity.of(sleeper.pid)
    assert identity is not None
    assert identity.signal(signal.SIGKILL)
    # Its remains are kept until they are waited for.
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.alive()
    assert Identity.of(sleeper.pid) is None
    assert not identity.signal(signal.SIGTERM)
    sleeper.wait()
    assert not identity.alive()
    assert not identity.signal(signal.SIGTERM)


@pytest.mark.parametrize("pid", [0, -1, 2**22 + 1, 2**40])
def test_what_is_no_process_id_is_nobody(pid: int) -> None:
    assert Identity.of(pid) is None
    assert not Identity(pid, "").alive()


def test_the_json_form_reads_back() -> None:
    me = Identity.current()
    assert Identity.from_json(json.loads(json.dumps(me.to_json()))) == me


@pytest.mark.parametrize(
    "value",
    [
        None,
        12,
        "12",
        [],
        {},
        {"pid": 12},
        {"pid": "12", "started": "x"},
        {"pid": True, "started": "x"},
        {"pid": -12, "started": "x"},
        {"pid": 12, "started": 5},
    ],
)
def test_other_json_names_no_process(value: object) -> None:
    assert Identity.from_json(value) is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_hostile_command_name_does_not_confuse_it(sleeper: subprocess.Popen[bytes]) -> None:
    script = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(15, b') Z 1 (')"
        "; print('ready', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        identity = Identity.of(process.pid)
        assert identity is not None
        assert identity.alive()
        assert identity != Identity.of(sleeper.pid)
        process.communicate("")


def test_ps_tells_the_start_of_a_process_where_there_is_no_proc(
    sleeper: subprocess.Popen[bytes],
) -> None:
    if started_by_ps(os.getpid()) is None:
        pytest.skip("this system has no ps")
    started = started_by_ps(sleeper.pid)
    assert started is not None
    assert started == started_by_ps(sleeper.pid)
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert started_by_ps(sleeper.pid) is None
    sleeper.wait()
    assert started_by_ps(sleeper.pid) is None
