"""Keeps known secret values out of texts that leave the process."""

from __future__ import annotations

import json
import re
import sys
import threading
import traceback
from collections.abc import Iterable
from urllib.parse import quote

MASK = "***"
MIN_LENGTH = 4
"""Shorter values are left alone: hiding every "a" would hide the text and tell the value."""
_MIN_LINE = 8


class Redactor:
    """Replaces every known value by ``***``, also where it is written in a URL, in JSON or by
    `repr`."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        """Learn more values. What was learnt once is never forgotten: old logs may still repeat
        it."""
        before = len(self._forms)
        for value in values:
            self._forms.update(form for form in _forms(value) if len(form) >= MIN_LENGTH)
        if len(self._forms) > before:
            # Longest first: a value that begins with another one must not leave its end behind.
            longest_first = sorted(self._forms, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def __call__(self, text: str) -> str:
        """`text` without any known value."""
        return text if self._pattern is None else self._pattern.sub(MASK, text)


def _forms(value: str) -> Iterable[str]:
    yield value
    yield value.strip()
    yield quote(value, safe="", errors="replace")
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    # A key of several lines shows line by line, in a traceback for instance.
    lines = value.splitlines()
    if len(lines) > 1:
        yield from (line.strip() for line in lines if len(line.strip()) >= _MIN_LINE)


def redact_tracebacks(redactor: Redactor) -> None:
    """Let what ends the program, or a thread of it, be shown without known values."""

    def show(error: BaseException | None) -> None:
        if error is not None and sys.stderr is not None:
            text = "".join(traceback.format_exception(error))
            sys.stderr.write(redactor(text))
            sys.stderr.flush()

    sys.excepthook = lambda _type, error, _traceback: show(error)
    threading.excepthook = lambda arguments: show(arguments.exc_value)
