"""Wall time that a test sets."""

from __future__ import annotations


class WallClock:
    """Call it for the time in UNIX seconds. It stands still until it is told otherwise."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move on, or back with a negative number."""
        self.now += seconds
