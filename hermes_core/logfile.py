"""A log file that does not grow without end, and reading it from the end."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

LIMIT = 10 << 20
"""Bytes of one file: about 50,000 lines."""
KEEP = 5
"""Files that are kept besides the current one: `gateway.log.1` is the latest of them."""
POLL = 0.25
"""Seconds between two looks at a file that is followed."""


class LogFile:
    """A text stream to append lines to, for one process at a time. Readable by its owner only.

    A line that would make the file larger than `limit` bytes goes into a new one. Raises OSError
    when the file cannot be opened, or renamed.
    """

    encoding = "utf-8"

    def __init__(self, path: Path, *, limit: int = LIMIT, keep: int = KEEP) -> None:
        self.path = path
        self._limit = limit
        self._keep = keep
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._file = self._open()
        self._size = os.fstat(self._file.fileno()).st_size

    def write(self, text: str) -> int:
        """Append `text`, which is whole lines."""
        data = text.encode("utf-8", "backslashreplace")
        if self._size and self._size + len(data) > self._limit:
            self._turn_over()
        self._file.write(data)
        self._size += len(data)
        return len(text)

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _open(self) -> BinaryIO:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        return os.fdopen(os.open(self.path, flags, 0o600), "ab")

    def _turn_over(self) -> None:
        self._file.close()
        try:
            for number in range(self._keep, 0, -1):
                older = numbered(self.path, number - 1)
                if older.exists():
                    older.replace(numbered(self.path, number))
        finally:  # lines that go into a file that is too large are better than none
            self._file = self._open()
            self._size = 0


def numbered(path: Path, number: int) -> Path:
    """The file of that age: 0 is the current one."""
    return path.with_name(f"{path.name}.{number}") if number else path


def last_lines(path: Path, count: int, end: int) -> list[str]:
    """The last `count` lines before the byte `end`, those of older files included, oldest first."""
    found: deque[str] = deque()
    number = 0
    while len(found) < count and (file := numbered(path, number)).exists():
        content = file.read_bytes()
        lines = _decoded((content if number else content[:end]).splitlines())
        found.extendleft(lines[::-1][: count - len(found)])
        number += 1
    return list(found)


def follow(path: Path, start: int) -> Generator[str, None, None]:
    """The lines that are appended behind the byte `start`, as they come, without end."""
    rest = b""
    file = path.open("rb")
    try:
        file.seek(start)
        while True:
            # Looked at before the last read: by then nothing more is written to the old file.
            replaced = _was_replaced(file, path)
            *lines, rest = (rest + file.read()).split(b"\n")
            yield from _decoded(lines)
            if replaced and not lines:
                file.close()
                file = path.open("rb")
            elif not lines:
                time.sleep(POLL)
    finally:
        file.close()


def _decoded(lines: list[bytes]) -> list[str]:
    return [line.decode("utf-8", "replace") for line in lines]


def _was_replaced(file: BinaryIO, path: Path) -> bool:
    """Whether another file stands at `path` by now."""
    ours = os.fstat(file.fileno())
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return (ours.st_dev, ours.st_ino) != (there.st_dev, there.st_ino)
