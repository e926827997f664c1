"""What others do to the database of a gateway that runs: its locks hold, its log stays."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hermes_core.supervision.control import request
from tests.crash.rounds import ROOT
from tests.crash.support import say

LOCKS = Path("/proc/locks")
INSERT = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
connection.execute("INSERT INTO kv VALUES ('stranger', hex(randomblob(8)), x'')")
connection.close()
"""


@dataclass
class Running:
    """A gateway in another process."""

    home: Path
    process: subprocess.Popen[str]

    @property
    def database(self) -> Path:
        return self.home / "state.db"

    @property
    def held(self) -> set[int]:
        """The inodes on which it holds locks."""
        rows = [line.split() for line in LOCKS.read_text().splitlines()]
        return {
            int(row[5].split(":")[2])
            for row in rows
            if row[1] == "POSIX" and row[4] == str(self.process.pid)
        }

    def environment(self) -> dict[str, str]:
        return {**os.environ, "HERMES_HOME": str(self.home), "PYTHONPATH": str(ROOT)}

    def hermes(self, *words: str) -> None:
        """Run a command of the program beside it."""
        subprocess.run(
            [sys.executable, "-m", "hermes_core.cli", *words],
            env=self.environment(),
            capture_output=True,
            check=True,
        )


@contextmanager
def running(home: Path) -> Iterator[Running]:
    home.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.victim", home, "plain"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready")
        yield Running(home, process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()


def status(gateway: Running) -> None:
    request(gateway.home, "status")


def list_sessions(gateway: Running) -> None:
    gateway.hermes("sessions", "list")


def doctor(gateway: Running) -> None:
    subprocess.run(
        [sys.executable, "-m", "hermes_core.cli", "doctor"],
        env=gateway.environment(),
        capture_output=True,
        check=False,  # it may find fault with this machine
    )


def mention(gateway: Running) -> None:
    say(gateway.home, f"look at {gateway.database}")


def read_plainly(gateway: Running) -> None:
    gateway.database.read_bytes()


def copy(gateway: Running) -> None:
    with (
        closing(sqlite3.connect(gateway.database)) as live,
        closing(sqlite3.connect(":memory:")) as aside,
    ):
        live.backup(aside)


@pytest.mark.case("DB-01")
@pytest.mark.case("CL-04")
@pytest.mark.skipif(not LOCKS.exists(), reason="needs /proc/locks")
def test_nothing_that_touches_the_file_takes_its_locks_or_its_log(tmp_path: Path) -> None:
    actions: list[Callable[[Running], Any]] = [
        status,
        list_sessions,
        doctor,
        mention,
        read_plainly,
        copy,
    ]
    with running(tmp_path / "home") as gateway:
        say(gateway.home, "first")
        log = gateway.home / "state.db-wal"
        files = {gateway.database.stat().st_ino, (gateway.home / "state.db-shm").stat().st_ino}
        inode = log.stat().st_ino
        for number, action in enumerate(actions):
            action(gateway)
            assert files <= gateway.held, action.__name__
            subprocess.run([sys.executable, "-c", INSERT, gateway.database], check=True)
            assert files <= gateway.held, action.__name__
            assert log.stat().st_ino == inode, action.__name__
            text = f"after {action.__name__}"
            say(gateway.home, text)
            with closing(sqlite3.connect(gateway.database)) as reader:
                found = reader.execute(
                    "SELECT COUNT(*) FROM inbox WHERE json_extract(payload, '$.text') = ?", (text,)
                ).fetchone()
                strangers = reader.execute(
                    "SELECT COUNT(*) FROM kv WHERE owner = 'stranger'"
                ).fetchone()
            assert found == (1,)
            assert strangers == (number + 1,)
    assert not log.exists()
