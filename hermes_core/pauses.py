"""Pauses between attempts at something that others must make possible again."""

from __future__ import annotations

from collections.abc import Iterator

FIRST = 1.0
LONGEST = 30.0
"""Seconds: what is possible again is noticed within this time."""


def doubling() -> Iterator[float]:
    """Seconds to wait before each next attempt: doubling, up to a bound, without end."""
    pause = FIRST
    while True:
        yield pause
        pause = min(LONGEST, 2 * pause)
