"""kill -9 at chosen and at random points: nothing accepted is lost, doubled or out of order."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.crash.rounds import HOW, Report, Rounds, crash
from tests.crash.victim import KINDS

MORE = int(os.environ.get("HERMES_CRASH_KILLS", "0"))
"""Kills on each kind of platform beyond the usual ones."""

WAYS = {
    "plain": ["receive", "sent", "birth", "turn", "any time"],
    "idempotent": ["turn", "sent", "commit", "any time"],
    "reconciles": ["commit", "sent", "start", "receive", "drain"],
    "streaming": ["drain", "any time", "turn", "sent"],
    "exact": ["sent", "turn", "sent", "commit"],
}
"""With the three kills of the last test, twenty-five; every way to die is among them."""


@pytest.mark.case("DB-16")
@pytest.mark.case("DL-10")
@pytest.mark.case("SH-02")
@pytest.mark.parametrize("kind", KINDS)
def test_whenever_it_is_killed_everybody_is_answered_in_order_and_once(
    tmp_path: Path, kind: str
) -> None:
    ways = [*WAYS[kind], *(HOW[number % len(HOW)] for number in range(MORE))]
    report = asyncio.run(crash(tmp_path / "home", kind, ways, seed=KINDS.index(kind)))
    assert report.faults == []
    assert (report.lost, report.reordered, report.duplicates, report.reruns) == (0, 0, 0, 0)
    assert report.strays == 0
    assert report.answered + report.given_up >= report.messages > 0
    assert report.kills == len(ways)


def test_a_message_that_kills_the_process_does_not_do_so_for_ever(tmp_path: Path) -> None:
    async def scenario() -> Report:
        rounds = Rounds(tmp_path / "home", "plain", seed=0)
        for _ in range(3):
            await rounds.kill("turn", count=1)
        return await rounds.finish()

    report = asyncio.run(scenario())
    assert report.faults == []
    assert (report.lost, report.reordered, report.duplicates, report.reruns) == (0, 0, 0, 0)
    assert report.given_up > 0
