"""A short soak; `make prove` makes a long one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.soak import soak


def test_nothing_is_lost_on_a_network_with_bad_days(tmp_path: Path) -> None:
    found = asyncio.run(soak(tmp_path, sessions=200, messages=5))
    assert found.messages == 1000
    assert (found.lost, found.reordered, found.duplicates) == (0, 0, 0)
    assert found.sums_up
