"""The keyboard of a terminal: silent between two lines, with editing and history in one."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any

HISTORY_LINES = 1000
_MARK_PASTES, _LEAVE_PASTES = "\x1b[?2004h", "\x1b[?2004l"
"""Ask the terminal to put marks around what is pasted, so that its line ends are not taken for
Enter."""


class Keyboard:
    """Reads lines. A context manager: between two lines what is typed is kept and not echoed, and
    Ctrl-C calls `interrupted`. Only the main thread can use it.
    """

    def __init__(self, history: Path, interrupted: Callable[[], None]) -> None:
        self._history = history
        self._interrupted = interrupted
        self._editing = False
        self._before: list[Any] = []
        self.descriptor = sys.stdin.fileno()

    def __enter__(self) -> Keyboard:
        self._before = termios.tcgetattr(self.descriptor)
        self._read_history()
        self._marks = _marks_pastes()
        self._be_silent()
        self._default = signal.signal(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._default)
        if self._marks:
            _tell_terminal(_LEAVE_PASTES)
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(self.descriptor, termios.TCSADRAIN, self._before)
        self._write_history()

    def line(self, prompt: str) -> str:
        """Edit one line; what is pasted may make it several. Raises EOFError for Ctrl-D on an
        empty one, KeyboardInterrupt for Ctrl-C."""
        try:
            self._editing = True
            self._set()
            return input(prompt)
        finally:
            self._editing = False
            self._be_silent()

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        """Only `input` has to be interrupted by an exception; anywhere else one could do harm."""
        if self._editing:
            self._editing = False
            raise KeyboardInterrupt
        self._interrupted()

    def _be_silent(self) -> None:
        self._set(off=termios.ECHO | termios.ICANON)
        if self._marks:  # `input` has told the terminal to leave it
            _tell_terminal(_MARK_PASTES)

    def _set(self, off: int = 0) -> None:
        """The modes that were found, without `off`. Ctrl-C is not to throw away what is on its way
        to or from the terminal: the next prompt, say."""
        modes = [*self._before[:6], [*self._before[6]]]
        modes[3] = (modes[3] | termios.NOFLSH) & ~off
        if off & termios.ICANON:
            modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self.descriptor, termios.TCSADRAIN, modes)

    def _read_history(self) -> None:
        if (readline := _readline()) is not None:
            readline.set_history_length(HISTORY_LINES)
            with contextlib.suppress(OSError):  # none yet; and the chat works without one
                readline.read_history_file(self._history)

    def _write_history(self) -> None:
        if (readline := _readline()) is not None:
            with contextlib.suppress(OSError):  # a full disk; the chat has worked without it
                os.close(os.open(self._history, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
                self._history.chmod(0o600)
                readline.write_history_file(self._history)


def _marks_pastes() -> bool:
    """Let `input` understand the marks around what is pasted. False where it cannot."""
    readline = _readline()
    if readline is None or "GNU" not in (readline.__doc__ or ""):
        return False
    if os.environ.get("TERM", "dumb") == "dumb":
        return False
    readline.parse_and_bind("set enable-bracketed-paste on")
    return True


def _tell_terminal(sequence: str) -> None:
    sys.stdout.write(sequence)
    sys.stdout.flush()


def _readline() -> ModuleType | None:
    """Importing it is what gives `input` line editing. Some builds of Python have none."""
    try:
        return importlib.import_module("readline")
    except ImportError:
        return None
