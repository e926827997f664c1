"""How collect and decide hooks are asked: order, limits, failures, and when asking stops."""

from __future__ import annotations

import asyncio

import pytest

from hermes_core import Platform, hookimpl
from hermes_core import hookspecs as specs
from hermes_core.hookkinds import decide
from tests.plugins.support import (
    ANY,
    SkippingLoop,
    authorize,
    hooks_of,
    judge,
    plugin,
    run,
    settle,
)


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
