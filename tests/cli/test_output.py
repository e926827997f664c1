"""Output that programs and people can rely on, whatever becomes of the standard streams."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]
Install = Callable[..., None]

LIST = r"""
import sys, warnings
print("plugin was here")
warnings.warn("old", DeprecationWarning, stacklevel=1)

from dataclasses import dataclass
from pathlib import Path
import click, msgspec
from hermes_core.cli.output import emit, json_option, table

class Row(msgspec.Struct):
    name: str
    at: Path

@dataclass
class Sessions:
    rows: list[Row]

@click.command()
@json_option
@click.option("--count", default=1)
def things(json, count):
    print("and here")
    rows = [Row("\U0001f600 caf\xe9 \udc80 \x1b[31m\n" + "long " * 20, Path("/x"))] * count
    emit(Sessions(rows), json, lambda found: table(
        ("NAME", "AT"), [(row.name, row.at) for row in found.rows]))
"""

ENCODINGS = {
    "utf-8": {"PYTHONUTF8": "1"},
    "ascii": {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
}


@pytest.fixture(autouse=True)
def _plugin(install: Install) -> None:
    install("hermes-plugin-things", {"things": "hermes_plugin_things:things"}, LIST)


@pytest.mark.case("CL-02")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_json_is_json_whatever_a_plugin_prints(hermes: Hermes, encoding: str) -> None:
    result = hermes("things", "--json", **ENCODINGS[encoding], PYTHONWARNINGS="default")
    assert result.returncode == 0
    found = json.loads(result.stdout)
    (row,) = found["rows"]
    assert row["name"].startswith("\U0001f600 café \udc80 \x1b[31m\n")
    assert row["at"] == "/x"
    assert "plugin was here" in result.stderr
    assert "and here" in result.stderr
    assert "DeprecationWarning" in result.stderr


@pytest.mark.case("CL-02")
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_any_text_can_be_printed(hermes: Hermes, encoding: str) -> None:
    shown = {"utf-8": "café", "ascii": "café", "latin-1": "caf\udce9"}
    result = hermes("things", **{**ENCODINGS[encoding], "COLUMNS": "20"})
    assert result.returncode == 0
    printed = result.stdout.splitlines()
    assert printed[:1] == ["and here"]
    assert [line.split()[-1] for line in printed[1:]] == ["AT", "/x"], "piped lines are whole"
    assert "\x1b" not in result.stdout
    assert "\\x1b[31m\\n" in printed[2]
    assert f" {shown[encoding]} " in printed[2]


def process(
    environment: dict[str, str], *arguments: str, **options: object
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "hermes_core.cli", *arguments]
    started = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        **options,
    )  # type: ignore[call-overload]  # fmt: skip
    assert isinstance(started, subprocess.Popen)
    return started


@pytest.mark.case("CL-02")
@pytest.mark.parametrize("arguments", [("paths",), ("things", "--json", "--count", "10000")])
def test_a_reader_that_goes_away_is_no_trouble(
    environment: dict[str, str], arguments: tuple[str, ...]
) -> None:
    read, write = os.pipe()
    os.close(read)
    with process(environment, *arguments, stdout=write) as running:
        os.close(write)
        _, complaints = running.communicate()
    assert running.returncode == 141
    assert "BrokenPipe" not in complaints
    assert "Traceback" not in complaints


@pytest.mark.case("CL-02")
def test_closed_streams_are_no_trouble(environment: dict[str, str], tmp_path: Path) -> None:
    for closed in ("1>&-", "0<&- 1>&-", "0<&- 1>&- 2>&-"):
        for command in ("paths", "things --json", "--help"):
            result = subprocess.run(
                ["sh", "-c", f'exec "$0" -m hermes_core.cli {command} {closed}', sys.executable],
                env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert (result.returncode, result.stdout) == (0, ""), (command, closed)
            assert "Traceback" not in result.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_a_failure(environment: dict[str, str]) -> None:
    for arguments in (("paths",), ("paths", "--json")):
        with (
            Path("/dev/full").open("w") as full,
            process(environment, *arguments, stdout=full) as running,
        ):
            _, complaints = running.communicate()
        assert running.returncode == 1
        assert "No space left on device" in complaints
        assert complaints.count("\n") == 1


def on_a_terminal(environment: dict[str, str], *arguments: str, columns: int) -> list[str]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    with process(environment, *arguments, stdout=theirs) as running:
        os.close(theirs)
        printed = b""
        try:
            while chunk := os.read(ours, 1 << 16):
                printed += chunk
        except OSError:  # Linux says EIO at the end of a terminal
            pass
        os.close(ours)
        running.communicate()
    assert running.returncode == 0
    return printed.decode().splitlines()


def test_a_table_fits_the_terminal(environment: dict[str, str]) -> None:
    lines = on_a_terminal(environment, "things", columns=60)
    assert lines[-1].endswith("…")
    # The face takes two columns.
    assert len(lines[-1]) == 59
    for narrow in (0, 1, 20):
        assert on_a_terminal(environment, "things", columns=narrow)[-1].endswith("…")


def test_json_on_a_terminal_is_whole(environment: dict[str, str]) -> None:
    assert json.loads("\n".join(on_a_terminal(environment, "things", "--json", columns=20)))
