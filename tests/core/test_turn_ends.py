"""Whatever ends a turn: observers hear of each beginning once, and of each end once."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core import (
    AgentError,
    AgentEvent,
    ProfileScope,
    Text,
    Turn,
    TurnEnd,
    TurnInfo,
    hookimpl,
)
from hermes_core.gateway import Gateway
from hermes_core.store import Tx
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from tests.core.support import HASTY, no_room_for, rows, run, store_of, until

ENDS = {
    "answer": "answered",
    "[SILENT]": "silent",
    "error": "failed",
    "fault": "failed",
    "exit": "failed",
    "interrupt": "failed",
    "cancels itself": "failed",
    "too slow": "timed_out",
    "stop": "cancelled",
    "stop, but goes on": "cancelled",
    "fault of the core": "failed",
    "shutdown": "interrupted",
    "shutdown, but goes on": "interrupted",
}
"""What a message brings about, and how its turn has ended then."""
CONFIG = '[sessions]\ninactivity = "5s"\n'


class Witness:
    """Hears how turns begin and end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[tuple[str, str]] = []

    @hookimpl
    def on_turn_start(self, scope: ProfileScope, turn: TurnInfo) -> None:
        self.begun.append(turn.turn_id)

    @hookimpl
    def on_turn_end(self, scope: ProfileScope, turn: TurnEnd) -> None:
        assert turn.outcome in {"answered", "silent"} or turn.error or turn.outcome == "cancelled"
        self.ended.append((turn.turn.turn_id, turn.outcome))


async def behave(turn: Turn) -> AsyncIterator[AgentEvent]:
    what = turn.messages[0].text
    if what in {"error", "fault", "exit", "interrupt", "cancels itself"}:
        raise {
            "error": AgentError("no"),
            "fault": ValueError(what),
            "exit": SystemExit(3),
            "interrupt": KeyboardInterrupt(),
            "cancels itself": asyncio.CancelledError(),
        }[what]
    if what.startswith(("too slow", "stop", "shutdown")) and turn.attempt == 1:
        for _ in range(2 if what.endswith("goes on") else 0):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(1000)
        await asyncio.sleep(1000)
    yield Text(what)


def no_answer_to_faults(tx: Tx) -> None:
    """The commit of these turns is a fault of the code."""
    tx.execute(
        "CREATE TEMP TRIGGER wrong BEFORE INSERT ON message WHEN new.text = 'fault of the core'"
        " BEGIN SELECT RAISE(ABORT, 'wrong'); END"
    )


async def end_one(
    running: Gateway, platform: ScriptedPlatform, agent: ScriptedAgent, what: str
) -> None:
    """Bring one turn to its end, or as near to it as a stop has to come."""
    lanes = running.profiles["default"].lanes
    count = len(agent.runs)
    await platform.say(what)
    await agent.started(count + 1)
    if what.startswith("stop"):
        await platform.say("/stop")
    if not what.startswith("shutdown"):
        await until(lambda: not lanes.busy)


@given(st.lists(st.sampled_from(sorted(ENDS)), min_size=1, max_size=5))
@settings(max_examples=25, deadline=None)
def test_each_turn_that_begins_ends_once(plan: list[str]) -> None:
    async def scenario(path: Path) -> Witness:
        witness = Witness()
        platform, waiting = ScriptedPlatform(), list(plan)
        while waiting:
            agent = ScriptedAgent(behave)
            async with gateway(path, platform, agent, witness, config=CONFIG) as running:
                await store_of(running).write(no_answer_to_faults)
                await until(lambda: not running.profiles["default"].lanes.busy)
                running.grace = 0.0
                while waiting:
                    what = waiting.pop(0)
                    await end_one(running, platform, agent, what)
                    if what.startswith("shutdown"):
                        break
        return witness

    with tempfile.TemporaryDirectory() as directory:
        witness = run(scenario(Path(directory)), speed=2 * HASTY, limit=60)
        stored = rows(Path(directory), "SELECT id, state FROM turn WHERE state <> 'running'")
    assert Counter(witness.begun) == Counter(turn for turn, _ in witness.ended)
    assert dict(witness.ended) == dict(stored)
    assert max(Counter(witness.begun).values()) == 1
    happened = [outcome for _, outcome in witness.ended]
    expected = Counter(ENDS[what] for what in plan)
    again = sum(what.startswith("shutdown") for what in plan[:-1])
    assert Counter(happened) == expected + Counter({"answered": again})


def test_a_turn_whose_end_a_stop_leaves_unwritten_is_told_to_have_ended(tmp_path: Path) -> None:
    witness = Witness()

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent, witness) as running:
            await no_room_for(running, "UPDATE OF ended_at ON turn")
            await platform.say("hello")
            await until(lambda: store_of(running).trouble != "")
            running.grace = 0.0

    run(scenario(), speed=HASTY)
    ((turn, outcome),) = witness.ended
    assert ([turn], outcome) == (witness.begun, "interrupted")
