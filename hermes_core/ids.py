"""Ids that are unique without a clock (two made in the same instant differ)."""

from __future__ import annotations

import random

_random = random.Random()  # noqa: S311 - unique, not secret; seeded by the system


def new_id(prefix: str) -> str:
    """`<prefix>_` and 80 random bits in hex.

    The prefix says what the id names: e event, g gateway, o outbound, s session, t turn.
    """
    return f"{prefix}_{_random.getrandbits(80):020x}"


def seed(value: int) -> None:
    """Make the ids that follow the same in every run. For replays in tests."""
    _random.seed(value)
