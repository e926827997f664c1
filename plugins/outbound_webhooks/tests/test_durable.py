from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import hermes_outbound_webhooks
from hermes_core import HermesError, Text, ToolEnd, ToolStart, Turn
from hermes_core.messages import AgentEvent
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, WallClock, gateway
from hermes_outbound_webhooks import durable, retry

Target = Callable[..., str]

DOOMED = textwrap.dedent("""
    import asyncio, os, signal, sys
    from pathlib import Path
    import hermes_outbound_webhooks
    from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway

    async def main():
        home, count = Path(sys.argv[1]), int(sys.argv[2])
        config = (home / "target.toml").read_text()
        platform = ScriptedPlatform()
        plugins = (platform, ScriptedAgent(), hermes_outbound_webhooks)
        async with gateway(home, *plugins, config=config):
            for number in range(count):
                await platform.say(str(number), chat=f"c{number % 50}")
            for _ in range(count):
                await platform.next_text()
            os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(main())
""")


def run(work: Any) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(100):
            return await work

    return asyncio.run(limited())


async def deliveries(running: Any, state: str, count: int) -> list[dict[str, Any]]:
    services = running.profiles["default"].services
    while True:
        rows = (await services.request("webhooks", {"do": "deliveries"}))["deliveries"]
        found = [row for row in rows if row["state"] == state]
        if len(found) >= count:
            return found


