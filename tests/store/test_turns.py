"""What a message is worth to the gateway that works on it and is stopped, or crashes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.store import turns
from tests.cli.rows import KEY, rows_in

SESSION = KEY.format(chat="c1")


@given(st.lists(st.sampled_from(["stop", "crash"]), max_size=7))
@settings(max_examples=40, deadline=None)
def test_stops_and_crashes_are_counted_apart(cuts: list[str]) -> None:
    """A message is given up after two crashes, or after five stops, whatever else happened."""
    with tempfile.TemporaryDirectory() as directory, rows_in(Path(directory) / "state.db") as rows:
        rows.arrive("hello", event="e1")
        for number, cut in enumerate(cuts, start=1):
            taken = rows.take()
            assert taken.attempt == number
            turn_id = taken.turn_id if cut == "stop" else None
            (found,) = rows.write(
                lambda tx, turn_id=turn_id: turns.interrupt(tx, 1.0, "cut", turn_id)  # type: ignore[misc]
            )
            before = cuts[:number]
            over = before.count("crash") == 2 or before.count("stop") == 5
            assert found.given_up == over
            if over:
                assert rows.write(lambda tx: turns.take(tx, SESSION, 2.0, coalesce=False)) is None
                return
