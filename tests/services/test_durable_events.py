from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes_core import AgentError, AgentEvent, DurableEvent, Text, Turn
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, WallClock, gateway
from tests.services.support import KeeperPlugin, run, with_tools

HOOKS = ("on_session_start", "on_tool_call_end", "on_turn_end")


def test_events_of_a_turn_are_read_in_order_and_kept_until_the_cursor_moves(tmp_path: Path) -> None:
    async def first() -> None:
        plugin, platform = KeeperPlugin(HOOKS), ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(with_tools), plugin):
            await platform.say("go")
            events = await plugin.service.read(4)
            assert [event.hook for event in events] == [
                "on_session_start",
                "on_tool_call_end",
                "on_tool_call_end",
                "on_turn_end",
            ]
            call, turn = events[1].values["call"], events[3].values["turn"]
            assert isinstance(call, dict)
            assert isinstance(turn, dict)
            assert call["input"] == {"pattern": "x", "odd": None}
            assert call["output"] == "two ? lines"
            assert (turn["outcome"], turn["text"]) == ("answered", "done")

    async def second() -> None:
        plugin, platform = KeeperPlugin(HOOKS), ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(with_tools), plugin):
            keeper = plugin.service
            events = await keeper.read(4)
            await keeper.context.tables.write(
                lambda tx: keeper.cursor.move(tx, events[2].sequence) if keeper.cursor else None
            )
            (left,) = await keeper.read(1)
            assert left.hook == "on_turn_end"
            count = await keeper.context.tables.read(
                lambda tx: tx.execute("SELECT COUNT(*) FROM event").fetchone()
            )
            assert count == (1,)

    run(first())
    run(second())


def test_nothing_is_written_when_nobody_asked(tmp_path: Path) -> None:
    async def main() -> None:
        plugin, platform = KeeperPlugin(), ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(with_tools), plugin):
            await platform.say("go")
            await platform.next_text()
            tables = plugin.service.context.tables
            rows = await tables.read(lambda tx: tx.execute("SELECT * FROM event").fetchall())
            assert rows == []

    run(main())


def test_every_end_of_a_turn_is_an_event(tmp_path: Path) -> None:
    async def main() -> None:
        agent = ScriptedAgent()

        async def fail(turn: Turn) -> AsyncIterator[AgentEvent]:
            if turn.messages:
                raise AgentError("no")
            yield Text("")

        plugin, platform = KeeperPlugin(("on_turn_end",)), ScriptedPlatform()
        async with gateway(tmp_path, platform, agent, plugin):
            gate = agent.gate("wait")
            await platform.say("wait")
            await agent.started(1)
            await platform.say("/stop")
            (stopped,) = await plugin.service.read(1)
            gate.set()
            agent.behaviour = fail
            await platform.say("fail")
            _, failed = await plugin.service.read(2)
            assert [_outcome(stopped), _outcome(failed)] == ["cancelled", "failed"]

    def _outcome(event: DurableEvent) -> object:
        turn = event.values["turn"]
        return turn["outcome"] if isinstance(turn, dict) else None

    run(main())


def test_a_turn_that_the_stop_cuts_is_told_and_runs_again(tmp_path: Path) -> None:
    async def main() -> list[object]:
        outcomes: list[object] = []
        for text in ("wait", ""):
            agent = ScriptedAgent()
            plugin, platform = KeeperPlugin(("on_turn_end",)), ScriptedPlatform()
            async with gateway(tmp_path, platform, agent, plugin) as running:
                running.grace = 0.0
                if text:
                    agent.gate(text)
                    await platform.say(text)
                    await agent.started(1)
                else:
                    found = await plugin.service.read(2)
                    outcomes = [event.values["turn"]["outcome"] for event in found]  # type: ignore[index]
        return outcomes

    assert run(main()) == ["interrupted", "answered"]


def test_events_that_nobody_reads_are_deleted_at_an_age(tmp_path: Path) -> None:
    wall = WallClock()

    async def main() -> None:
        plugin, platform = KeeperPlugin(("on_turn_end",)), ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(), plugin, wall=wall) as running:
            await platform.say("hello")
            await plugin.service.read(1)
            wall.advance(3 * 86400 - 1)
            await running.profiles["default"].housekeep()
            await plugin.service.read(1)
            wall.advance(2)
            await running.profiles["default"].housekeep()
            cursor = plugin.service.cursor
            assert cursor is not None
            assert await cursor.read() == []

    run(main())


def test_only_what_a_transaction_writes_can_be_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        plugin = KeeperPlugin()
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent(), plugin):
            with pytest.raises(ValueError, match="on_delivered"):
                plugin.service.context.events(["on_delivered"])

    run(main())


def test_a_service_that_is_restarted_reads_on_where_it_was(tmp_path: Path) -> None:
    async def main() -> None:
        plugin, platform = KeeperPlugin(("on_turn_end",)), ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(), plugin) as running:
            await platform.say("one")
            await platform.next_text()
            await plugin.service.read(1)
            services = running.profiles["default"].services
            for count in range(2, 12):
                restart = asyncio.create_task(services.restart(["keeper"]))
                await platform.say(str(count))  # its turn may end while there is no service
                await platform.next_text()
                await restart
                events = await plugin.service.read(count)
            assert sorted(event.sequence for event in events) == [e.sequence for e in events]

    run(main())
