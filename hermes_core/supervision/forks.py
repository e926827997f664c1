"""What a forked child must not keep: locks and listening sockets of its parent.

A child that inherits them would hold the home, or seem to answer for the gateway, after the
gateway's end. (Programs that are started inherit nothing: every descriptor is close-on-exec.)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol


class Closable(Protocol):
    def close(self) -> None: ...


_owned: set[Closable] = set()


def close_in_children(item: Closable) -> None:
    """Close `item` at once in every process that is forked off this one, until `closed` says so."""
    _owned.add(item)


def closed(item: Closable) -> None:
    """`item` was closed: forget it."""
    _owned.discard(item)


def _close_all() -> None:
    for item in list(_owned):
        item.close()


os.register_at_fork(after_in_child=_close_all)


class Descriptor:
    """An open file (or directory) of this process only. Opening raises OSError."""

    def __init__(self, path: Path, flags: int) -> None:
        # O_NONBLOCK: opening a pipe that nobody writes to would hang.
        self._number = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, 0o600)
        close_in_children(self)

    @property
    def closed(self) -> bool:
        return self._number < 0

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        """Close it; a second time does nothing."""
        if self._number >= 0:
            number, self._number = self._number, -1
            os.close(number)
            closed(self)

    def __enter__(self) -> Descriptor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
