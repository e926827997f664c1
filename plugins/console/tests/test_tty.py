"""`hermes chat` on a terminal."""

from __future__ import annotations

import os
import pty
import re
import readline
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

LIMIT = 30.0
"""Seconds without a sign of life after which a test has failed."""

CTRL_C, CTRL_D, UP = b"\x03", b"\x04", b"\x1b[A"

AS_A_SESSION = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "hermes_core.cli", "chat", *sys.argv[1:]])
"""
"""Gives a child the terminal for its own, so that Ctrl-C reaches it."""


class Person:
    """Sits at the terminal of a `hermes chat`."""

    def __init__(self, keyboard: int, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._keyboard = keyboard
        self._screen = ""
        self._printed = ""

    def types(self, keys: bytes) -> None:
        os.write(self._keyboard, keys)

    def pastes(self, text: bytes) -> None:
        """As a terminal does: with marks around it, if the program has asked for them."""
        modes = re.findall(r"\x1b\[\?2004([hl])", self._printed)
        self.types(b"\x1b[200~" + text + b"\x1b[201~" if modes[-1:] == ["h"] else text)

    def sees(self, wanted: str) -> str:
        """Wait until `wanted` is on the screen; return what is new up to its end."""
        while wanted not in self._screen:
            ready, _, _ = select.select([self._keyboard], [], [], LIMIT)
            assert ready, f"waited for {wanted!r}, saw {self._screen!r}"
            data = b""
            with suppress(OSError):  # how a terminal says that the other side has left
                data = os.read(self._keyboard, 4096)
            assert data, f"left before {wanted!r}, saw {self._screen!r}"
            self._screen += data.decode().replace("\r\n", "\n")
            self._printed += data.decode()
        before, _, self._screen = self._screen.partition(wanted)
        return re.sub(r"\x1b\[\?2004[hl]\r?", "", before + wanted)

    def presses_until_prompted(self, key: bytes) -> str:
        """As people do. A signal that comes after a key, before Python waits for the next one, is
        not noticed until there is one."""
        ready: list[int] = []
        while not ready:
            self.types(key)
            ready, _, _ = select.select([self._keyboard], [], [], 1.0)
        return self.prompted()

    def prompted(self) -> str:
        return self.sees("> ")

    def leaves(self) -> int:
        self.types(CTRL_D)
        return self.process.wait(LIMIT)


@contextmanager
def sitting_at(home: Path) -> Iterator[Person]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", AS_A_SESSION],
        env={**os.environ, "HERMES_HOME": str(home), "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        yield Person(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    with sitting_at(tmp_path / "home") as somebody:
        somebody.prompted()
        yield somebody


def test_a_conversation(person: Person) -> None:
    person.types(b"hello there\r")
    person.sees("hello there\n")  # what was typed
    assert person.prompted() == "hello there\n> "
    assert person.leaves() == 0


def test_the_answer_appears_as_it_is_written_and_ctrl_c_stops_it(person: Person) -> None:
    person.types(b"slow 600 " + b"word " * 2000 + b"\r")
    person.sees("\n")
    person.sees("word word ")
    person.types(CTRL_C)
    assert "Stopped." in person.sees("Stopped.")
    person.prompted()
    person.types(b"and on\r")
    person.sees("and on\n")
    assert person.prompted().endswith("and on\n> ")


def test_ctrl_c_at_the_prompt_clears_the_line(person: Person) -> None:
    person.types(b"not this")
    person.sees("not this")
    person.presses_until_prompted(CTRL_C)
    person.types(CTRL_C)
    person.prompted()
    person.types(b"but this\r")
    person.sees("but this\n")
    assert person.prompted() == "but this\n> "


def test_a_failed_turn_is_told(person: Person) -> None:
    person.types(b"fail\r")
    person.sees("\n")
    assert person.prompted() == "The echo agent failed, as you asked.\n> "


def test_a_message_that_is_typed_during_a_turn_waits_and_the_answer_goes_on_below(
    person: Person,
) -> None:
    person.types(b"slow 0.7 one two three\r")
    person.sees("one two three\n")  # what was typed
    person.sees("one ")
    person.types(b"fo")
    assert person.sees("> fo").endswith("\n> fo")
    person.types(b"ur\r")
    person.sees("ur\n")
    assert person.prompted() == "two three\nfour\n> "


def test_a_command_reaches_the_turn_that_runs(person: Person) -> None:
    person.types(b"slow 600 " + b"word " * 2000 + b"\r")
    person.sees("\n")
    person.sees("word word ")
    person.types(b"/stop\r")
    person.sees("> /stop\n")
    assert "Stopped." in person.sees("Stopped.")
    person.prompted()
    person.types(b"and on\r")
    person.sees("and on\n")
    assert person.prompted() == "and on\n> "


@pytest.mark.skipif("GNU" not in (readline.__doc__ or ""), reason="needs GNU readline")
def test_lines_that_are_pasted_are_one_message(person: Person) -> None:
    person.pastes(b"one\ntwo\n\nthree")
    person.sees("three")
    person.types(b"\r")
    assert person.prompted().endswith("\none\ntwo\n\nthree\n> ")


def test_leaving_during_a_turn_waits_for_what_was_asked(person: Person) -> None:
    person.types(b"slow 0.3 one two\r")
    person.sees("one two\n")  # what was typed
    person.sees("one ")
    person.types(CTRL_D)
    person.sees("two\n")
    assert person.process.wait(LIMIT) == 0


def test_ctrl_c_clears_a_line_that_is_typed_during_a_turn(person: Person) -> None:
    person.types(b"slow 0.7 one two three\r")
    person.sees("one two three\n")  # what was typed
    person.sees("one ")
    person.types(b"not this")
    person.sees("> not this")
    assert person.presses_until_prompted(CTRL_C).endswith("\ntwo three\n> ")


def test_lines_are_remembered_for_the_user_alone(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with sitting_at(home) as person:
        person.prompted()
        person.types(b"remember me\r")
        person.sees("remember me\n")
        person.prompted()
        assert person.leaves() == 0
    (history,) = home.glob("*history*")
    assert history.stat().st_mode & 0o777 == 0o600
    with sitting_at(home) as person:
        person.prompted()
        person.types(UP + b"\r")
        person.sees("remember me\n")
        assert person.prompted() == "remember me\n> "


def test_two_terminals_see_the_same_chat(person: Person, tmp_path: Path) -> None:
    with sitting_at(tmp_path / "home") as other:
        other.prompted()
        person.types(b"hello\r")
        person.sees("hello\n")
        person.prompted()
        assert other.sees("hello\n> ").endswith("\r  \rhello\n> ")
        person.types(b"slow 0.7 one two three\r")
        person.prompted()
        assert other.prompted() == "\r  \rone two three\n> "
        assert other.leaves() == 0
