"""`hermes status` tells the truth about a gateway, whatever state its process is in."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_core.store import sessions
from tests.cli.rows import rows_in

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]

BLOCKER = """
import os, sys
from hermes_core import hookimpl

@hookimpl
def on_gateway_start():
    print("about to block", file=sys.stderr, flush=True)
    open(os.environ["BLOCK_ON"]).close()
"""


@contextmanager
def gateway(environment: dict[str, str], until: str) -> Iterator[subprocess.Popen[str]]:
    """A gateway as a process of its own, which has logged `until`."""
    with subprocess.Popen(
        [sys.executable, "-m", "hermes_core.cli", "run"],
        env=environment, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stderr is not None
        try:
            assert any(until in line for line in running.stderr)
            yield running
        finally:
            if running.poll() is None:
                running.kill()
            running.stderr.read()


def status(hermes: Hermes) -> tuple[int, dict[str, Any]]:
    result = hermes("status", "--json")
    return result.returncode, json.loads(result.stdout)


@pytest.mark.case("CL-01")
def test_running_stopped_by_a_signal_frozen_and_killed(
    environment: dict[str, str], hermes: Hermes
) -> None:
    assert (status(hermes)[0], status(hermes)[1]["state"]) == (3, "stopped")
    with gateway(environment, "the gateway is ready") as running:
        code, facts = status(hermes)
        assert (code, facts["state"], facts["pid"]) == (0, "running", running.pid)
        assert "waiting messages: 0" in hermes("status").stdout
        running.send_signal(signal.SIGSTOP)
        code, facts = status(hermes)
        assert (code, facts["state"], facts["pid"]) == (4, "unresponsive", running.pid)
        assert "did not answer within 3 s" in hermes("status").stdout
        running.send_signal(signal.SIGCONT)
        assert status(hermes)[0] == 0
        running.kill()
        running.wait()
        assert status(hermes)[0] == 3, "what a killed gateway left behind is no gateway"


@pytest.mark.case("CL-01")
def test_a_hook_that_blocks_the_loop(
    environment: dict[str, str], hermes: Hermes, site: Path, tmp_path: Path
) -> None:
    (site / "hermes_plugin_block.py").write_text(BLOCKER)
    info = site / "hermes_plugin_block-1.0.dist-info"
    info.mkdir()
    needs = "Requires-Dist: hermes-gateway[hooks-1]>=0.1"
    name = "Metadata-Version: 2.1\nName: hermes-plugin-block\nVersion: 1.0"
    (info / "METADATA").write_text(f"{name}\n{needs}\n\n")
    (info / "entry_points.txt").write_text("[hermes.plugins]\nblock = hermes_plugin_block\n")
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with gateway({**environment, "BLOCK_ON": str(fifo)}, "about to block") as running:
        code, facts = status(hermes)
        assert (code, facts["state"], facts["pid"]) == (4, "unresponsive", running.pid)
        fifo.open("w").close()
        assert status(hermes)[0] == 0
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=60) == 0
    assert status(hermes)[0] == 3


@pytest.mark.case("CL-07")
def test_sessions_by_id(hermes: Hermes, tmp_path: Path) -> None:
    path = tmp_path / "home" / "state.db"
    with rows_in(path) as rows:
        for chat in ("c1", "c2"):
            rows.arrive("hello", event=f"e-{chat}", chat=chat)
            taken = rows.take(chat)
            rows.answer(taken, "hi")
        shown = hermes("sessions", "show", taken.session_id[:9])
        assert (shown.returncode, shown.stderr) == (0, "")
        assert taken.session_id in shown.stdout
        unknown = hermes("sessions", "show", "s_nope")
        assert (unknown.returncode, unknown.stdout) == (1, "")
        assert "there is no session 's_nope'" in unknown.stderr
        several = hermes("sessions", "show", "s_")
        assert (several.returncode, several.stdout) == (1, "")
        assert taken.session_id in several.stderr
        rows.arrive("again", event="again", chat="c1")
        undone = rows.take("c1")
        rows.answer(undone, "undone")
        rows.write(lambda tx: sessions.hide_turn(tx, undone.session_id, undone.turn_id))
        lines = hermes("sessions", "show", undone.session_id).stdout.splitlines()[1:]
        assert [line.partition("] ")[2] for line in lines] == [
            "agent: hi",
            "agent (taken back): undone",
        ]
        as_json = json.loads(hermes("sessions", "show", undone.session_id, "--json").stdout)
        assert [line["taken_back"] for line in as_json["transcript"]] == [False, True]
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\x55" * (len(content) - 4096))
    for arguments in (("sessions", "list"), ("sessions", "show", taken.session_id)):
        damaged = hermes(*arguments)
        assert (damaged.returncode, damaged.stdout) == (1, "")
        assert "cannot use the state database" in damaged.stderr
        assert "Traceback" not in damaged.stderr
