"""The life of an account: connected, lost, connected again, or failed for good."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_core import (
    Accepted,
    AccountFailed,
    Adapter,
    AdapterContext,
    Denied,
    Message,
    NotReady,
    Outbound,
    Platform,
    PluginError,
    RateLimited,
    Receipt,
    Sender,
    Settings,
    hookimpl,
)
from hermes_core.accounts import Accounts
from hermes_core.budget import Budget
from hermes_core.gateway import Gateway
from hermes_core.messages import Address
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from tests.core.support import HASTY, run, settle, until


def state(running: Gateway, name: str = "scripted") -> Any:
    accounts: Any = running.profiles["default"].status()["accounts"]
    return accounts[name]["state"]


def test_an_account_that_cannot_connect_is_tried_again_and_waited_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        platform.connect_results.extend(
            [ConnectionError("scripted"), TimeoutError(), ValueError("scripted")]
        )
        async with gateway(tmp_path, platform, agent) as running:
            saying = asyncio.create_task(platform.say("early"))
            await until(lambda: len(platform.connects) == 2)
            assert not saying.done()  # it is not acknowledged before it is taken in
            assert isinstance(await saying, Accepted)
            assert await platform.next_text() == "early"
            assert state(running) == "connected"
        assert platform.connects == [False] * 4

    run(scenario(), speed=HASTY)


def test_why_an_account_is_not_connected_is_told_and_its_traceback_at_level_debug(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        platform = ScriptedPlatform()
        platform.connect_results.append(NotImplementedError())
        async with gateway(tmp_path, platform, ScriptedAgent()) as running:
            await until(lambda: state(running) == "connected")

    with caplog.at_level(logging.DEBUG, "hermes_core.adapters"):
        run(scenario(), speed=HASTY)
    warning = "the account is not connected: NotImplementedError"
    assert (logging.WARNING, warning) in [(one.levelno, one.message) for one in caplog.records]
    (traced,) = [one for one in caplog.records if one.exc_info]
    assert traced.levelno == logging.DEBUG
    assert traced.exc_info is not None
    assert traced.exc_info[0] is NotImplementedError


def test_the_pauses_between_attempts_grow(tmp_path: Path) -> None:
    async def scenario() -> None:
        times: list[float] = []

        class Timed(ScriptedPlatform):
            def connected(self, is_reconnect: bool) -> str:
                times.append(asyncio.get_running_loop().time())
                return super().connected(is_reconnect)

        platform = Timed()
        platform.connect_results.extend([ConnectionError("scripted")] * 4)
        async with gateway(tmp_path, platform, ScriptedAgent()) as running:
            await until(lambda: state(running) == "connected")
        pauses = [after - before for before, after in itertools.pairwise(times)]
        # One second, then each twice as long, a quarter more or less.
        for number, pause in enumerate(pauses):
            assert pause >= 0.74 * 2**number

    run(scenario(), speed=HASTY)


def test_a_pause_that_the_network_names_is_kept_before_another_attempt(tmp_path: Path) -> None:
    async def scenario() -> None:
        times: list[float] = []

        class Timed(ScriptedPlatform):
            def connected(self, is_reconnect: bool) -> str:
                times.append(asyncio.get_running_loop().time())
                return super().connected(is_reconnect)

        platform = Timed()
        platform.connect_results.append(RateLimited(20.0))
        async with gateway(tmp_path, platform, ScriptedAgent()) as running:
            await until(lambda: state(running) == "connected")
            platform.lose_connection(RateLimited(20.0))
            await until(lambda: len(times) == 3)
        assert all(after - before >= 20.0 for before, after in itertools.pairwise(times))

    run(scenario(), speed=HASTY)


def test_what_waits_is_sent_when_a_lost_account_is_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        gate = agent.gate("hello")
        async with gateway(tmp_path, platform, agent) as running:
            await platform.say("hello")
            await agent.started(1)
            platform.lose_connection()
            await until(lambda: state(running) == "waiting")
            gate.set()
            assert await platform.next_text() == "hello"
            assert state(running) == "connected"
        assert platform.connects == [False, True]
        assert len(platform.attempts) == 1

    run(scenario(), speed=HASTY)


def test_a_connection_that_does_not_last_is_not_made_without_a_pause(tmp_path: Path) -> None:
    async def scenario() -> None:
        class Flapping(ScriptedPlatform):
            def connected(self, is_reconnect: bool) -> str:
                own_id = super().connected(is_reconnect)
                if len(self.connects) < 5:
                    self.lose_connection()
                return own_id

        platform = Flapping()
        async with gateway(tmp_path, platform, ScriptedAgent()) as running:
            began = asyncio.get_running_loop().time()
            await until(lambda: len(platform.connects) == 5)
            await until(lambda: state(running) == "connected")
            assert asyncio.get_running_loop().time() - began > 0.74 * (1 + 2 + 4 + 8)

    run(scenario(), speed=HASTY)


def test_an_account_that_can_never_work_is_said_so_and_takes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, other = ScriptedPlatform(), ScriptedPlatform("other")
        platform.connect_results.append(AccountFailed("the token was revoked"))
        async with gateway(tmp_path, platform, other, ScriptedAgent()) as running:
            with pytest.raises(NotReady):
                await platform.say("hello")
            assert state(running) == "failed"
            assert not running.failed_for_good  # the other one works
            await other.say("hello")
            assert await other.next_text() == "hello"
        assert platform.connects == [False]

    run(scenario())


def test_a_gateway_whose_accounts_can_never_work_has_failed_for_good(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform = ScriptedPlatform()
        platform.connect_results.append(AccountFailed("the token was revoked"))
        async with gateway(tmp_path, platform, ScriptedAgent()) as running:
            await until(lambda: state(running) == "failed")
            assert running.failed_for_good

    run(scenario())


def test_an_adapter_speaks_for_its_own_account_only(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform = ScriptedPlatform()
        event = Message(
            address=Address(platform="other", chat_id="c1"),
            sender=Sender(id="u1"),
            event_id="x",
            text="hello",
        )
        async with gateway(tmp_path, platform, ScriptedAgent()):
            with pytest.raises(PluginError, match="another account"):
                await platform.inject(event)

    run(scenario())


class Loud(Adapter[Settings]):
    """Its network writes ids in capitals; the canonical form is in small letters."""

    context_of: AdapterContext

    @staticmethod
    @hookimpl
    def normalize_user_id(user_id: str) -> str:
        return user_id.lower()

    @hookimpl
    async def connect(self, is_reconnect: bool) -> str:
        Loud.context_of = self.context
        return "BOT"

    @hookimpl
    async def send(self, message: Outbound) -> Receipt:
        return Receipt()


class LoudPlugin:
    @hookimpl
    def platforms(self) -> list[Platform]:
        return [Platform("loud", Loud, Settings, max_length=100, implicit=True)]


@pytest.mark.case("AZ-14")
def test_an_account_knows_itself_in_whatever_form_the_network_names_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        agent = ScriptedAgent()
        config = "[platforms.loud]\nallow_all = true\n"
        async with gateway(tmp_path, LoudPlugin(), agent, config=config) as running:
            await until(lambda: state(running, "loud") == "connected")
            context = Loud.context_of
            for sender in ("BOT", "bot", "Bot"):
                event = Message(
                    address=context.address("c1"), sender=Sender(id=sender), text="echo"
                )
                assert isinstance(await context.receive(event), Denied)
            event = Message(address=context.address("c1"), sender=Sender(id="PERSON"), text="hi")
            assert isinstance(await context.receive(event), Accepted)
            await agent.started(1)
        assert len(agent.runs) == 1

    run(scenario())


class _Nameless(Adapter[Settings]):
    """Connects, and then says that it is somebody whose id can be none."""

    calls: list[str]

    @hookimpl
    async def connect(self, is_reconnect: bool) -> str:
        self.calls.append("connect")
        return "odd"

    @hookimpl
    async def disconnect(self) -> None:
        self.calls.append("disconnect")

    @hookimpl
    async def send(self, message: Outbound) -> Receipt:
        raise NotImplementedError

    @staticmethod
    @hookimpl
    def normalize_user_id(user_id: str) -> str:
        raise LookupError(user_id)


def test_an_account_whose_own_id_is_none_is_disconnected_before_it_connects_again(
    tmp_path: Path,
) -> None:
    class Nameless:
        @hookimpl
        def platforms(self) -> list[Platform]:
            return [Platform("nameless", _Nameless, Settings, max_length=100, implicit=True)]

    async def scenario() -> None:
        calls: list[str] = []
        _Nameless.calls = calls
        async with gateway(tmp_path, Nameless(), ScriptedAgent()):
            await until(lambda: len(calls) >= 4)
        assert calls[:4] == ["connect", "disconnect"] * 2

    run(scenario(), speed=HASTY)


class _Kept:
    """An account that takes its time to disconnect."""

    name = "line"
    scope = SimpleNamespace(name="default")

    def __init__(self, running: list[_Kept], leave: asyncio.Event) -> None:
        self.running = running
        self.leave = leave
        self.budget = Budget()

    async def run(self) -> None:
        self.running.append(self)
        try:
            await asyncio.Event().wait()
        finally:
            await self.leave.wait()
            self.running.remove(self)


def test_an_account_is_replaced_once_and_keeps_its_pace() -> None:
    async def scenario() -> None:
        running: list[_Kept] = []
        leave = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []

        def spawn(work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
            tasks.append(asyncio.create_task(work, name=name))
            return tasks[-1]

        accounts = Accounts(spawn)
        old: Any = _Kept(running, leave)
        new: Any = _Kept(running, leave)
        accounts.add(old)
        accounts.connect()
        await settle()
        old.budget.pause("c1", 60.0)
        replacing = asyncio.create_task(accounts.replace("line", new))
        await settle()
        accounts.connect()  # other settings have changed at the same time
        leave.set()
        await replacing
        accounts.connect()
        await settle()
        assert running == [new]
        assert new.budget.delay("c1", 0.0) == 60.0
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    run(scenario())
