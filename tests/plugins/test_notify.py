"""How notify hooks are told, and who holds the event loop meanwhile."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from functools import partial
from itertools import permutations

import pytest

from hermes_core import PluginError, hookimpl
from hermes_core import hookspecs as specs
from hermes_core.plugins import Hooks, Running
from tests.plugins.support import (
    ANY,
    GATEWAY,
    PLATFORM,
    SkippingLoop,
    authorize,
    hooks_of,
    judge,
    plugin,
    run,
    settle,
)


def observer(name: str, seen: list[str], act: Callable[[], object] | None = None) -> object:
    """A plugin that notes each start and stop of the gateway, and then acts."""

    @hookimpl
    def on_gateway_start() -> None:
        seen.append(name)
        if act is not None:
            act()

    return plugin(name, on_gateway_start=on_gateway_start)


def fail(error: BaseException) -> Callable[[], object]:
    def act() -> object:
        raise error

    return act


async def tell(hooks: Hooks, times: int = 1) -> None:
    """Notify and let everything be delivered."""
    for _ in range(times):
        hooks.notify(specs.on_gateway_start, gateway=GATEWAY)
        await settle()


async def started_and_told(hooks: Hooks, times: int, _: SkippingLoop) -> None:
    await hooks.start()
    await tell(hooks, times)
    await hooks.stop(30)


def test_notify_only_queues_and_keeps_the_order() -> None:
    async def work(_: SkippingLoop) -> None:
        seen: list[object] = []

        @hookimpl
        async def on_gateway_start(gateway: object) -> None:
            await asyncio.sleep(0)
            seen.append(gateway)

        @hookimpl
        def on_platform_connected(platform: object, scope: object) -> None:
            seen.append((platform, scope))

        told = plugin(
            on_gateway_start=on_gateway_start, on_platform_connected=on_platform_connected
        )
        hooks = hooks_of(told)
        await hooks.start()
        hooks.notify(specs.on_gateway_start, GATEWAY)
        hooks.notify(specs.on_platform_connected, ANY, platform=PLATFORM)
        hooks.notify(specs.on_gateway_stop, gateway=GATEWAY)
        assert not seen
        await hooks.stop(30)
        assert seen == [GATEWAY, (PLATFORM, None)]

    run(work)


@pytest.mark.case("PL-05")
def test_a_raising_observer_does_not_silence_its_neighbours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for order in permutations(["a", "bad", "c"]):
        seen: list[str] = []
        plugins = [
            observer(name, seen, fail(ValueError("broken")) if name == "bad" else None)
            for name in order
        ]

        hooks = hooks_of(*plugins)
        with caplog.at_level(logging.DEBUG):
            caplog.clear()
            run(partial(started_and_told, hooks, 10))
        assert (seen.count("a"), seen.count("bad"), seen.count("c")) == (10, 5, 10)
        tally = hooks.stats["bad", "on_gateway_start"]
        assert (tally.errors, tally.skipped, tally.suspended) == (5, 5, True)
        loud = [record for record in caplog.records if record.levelno >= logging.WARNING]
        assert [record.getMessage() for record in loud] == [
            "plugin bad (bad) failed in on_gateway_start: ValueError: broken",
            "plugin bad (bad): on_gateway_start failed too often and is left out for 60 s",
        ]
        assert loud[0].exc_info


@pytest.mark.case("PL-04")
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_no_observer_can_end_the_process(error: BaseException) -> None:
    async def work(_: SkippingLoop) -> None:
        seen: list[str] = []

        @hookimpl
        async def on_gateway_start() -> None:
            await asyncio.sleep(0)
            raise error

        hooks = hooks_of(
            observer("plain", seen, fail(error)),
            plugin("async", on_gateway_start=on_gateway_start),
            observer("good", seen),
        )
        await hooks.start()
        await tell(hooks, 2)
        await hooks.stop(30)
        assert seen.count("good") == 2
        assert hooks.stats["plain", "on_gateway_start"].errors == 2
        assert hooks.stats["async", "on_gateway_start"].errors == 2

    run(work)


def test_a_slow_plugin_delays_nobody_and_loses_the_newest() -> None:
    async def work(_: SkippingLoop) -> None:
        seen: list[str] = []
        release = asyncio.Event()

        @hookimpl
        async def on_gateway_start() -> None:
            await release.wait()
            seen.append("slow")

        hooks = hooks_of(plugin("slow", on_gateway_start=on_gateway_start), observer("a", seen))
        await hooks.start()
        await tell(hooks)
        for _burst in range(11):
            for _number in range(100):
                hooks.notify(specs.on_gateway_start, gateway=GATEWAY)
            await asyncio.sleep(0)
        await hooks.start()  # a second time is no harm
        release.set()
        await hooks.stop(30)
        tally = hooks.stats["slow", "on_gateway_start"]
        assert seen.count("slow") == 1001
        assert (tally.calls, tally.dropped) == (1001, 100)

    run(work)


def test_stop_ends_within_its_grace_and_says_what_it_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work(loop: SkippingLoop) -> None:
        release = asyncio.Event()

        @hookimpl
        async def on_gateway_start() -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        hooks = hooks_of(plugin("stuck", on_gateway_start=on_gateway_start))
        await hooks.start()
        for _ in range(3):
            hooks.notify(specs.on_gateway_start, gateway=GATEWAY)
        stopping = asyncio.create_task(hooks.stop(5))
        await settle()
        loop.skip(6)
        await stopping
        hooks.notify(specs.on_gateway_start, gateway=GATEWAY)
        assert hooks.stats["stuck", "on_gateway_start"].dropped == 3
        assert [call.plugin for call in hooks.abandoned] == ["stuck"]
        release.set()
        await settle()

    with caplog.at_level(logging.WARNING):
        run(work)
    assert "plugin stuck (stuck): 2 calls were dropped" in caplog.text
    assert "stuck.on_gateway_start lingers since 0 s" in caplog.text


def test_what_nobody_implements_costs_nothing_and_is_known() -> None:
    hooks = hooks_of(judge("a", True))
    assert hooks.has(specs.authorize)
    assert not hooks.has(specs.on_gateway_start)
    hooks.notify(specs.on_gateway_start, gateway=GATEWAY)
    assert not hooks.stats.keys() - {("a", "authorize")}


def test_the_accounts_can_be_sent_as_json() -> None:
    hooks = hooks_of(judge("a", True))
    run(lambda _: authorize(hooks))
    report = json.loads(json.dumps(hooks.report()))
    assert report["abandoned"] == []
    (row,) = report["hooks"]
    assert (row["plugin"], row["hook"], row["calls"]) == ("a", "authorize", 1)


@pytest.mark.case("PL-07")
@pytest.mark.parametrize("is_async", [True, False])
def test_code_that_holds_the_loop_is_named_while_it_does(
    is_async: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes_core.plugins.caller.SLOW", 0.0)
    seen: list[Running | None] = []
    hooks: Hooks
    inside = threading.Event()
    known = threading.Event()

    def watch() -> None:
        inside.wait(30)
        seen.append(hooks.running)
        known.set()

    def block() -> None:
        inside.set()
        known.wait(30)

    @hookimpl
    async def slowly() -> None:
        await asyncio.sleep(0)
        block()

    @hookimpl
    def plainly() -> None:
        block()

    hooks = hooks_of(plugin("blocker", on_gateway_start=slowly if is_async else plainly))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with caplog.at_level(logging.WARNING):
        run(partial(started_and_told, hooks, 1))
    watcher.join()
    assert hooks.running is None
    (running,) = seen
    assert running is not None
    assert (running.plugin, running.hook) == ("blocker", "on_gateway_start")
    assert "plugin blocker (blocker) held the event loop for " in caplog.text


@pytest.mark.case("PL-07")
def test_an_async_hook_may_await_what_runs_on_the_same_loop() -> None:
    async def work(_: SkippingLoop) -> None:
        async def other() -> str:
            await asyncio.sleep(0)
            return "done"

        @hookimpl
        async def authorize_() -> object:
            return await asyncio.create_task(other())

        assert await authorize(hooks_of(plugin(authorize=authorize_))) == ["done"]

    run(work)


def test_every_call_can_be_traced(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_TRACE_HOOKS", "1")
    hooks = hooks_of(judge("a", True), judge("b", PluginError("no")))
    with caplog.at_level(logging.INFO, "hermes_core.trace"):
        run(lambda _: authorize(hooks))
    traced = [record.getMessage() for record in caplog.records if "trace" in record.name]
    assert [text.partition(" in ")[0] for text in traced] == [
        "a.authorize: ok",
        "b.authorize: PluginError",
    ]
