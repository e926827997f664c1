"""`hermes run --log-file` keeps a file that does not grow without end; `hermes logs` shows it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hermes_core.logfile import LogFile, follow, last_lines, numbered

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]


def line(message: str, **fields: str) -> str:
    event = {"time": "2026-05-04T10:11:12.345Z", "level": "info", "logger": "demo"}
    return json.dumps({**event, "message": message, **fields}) + "\n"


def appears(text: str, path: Path) -> bool:
    """Wait until a line of the file holds `text`."""
    seen = threading.Event()

    def look() -> None:
        if any(text in line for line in follow(path, 0)):
            seen.set()

    threading.Thread(target=look, daemon=True).start()
    return seen.wait(60)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogFile]:
    (tmp_path / "home").mkdir(mode=0o700)
    log = LogFile(tmp_path / "home" / "logs" / "gateway.log")
    yield log
    log.close()


def test_a_gateway_logs_to_the_file(
    environment: dict[str, str], hermes: Hermes, tmp_path: Path
) -> None:
    path = tmp_path / "home" / "logs" / "gateway.log"
    with subprocess.Popen(
        [sys.executable, "-m", "hermes_core.cli", "run", "--log-file"],
        env=environment, stderr=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stderr is not None
        assert running.stderr.readline() == f"logging to {path}\n"
        assert appears("the gateway is ready", path)
        running.send_signal(signal.SIGTERM)
        assert running.wait(timeout=60) == 0
        assert running.stderr.read() == ""
    assert f"{path.stat().st_mode & 0o777:o}" == "600"
    assert f"{path.parent.stat().st_mode & 0o777:o}" == "700"
    shown = hermes("logs").stdout
    assert "INFO    hermes_core.gateway: the gateway is ready (home=" in shown
    assert shown.splitlines()[-1].endswith("the gateway has stopped")
    (last,) = hermes("logs", "--json", "-n", "1").stdout.splitlines()
    assert json.loads(last)["message"] == "the gateway has stopped"


def test_the_last_lines_for_people_and_programs(log: LogFile, hermes: Hermes) -> None:
    for number in range(3):
        log.write(line(f"event {number}", account="demo"))
    log.write(line("of work \x1b[31m", profile="work", exception="Traceback\n  ValueError: x"))
    log.write('{"time": "torn')
    log.flush()
    shown = hermes("logs", "-n", "3").stdout.splitlines()
    assert shown[0] == "2026-05-04T10:11:12.345Z INFO    demo: event 2 (account=demo)"
    assert shown[1].endswith("of work \\x1b[31m (profile=work)")
    assert shown[2:4] == ["  Traceback", "    ValueError: x"]
    assert shown[4].endswith('{"time": "torn')
    raw = hermes("logs", "-n", "5", "--json").stdout.splitlines()
    assert json.loads(raw[0])["message"] == "event 0"
    assert "of work" in hermes("--profile", "work", "logs").stdout
    assert "event" not in hermes("--profile", "work", "logs").stdout
    assert hermes("logs", "-n", "0").stdout == ""


def test_without_a_file_it_says_where_the_log_is(hermes: Hermes, tmp_path: Path) -> None:
    result = hermes("logs")
    assert (result.returncode, result.stdout) == (1, "")
    assert "`hermes run --log-file` keeps one" in result.stderr
    assert "journalctl" in result.stderr
    assert not (tmp_path / "home").exists()


def test_it_names_the_log_of_a_chat_that_is_the_gateway(hermes: Hermes, tmp_path: Path) -> None:
    (tmp_path / "home" / "logs").mkdir(0o700, parents=True)
    (tmp_path / "home" / "logs" / "chat.log").touch()
    assert "in the same directory there is chat.log" in hermes("logs").stderr


def test_following_until_interrupted(log: LogFile, environment: dict[str, str]) -> None:
    log.write(line("before"))
    log.flush()
    with subprocess.Popen(
        [sys.executable, "-m", "hermes_core.cli", "logs", "-f"],
        env=environment, stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        assert "before" in running.stdout.readline()
        log.write(line("after"))
        log.flush()
        assert "after" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 130


def test_full_files_are_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "x.log"
    log = LogFile(path, limit=100, keep=2)
    followed = follow(path, 0)
    for number in range(20):
        log.write(f"line {number} {'x' * 20}\n")
        log.flush()
        assert next(followed).startswith(f"line {number} "), "nothing is lost at the seam"
    log.close()
    followed.close()
    assert sorted(file.name for file in path.parent.iterdir()) == ["x.log", "x.log.1", "x.log.2"]
    assert all(file.stat().st_size <= 100 for file in path.parent.iterdir())
    numbers = [text.split()[1] for text in last_lines(path, 5, path.stat().st_size)]
    assert numbers == ["15", "16", "17", "18", "19"]
    assert len(last_lines(path, 100, path.stat().st_size)) == 8
    assert numbered(path, 1).read_text().startswith("line 15")


def test_an_old_file_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "x.log"
    for text in ("one\n", "two\n"):
        log = LogFile(path)
        log.write(text)
        log.close()
    assert path.read_text() == "one\ntwo\n"
