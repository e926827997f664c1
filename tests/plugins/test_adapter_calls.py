"""Calls of one adapter: arguments, limits, errors, accounts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from hermes_core import (
    Adapter,
    Outbound,
    PluginError,
    RateLimited,
    Receipt,
    SendFailed,
    Settings,
    hookimpl,
)
from hermes_core import hookspecs as specs
from hermes_core.plugins import AdapterCalls, Plugin
from tests.plugins.support import SkippingLoop, hooks_of, plugin, run, settle

ANY: Any = None


class Line(Adapter[Settings]):
    """Answers what it is told to."""

    def __init__(self) -> None:
        super().__init__(Settings(), ANY)
        self.answer: BaseException | str = "1"
        self.release = asyncio.Event()

    @hookimpl
    def connect(self) -> str:
        return "me"

    @hookimpl
    async def send(self, message: Outbound) -> Receipt:
        await asyncio.sleep(0)
        if isinstance(self.answer, BaseException):
            raise self.answer
        return Receipt(message_id=self.answer)

    @hookimpl
    async def set_typing(self, active: bool) -> None:
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                continue

    @hookimpl
    async def attach(self, channel: object) -> None:
        if isinstance(channel, BaseException):
            raise channel
        await self.release.wait()


def typing(calls: AdapterCalls) -> Coroutine[Any, Any, None]:
    return calls.call(specs.set_typing, address=ANY, active=True)


def test_hooks_plain_and_async_get_the_arguments_that_they_name() -> None:
    async def work(_: SkippingLoop) -> None:
        calls = AdapterCalls(Line())
        assert await calls.call(specs.connect, is_reconnect=True) == "me"
        assert await calls.call(specs.send, ANY) == Receipt(message_id="1")
        assert calls.has(specs.send)
        assert not calls.has(specs.edit)
        with pytest.raises(PluginError, match=r"Line: does not implement edit"):
            await calls.call(specs.edit, message_id="1", message=ANY)

    run(work)


def test_errors_pass_and_what_is_no_exception_is_contained() -> None:
    async def work(_: SkippingLoop) -> None:
        line = Line()
        calls = AdapterCalls(line)
        line.answer = RateLimited(3)
        with pytest.raises(RateLimited):
            await calls.call(specs.send, message=ANY)
        for error in (
            SystemExit(1),
            KeyboardInterrupt(),
            GeneratorExit(),
            asyncio.CancelledError(),
        ):
            line.answer = error
            with pytest.raises(PluginError, match=f"raised {type(error).__name__}"):
                await calls.call(specs.send, message=ANY)
        with pytest.raises(PluginError, match="raised SystemExit"):
            await calls.call(specs.attach, channel=SystemExit())  # type: ignore[arg-type]

    run(work)


def test_a_late_call_is_a_time_out_and_several_that_linger_are_enough() -> None:
    async def work(loop: SkippingLoop) -> None:
        line = Line()
        hooks = hooks_of(plugin())
        calls = hooks.adapter_calls(Plugin("line", "hermes-plugin-line", "1"), line, where="line/a")
        for _number in range(3):
            call = asyncio.create_task(typing(calls))
            await settle()
            loop.skip(11)
            with pytest.raises(TimeoutError, match="not done within 10 s"):
                await call
        with pytest.raises(SendFailed, match="line/a: earlier calls of set_typing do not end"):
            await typing(calls)
        tally = hooks.stats["line", "set_typing"]
        assert (tally.calls, tally.timeouts, tally.skipped) == (3, 3, 1)
        assert len(hooks.abandoned) == 3
        other = hooks.adapter_calls(Plugin("line", "hermes-plugin-line", "1"), Line())
        assert await other.call(specs.connect, is_reconnect=False) == "me"
        line.release.set()
        await settle()
        await typing(calls)

    run(work)


def test_a_call_without_a_limit_ends_when_its_caller_is_cancelled() -> None:
    async def work(loop: SkippingLoop) -> None:
        calls = AdapterCalls(Line())
        call = asyncio.create_task(calls.call(specs.attach, channel=ANY))
        await settle()
        loop.skip(1_000_000)
        await settle()
        assert not call.done()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    run(work)
