"""How the last run ended: a gateway writes down its start and its end, the next one reads it.

A run that wrote no end was killed, lost its power, or was ended by its own watchdog, which has
written the stacks of all threads to its report by then.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hermes_core.files import UnusableFile, read_bounded

MAX_RECORD = 65_536


@dataclass(frozen=True)
class LastRun:
    """The run before this one. `how` is one line for a person; `clean` says whether it was an end
    of its own."""

    clean: bool
    how: str


class ExitLedger:
    """The record in `last-run.json` of a state directory, and the report of the watchdog beside
    it."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "last-run.json"
        self.report = directory / "watchdog.txt"

    def begin(self, now: float) -> LastRun | None:
        """Note that a run begins. What became of the one before it, None if there was none.

        A report of the watchdog is kept as `watchdog.last.txt`. Raises OSError.
        """
        last = self._last()
        with contextlib.suppress(FileNotFoundError):
            if self.report.stat().st_size:
                self.report.replace(self.report.with_name("watchdog.last.txt"))
        self._write({"pid": os.getpid(), "began": now})
        return last

    def end(self, now: float, code: int, left_behind: Sequence[str] = ()) -> None:
        """Note that this run ends with `code`, and what did not end with it."""
        with contextlib.suppress(OSError):  # a full disk is no reason not to end
            self._write(
                {"pid": os.getpid(), "ended": now, "code": code, "left_behind": list(left_behind)}
            )

    def _last(self) -> LastRun | None:
        record = self._read()
        if record is None:
            return None
        if "ended" in record:
            left = record.get("left_behind")
            names = ", ".join(map(str, left)) if isinstance(left, list) else ""
            behind = f", leaving behind {names}" if names else ""
            return LastRun(True, f"it ended with code {record.get('code')}{behind}")
        reason = self._reason()
        if reason:
            kept = self.report.with_name("watchdog.last.txt")
            return LastRun(False, f"its watchdog ended it: {reason}; see {kept}")
        return LastRun(False, "it was killed, or lost its power")

    def _reason(self) -> str:
        """The line of the watchdog's report that says what took too long."""
        try:
            with self.report.open(encoding="utf-8", errors="replace") as file:
                return file.readline().partition(";")[0].strip()
        except OSError:
            return ""

    def _read(self) -> dict[str, object] | None:
        try:
            record = json.loads(read_bounded(self._path, limit=MAX_RECORD))
        except (OSError, UnusableFile, ValueError, RecursionError):
            return None
        return record if isinstance(record, dict) else None

    def _write(self, record: dict[str, object]) -> None:
        new = self._path.with_suffix(".new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(record, file)
        new.replace(self._path)
