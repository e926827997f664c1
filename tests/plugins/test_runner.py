"""How hooks are called: order, limits, failures, queues, and what is known about it afterwards."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any

import pytest

from hermes_core import Platform, PluginError, hookimpl
from hermes_core import hookspecs as specs
from hermes_core.hookkinds import decide
from hermes_core.plugins import Hooks, Plugin, Running
from tests.plugins.support import GATEWAY, PLATFORM, SkippingLoop, hooks_of, plugin, run, settle

ANY: Any = None


def observer(name: str, seen: list[str], act: Callable[[], object] | None = None) -> object:
    """A plugin that notes each start and stop of the gateway, and then acts."""

    @hookimpl
    def on_gateway_start() -> None:
        seen.append(name)
        if act is not None:
            act()

    return plugin(name, on_gateway_start=on_gateway_start)


def judge(name: str, verdict: object, seen: list[str] | None = None) -> object:
    """A plugin whose `authorize` returns or raises `verdict`."""

    @hookimpl
    def authorize(sender: object) -> object:
        if seen is not None:
            seen.append(name)
        if isinstance(verdict, BaseException):
            raise verdict
        return verdict

    return plugin(name, authorize=authorize)


def fail(error: BaseException) -> Callable[[], object]:
    def act() -> object:
        raise error

    return act


async def authorize(hooks: Hooks, ask: Callable[[Plugin], bool] | None = None) -> list[object]:
    """The answers of `authorize`; an error as its text."""
    answers = await hooks.decide(specs.authorize, ask, scope=ANY, sender=ANY, address=ANY)
    return [answer.value if answer.error is None else str(answer.error) for answer in answers]


async def tell(hooks: Hooks, times: int = 1) -> None:
    """Notify and let everything be delivered."""
    for _ in range(times):
        hooks.notify(specs.on_gateway_start, gateway=GATEWAY)
        await settle()


async def started_and_told(hooks: Hooks, times: int, _: SkippingLoop) -> None:
    await hooks.start()
    await tell(hooks, times)
    await hooks.stop(30)


# ── collect ──────────────────────────────────────────────────────────────────────────────────────


def test_collect_asks_all_and_quarantines_who_fails() -> None:
    answers = [list[Platform](), list[Platform]()]

    @hookimpl
    def platforms() -> list[Platform]:
        return answers.pop()

    @hookimpl
    def agents() -> list[object]:
        return []

    @hookimpl
    def on_gateway_start() -> None: ...

    failing = plugin("failing", platforms=platforms, on_gateway_start=on_gateway_start)
    hooks = hooks_of(failing, plugin("good", agents=agents), required=["failing"])
    assert [owned.value for owned in hooks.collect(specs.platforms)] == [[]]
    assert not hooks.missing_required
    assert hooks.collect(specs.platforms) == []
    assert [plugin.name for plugin in hooks.plugins] == ["good"]
    assert hooks.quarantined[0].reason == "platforms raised IndexError: pop from empty list"
    assert hooks.missing_required == ("failing",)
    assert not hooks.has(specs.on_gateway_start)


# ── decide ───────────────────────────────────────────────────────────────────────────────────────


def test_decide_asks_in_order_whom_it_is_to_ask() -> None:
    async def work(_: SkippingLoop) -> None:
        seen: list[str] = []
        hooks = hooks_of(judge("a", True, seen), judge("b", None, seen), judge("c", False, seen))
        assert await authorize(hooks) == [True, None, False]
        assert await authorize(hooks, lambda plugin: plugin.name != "b") == [True, False]
        assert seen == ["a", "b", "c", "a", "c"]

    run(work)


def test_tryfirst_and_trylast_come_before_the_order_of_names() -> None:
    @hookimpl(tryfirst=True)
    def first() -> object:
        return "first"

    @hookimpl(trylast=True)
    def last() -> object:
        return "last"

    hooks = hooks_of(
        plugin("a", authorize=last), judge("b", "b"), judge("c", "c"), plugin("d", authorize=first)
    )
    assert run(lambda _: authorize(hooks)) == ["first", "b", "c", "last"]


def test_async_and_disguised_async_deciders_are_awaited() -> None:
    @hookimpl
    async def plain() -> bool:
        await asyncio.sleep(0)
        return True

    @hookimpl
    def disguised() -> object:
        return plain()

    hooks = hooks_of(plugin("a", authorize=plain), plugin("b", authorize=disguised))
    assert run(lambda _: authorize(hooks)) == [True, True]


@pytest.mark.case("PL-04")
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_a_failing_decider_of_a_closed_hook_refuses(error: BaseException) -> None:
    hooks = hooks_of(judge("a", error), judge("b", True))
    first, second = run(lambda _: authorize(hooks))
    assert str(first).startswith(f"raised {type(error).__name__}")
    assert second is True


@pytest.mark.case("PL-04")
def test_a_cancellation_that_a_plugin_makes_up_is_its_failure() -> None:
    @hookimpl
    async def authorize_() -> bool:
        raise asyncio.CancelledError

    @hookimpl
    def plain() -> bool:
        raise asyncio.CancelledError

    hooks = hooks_of(plugin("a", authorize=authorize_), plugin("b", authorize=plain))
    assert run(lambda _: authorize(hooks)) == ["raised CancelledError"] * 2


def test_a_late_decider_refuses_and_is_left_behind() -> None:
    async def work(loop: SkippingLoop) -> None:
        release = asyncio.Event()

        @hookimpl
        async def stubborn() -> bool:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            return True

        hooks = hooks_of(plugin("stubborn", authorize=stubborn))
        asking = asyncio.create_task(authorize(hooks))
        await settle()
        loop.skip(11)
        assert await asking == ["not done within 10 s"]
        assert [(call.plugin, call.hook) for call in hooks.abandoned] == [("stubborn", "authorize")]
        tally = hooks.stats["stubborn", "authorize"]
        assert (tally.calls, tally.timeouts, tally.errors, tally.abandoned) == (1, 1, 0, 1)
        release.set()
        await settle()
        assert not hooks.abandoned
        assert tally.abandoned == 0

    run(work)


def test_no_more_than_three_late_calls_linger() -> None:
    async def work(loop: SkippingLoop) -> None:
        release = asyncio.Event()
        began = 0

        @hookimpl
        async def stubborn() -> None:
            nonlocal began
            began += 1
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        hooks = hooks_of(plugin("stubborn", authorize=stubborn))
        for _number in range(4):
            asking = asyncio.create_task(authorize(hooks))
            await settle()
            loop.skip(11)
            (last,) = await asking
        assert last == "stubborn (stubborn): left out after repeated failures"
        assert began == len(hooks.abandoned) == 3
        release.set()
        await settle()

    run(work)


def test_cancelling_the_question_cancels_the_decider() -> None:
    async def work(_: SkippingLoop) -> None:
        ended = asyncio.Event()

        @hookimpl
        async def waiting() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.set()

        hooks = hooks_of(plugin(authorize=waiting))
        asking = asyncio.create_task(authorize(hooks))
        await settle()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await ended.wait()
        await settle()
        early = asyncio.create_task(authorize(hooks))
        await asyncio.sleep(0)
        early.cancel()  # before the task of the call has made its first step
        with pytest.raises(asyncio.CancelledError):
            await early
        await settle()
        assert not hooks.abandoned

    run(work)


def test_deciders_can_be_asked_one_by_one() -> None:
    async def work(_: SkippingLoop) -> None:
        seen: list[str] = []
        hooks = hooks_of(judge("a", True, seen), judge("b", True, seen))
        for decider in hooks.deciders(specs.authorize):
            answer = await decider(scope=ANY, sender=ANY, address=ANY)
            assert answer is not None
            assert (answer.plugin.name, answer.value) == ("a", True)
            break
        assert seen == ["a"]

    run(work)


def test_a_failing_decider_of_an_open_hook_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    @decide(since="1.0", closed=False)
    def authorize(scope: object, sender: object, address: object) -> bool | None: ...

    monkeypatch.setitem(specs.ALL, "authorize", authorize)
    hooks = hooks_of(judge("a", ValueError()), judge("b", True))
    asked = run(lambda _: hooks.decide(authorize, None, scope=1, sender=2, address=3))
    assert [(answer.plugin.name, answer.value) for answer in asked] == [("b", True)]


# ── breaker ──────────────────────────────────────────────────────────────────────────────────────


def test_after_five_failures_in_a_row_a_minute_without_calls() -> None:
    async def work(loop: SkippingLoop) -> None:
        seen: list[str] = []
        verdict: list[BaseException] = [ValueError("no")]

        @hookimpl
        def authorize_() -> bool:
            seen.append("asked")
            if verdict:
                raise verdict[0]
            return True

        hooks = hooks_of(plugin(authorize=authorize_))
        tally = hooks.stats["demo", "authorize"]
        for _ in range(7):
            await authorize(hooks)
        assert (tally.calls, tally.errors, tally.skipped, tally.suspended) == (5, 5, 2, True)
        assert await authorize(hooks) == ["demo (demo): left out after repeated failures"]
        loop.skip(61)
        assert await authorize(hooks) == ["no"]  # the trial
        assert "left out" in str(await authorize(hooks))
        loop.skip(61)
        verdict.clear()
        assert await authorize(hooks) == [True]
        assert await authorize(hooks) == [True]
        assert not tally.suspended

    run(work)


def test_a_success_in_between_starts_the_count_again() -> None:
    async def work(_loop: SkippingLoop) -> None:
        count = 0

        @hookimpl
        def authorize_() -> bool:
            nonlocal count
            count += 1
            if count % 5:
                raise ValueError
            return True

        hooks = hooks_of(plugin(authorize=authorize_))
        for _ in range(20):
            await authorize(hooks)
        assert hooks.stats["demo", "authorize"].skipped == 0

    run(work)


# ── notify ───────────────────────────────────────────────────────────────────────────────────────


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


# ── who holds the loop ───────────────────────────────────────────────────────────────────────────


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
