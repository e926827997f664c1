"""The last resort: a process that does not come to its end in time is ended, and says where it
hung.

It needs no event loop, no log and no lock: a thread of its own waits, writes the stacks of all
threads to a file that was opened beforehand, and leaves. A second, slower one in C does the same
even if Python hangs.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from pathlib import Path
from types import TracebackType

ESCORT = 5.0
"""Seconds after which the watchdog in C acts, when the one in Python could not."""


class Deadline:
    """Ends the process with `code` when the context is not left within `seconds`.

    `report` is a file that then holds the stacks of all threads.
    """

    def __init__(self, seconds: float, *, code: int, report: Path, what: str) -> None:
        self._seconds = seconds
        self._code = code
        self._what = what
        self._over = threading.Event()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(report, flags, 0o600)
        self._thread = threading.Thread(target=self._watch, name=f"deadline: {what}", daemon=True)

    def __enter__(self) -> Deadline:
        faulthandler.dump_traceback_later(self._seconds + ESCORT, exit=True, file=self._file)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        faulthandler.cancel_dump_traceback_later()
        self._thread.join()
        os.close(self._file)

    def _watch(self) -> None:
        if self._over.wait(self._seconds):
            return
        try:
            line = f"{self._what} took more than {self._seconds:g} s; all threads:\n"
            os.write(self._file, line.encode())
            faulthandler.dump_traceback(self._file)
        finally:  # a full disk, too, ends with the process
            os._exit(self._code)
