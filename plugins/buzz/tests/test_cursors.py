"""How far a channel was read, over restarts."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_buzz.cursors import (
    LOOK_BACK,
    MAX_CHANNELS,
    MAX_IDS,
    TOLERANCE,
    ChannelCursor,
    FileCursors,
)
from hermes_core import AccountFailed

NOW = 1_700_000_000


def test_a_new_channel_is_read_from_about_now(tmp_path: Path) -> None:
    cursor = FileCursors(tmp_path / "c.json").channel("c", NOW)
    assert cursor.since == NOW - LOOK_BACK
    cursor.advance("e" * 64, NOW + 10, NOW + 10)
    assert cursor.since == NOW - LOOK_BACK


def test_a_channel_is_read_again_within_the_tolerance_of_dates() -> None:
    cursor = ChannelCursor(floor=0)
    cursor.advance("a" * 64, NOW, NOW)
    assert cursor.since == NOW - TOLERANCE


def test_a_date_in_the_future_does_not_hide_what_comes_next() -> None:
    cursor = ChannelCursor(floor=0)
    cursor.advance("a" * 64, NOW + 900, NOW)
    assert cursor.since <= NOW - TOLERANCE


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(-900, 900)), max_size=1500))
def test_whatever_the_relay_may_still_take_is_asked_for(steps: list[tuple[int, int]]) -> None:
    """After any history, an event that arrives now is dated no earlier than `since`."""
    cursor = ChannelCursor(floor=0)
    now = NOW
    for number, (passed, skew) in enumerate(steps):
        now += passed
        cursor.advance(f"{number:064x}", now + skew, now)
        assert cursor.has(f"{number:064x}")
        assert len(cursor.ids) <= MAX_IDS
        assert cursor.since <= now - TOLERANCE


def test_what_was_saved_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "buzz" / "default.json"
    store = FileCursors(path)
    store.channel("c", NOW).advance("a" * 64, NOW, NOW)
    store.members_since = 7
    assert store.frozen_mentions("o1", lambda: ["k"]) == ["k"]
    asyncio.run(store.save())

    again = FileCursors(path)
    assert again.channel("c", NOW + 1000).has("a" * 64)
    assert again.channel("c", NOW + 1000).since == NOW - LOOK_BACK
    assert again.members_since == 7
    assert again.frozen_mentions("o1", lambda: ["other"]) == ["k"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path]


def test_mentions_are_forgotten_with_the_receipt(tmp_path: Path) -> None:
    store = FileCursors(tmp_path / "c.json")
    store.frozen_mentions("o1", lambda: ["k"])
    store.sent("o1")
    assert store.frozen_mentions("o1", lambda: ["later"]) == ["later"]


def test_the_maps_are_bounded(tmp_path: Path) -> None:
    store = FileCursors(tmp_path / "c.json")
    for number in range(MAX_CHANNELS + 5):
        store.channel(f"c{number}", NOW)
    for number in range(FileCursors.MAX_ROWS + 5):
        store.frozen_mentions(f"o{number}", lambda: ["k"])
    asyncio.run(store.save())
    again = FileCursors(tmp_path / "c.json")
    assert again.channel("c0", NOW + 5000).floor > NOW
    assert again.frozen_mentions("o0", list) == []


def test_a_damaged_file_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"channels":')
    with pytest.raises(AccountFailed, match="damaged"):
        FileCursors(path)
    assert path.read_text() == '{"channels":'


def test_a_failed_save_is_made_up_for(tmp_path: Path) -> None:
    directory = tmp_path / "buzz"
    store = FileCursors(directory / "c.json")
    directory.write_text("in the way")
    store.channel("c", NOW)
    with pytest.raises(OSError, match="buzz"):
        asyncio.run(store.save())
    directory.unlink()
    asyncio.run(store.save())
    assert FileCursors(directory / "c.json").channel("c", NOW + 5000).floor == NOW - LOOK_BACK
