"""Ids that are unique without a clock (two made in the same instant differ)."""

from __future__ import annotations

import os


def new_id(prefix: str) -> str:
    """`<prefix>_` and 80 random bits in hex. The prefix says what the id names: t turn, s session,
    o outbox."""
    return f"{prefix}_{os.urandom(10).hex()}"