def kill_with(home: Path, config: str, count: int) -> None:
    """A gateway that answers `count` messages and is killed at once."""
    home.mkdir(exist_ok=True)
    (home / "target.toml").write_text(config)
    paths = [str(Path(module.__file__ or "").parents[1]) for module in (hermes_outbound_webhooks,)]
    paths += [path for path in sys.path if path]
    done = subprocess.run(
        [sys.executable, "-c", DOOMED, str(home), str(count)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=False,
        timeout=90,
    )
    assert done.returncode == -signal.SIGKILL


@pytest.mark.case("WH-17")
def test_after_kill_9_every_durable_delivery_arrives(
    tmp_path: Path, start_sink: Any, target: Target
) -> None:
    count = 1000
    good = start_sink()
    home = tmp_path / "home"
    kill_with(home, target("/hook/hang", durable=True, timeout="60s"), count)

    async def main() -> list[dict[str, Any]]:
        config = target(url=good.url("/hook/200"), durable=True)
        plugins = (ScriptedPlatform(), ScriptedAgent(), hermes_outbound_webhooks)
        async with gateway(home, *plugins, config=config):
            return [(await good.next()).document for _ in range(count)]

    documents = run(main())
    texts = {document["extra"]["text"] for document in documents}
    assert texts == {str(number) for number in range(count)}
    assert len({document["delivery_id"] for document in documents}) == count
    assert len(good.rest()) == 0


def test_a_durable_delivery_keeps_its_id_and_body_across_restarts(
    tmp_path: Path, sink: Any, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.01)
    config = target("/hook/500,500,500,200", durable=True, max_retries=0)

    async def first() -> None:
        platform = ScriptedPlatform()
        plugins = (platform, ScriptedAgent(), hermes_outbound_webhooks)
        async with gateway(tmp_path, *plugins, config=config):
            await platform.say("hello")
            await sink.next()

    async def second() -> None:
        plugins = (ScriptedPlatform(), ScriptedAgent(), hermes_outbound_webhooks)
        async with gateway(tmp_path, *plugins, config=config) as running:
            (row,) = await deliveries(running, "delivered", 1)
            assert row["attempts"] >= 2

    run(first())
    run(second())
    sink.rest()
    assert len({arrival.headers["webhook-id"] for arrival in sink.arrivals}) == 1
    assert len({arrival.body for arrival in sink.arrivals}) == 1
    assert len(sink.arrivals) == 4


def test_a_durable_delivery_has_an_age(
    tmp_path: Path, sink: Any, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE", 200.0)
    wall = WallClock()

    async def main() -> None:
        platform = ScriptedPlatform()
        plugins = (platform, ScriptedAgent(), hermes_outbound_webhooks)
        config = target("/hook/500,200", durable=True, max_age="5m")
        async with gateway(tmp_path, *plugins, config=config, wall=wall) as running:
            await platform.say("one")
            await sink.next()
            await deliveries(running, "pending", 1)
            wall.advance(301)
            await platform.say("two")
            await sink.next()
            (row,) = await deliveries(running, "failed", 1)
            assert row["reason"] == "too old; last: status 500"
            await deliveries(running, "delivered", 1)
            services = running.profiles["default"].services
            await services.request("webhooks", {"do": "replay", "id": row["id"]})
            assert (await sink.next()).document["delivery_id"] == row["id"]
            await deliveries(running, "delivered", 2)

    run(main())


async def _verbose(turn: Turn) -> AsyncIterator[AgentEvent]:
    much: dict[str, object] = {str(number): "x" * 50 for number in range(9000)}
    yield ToolStart(call_id="1", name="grep", input=much)
    yield ToolEnd(call_id="1", name="grep")
    yield Text("done")


def test_a_durable_document_says_that_it_was_cut(tmp_path: Path, sink: Any, target: Target) -> None:
    config = target(durable=True, events=["on_tool_call_end", "on_turn_end"])

    async def main() -> None:
        platform = ScriptedPlatform()
        plugins = (platform, ScriptedAgent(_verbose), hermes_outbound_webhooks)
        async with gateway(tmp_path, *plugins, config=config):
            await platform.say("hello")
            documents = [(await sink.next()).document for _ in range(2)]
            tool, turn = sorted(documents, key=lambda one: one["tool_name"] is None)
            assert tool["extra"]["truncated"] is True
            assert "truncated" not in turn["extra"]

    run(main())


def test_what_waits_for_a_target_that_is_no_more_ends_and_goes_with_age(
    tmp_path: Path, sink: Any, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "ERASED", 1)
    wall = WallClock()

    async def talk() -> None:
        platform = ScriptedPlatform()
        plugins = (platform, ScriptedAgent(), hermes_outbound_webhooks)
        config = target("/hook/hang", durable=True, timeout="60s")
        async with gateway(tmp_path, *plugins, config=config, wall=wall) as running:
            await platform.say("one")
            await platform.say("two")
            await deliveries(running, "pending", 2)

    async def look() -> None:
        plugins = (ScriptedPlatform(), ScriptedAgent(), hermes_outbound_webhooks)
        config = '[retention]\ncontent = "1d"\n' + target("/hook/200", name="other")
        async with gateway(tmp_path, *plugins, config=config, wall=wall) as running:
            row, _ = await deliveries(running, "failed", 2)
            assert row["reason"] == "there is no durable target of that name"
            profile = running.profiles["default"]
            with pytest.raises(HermesError, match="nothing is sent to audit"):
                await profile.services.request("webhooks", {"do": "replay", "id": row["id"]})
            wall.advance(86_401)
            hermes_outbound_webhooks.on_housekeeping(profile.scope)
            while (await profile.services.request("webhooks", {"do": "deliveries"}))["deliveries"]:
                pass

    run(talk())
    run(look())


def test_a_clock_that_was_ahead_delays_nothing(
    tmp_path: Path, sink: Any, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE", 200.0)
    wall = WallClock()
    config = target("/hook/500,200", durable=True)

    async def main() -> None:
        wall.advance(365 * 86_400)
        for step in (-365 * 86_400, 0):
            platform = ScriptedPlatform()
            plugins = (platform, ScriptedAgent(), hermes_outbound_webhooks)
            async with gateway(tmp_path, *plugins, config=config, wall=wall) as running:
                if not step:
                    await deliveries(running, "delivered", 1)
                    continue
                await platform.say("hello")
                await sink.next()
                while not (await deliveries(running, "pending", 1))[0]["attempts"]:
                    pass
            wall.advance(step)

    run(main())


@pytest.fixture
def _quick_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "AFTER_FAULT", 0.01)


@pytest.mark.usefixtures("_quick_recovery")
@pytest.mark.parametrize("statement", ["INSERT", "UPDATE"])
def test_a_database_that_cannot_be_written_costs_no_event_and_repeats_none(
    tmp_path: Path,
    sink: Any,
    target: Target,
    caplog: pytest.LogCaptureFixture,
    statement: str,
) -> None:
    fault = (
        f"CREATE TRIGGER fault BEFORE {statement} ON webhook_delivery"
        " BEGIN SELECT RAISE(ABORT, 'no room'); END"
    )

    async def main() -> None:
        platform = ScriptedPlatform()
        plugins = (platform, ScriptedAgent(), hermes_outbound_webhooks)
        config = target("/hook/200", durable=True)
        async with gateway(tmp_path, *plugins, config=config) as running:
            store = running.profiles["default"].store
            await store.write(lambda tx: tx.execute(fault))
            for text in ("one", "two", "three"):
                await platform.say(text)
                await platform.next_text()
            while caplog.text.count("for the database") < 3:
                await deliveries(running, "pending", 0)
            await store.write(lambda tx: tx.execute("DROP TRIGGER fault"))
            await deliveries(running, "delivered", 3)

    run(main())
    assert len(sink.rest()) == 3


def test_events_that_no_turn_commits_are_durable_too(
    tmp_path: Path, sink: Any, target: Target
) -> None:
    events = ["on_message_received", "on_session_start", "on_turn_start", "on_turn_end"]
    config = target("/hook/200", durable=True, events=events)

    async def main() -> list[str]:
        platform = ScriptedPlatform()
        plugins = (platform, ScriptedAgent(), hermes_outbound_webhooks)
        async with gateway(tmp_path, *plugins, config=config):
            await platform.say("hello")
            return [(await sink.next()).document["hook_event_name"] for _ in events]

    assert sorted(run(main())) == sorted(events)


def test_a_reload_doubles_nothing(tmp_path: Path, sink: Any, target: Target) -> None:
    config = target("/hook/200") + target("/kept/200", name="kept", durable=True)

    async def main() -> None:
        platform = ScriptedPlatform()
        plugins = (platform, ScriptedAgent(), hermes_outbound_webhooks)
        async with gateway(tmp_path, *plugins, config=config) as running:
            profile = running.profiles["default"]
            for _ in range(3):
                await profile.services.restart(["hooks.outbound"])
            await platform.say("hello")
            await sink.next(2)
            await deliveries(running, "delivered", 2)

    run(main())
    assert sink.rest() == []
