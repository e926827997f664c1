"""Turns as they are stored."""

from __future__ import annotations

from pathlib import Path

from hermes_core.store import turns
from hermes_core.store.outbox import Shown
from tests.cli.rows import rows_in


def test_what_a_cut_turn_showed_is_completed_by_one_turn_though_its_messages_become_two(
    tmp_path: Path,
) -> None:
    with rows_in(tmp_path / "state.db") as state:
        for event in ("e1", "e2"):
            state.arrive(event, event=event)
        cut = state.take(coalesce=True)
        assert [row.event_id for row in cut.rows] == ["e1", "e2"]
        state.write(lambda tx: turns.set_shown(tx, cut.turn_id, Shown("m1")))
        state.crash()
        first = state.take()
        state.answer(first, "answer")
        second = state.take()
    assert (first.shown, second.shown) == (Shown("m1"), Shown())
