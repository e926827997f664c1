"""Plugins that break the contract cost themselves, and nothing and nobody else."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest

from hermes_core import (
    Address,
    ChatCommand,
    CommandCall,
    Outbound,
    RateLimited,
    Receipt,
    SendFailed,
    SendRejected,
    Service,
    ServiceContext,
    hookimpl,
)
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from tests.core.support import HASTY, rows, run, settle, store_of, until


class OddReceipts(ScriptedPlatform):
    """Its first receipt has an id that is none."""

    def __init__(self, odd: Any) -> None:
        super().__init__()
        self.odd = [odd]

    async def outbound(
        self, call: Literal["send", "edit"], message_id: str, message: Outbound
    ) -> Receipt:
        receipt = await super().outbound(call, message_id, message)
        return Receipt(message_id=self.odd.pop()) if self.odd else receipt


@pytest.mark.parametrize("odd", [None, 7, "\ud800"])
def test_a_receipt_with_an_id_that_is_none_leaves_the_outcome_unknown(
    tmp_path: Path, odd: Any
) -> None:
    async def scenario() -> None:
        platform = OddReceipts(odd)
        async with gateway(tmp_path, platform, ScriptedAgent()):
            await platform.say("one")
            assert await platform.next_text() == "one"
            assert await platform.next_text() == "[repeated] one"
            await platform.say("two")
            assert await platform.next_text() == "two"

    run(scenario(), speed=HASTY)
    assert rows(tmp_path, "SELECT DISTINCT state FROM outbox") == [("delivered",)]


@pytest.mark.parametrize(
    ("error", "times"),
    [(SendRejected("\ud800"), 1), (SendFailed("\ud800"), 8), (OSError("\ud800"), 8)],
)
def test_an_error_whose_text_cannot_be_stored_holds_up_nothing(
    tmp_path: Path, error: Exception, times: int
) -> None:
    async def scenario() -> None:
        platform = ScriptedPlatform()
        platform.results.extend([error] * times)
        async with gateway(tmp_path, platform, ScriptedAgent()):
            await platform.say("one")
            await platform.say("two")
            assert await platform.next_text() == "two"

    run(scenario(), speed=10 * HASTY)
    assert len(rows(tmp_path, "SELECT id FROM outbox WHERE state IN ('failed', 'unknown')")) == 1


def test_a_turn_that_breaks_takes_the_sign_of_typing_with_it(tmp_path: Path) -> None:
    typed: list[bool] = []

    async def typing(address: Address, active: bool) -> None:
        typed.append(active)

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(typing=typing), ScriptedAgent()
        gate = agent.gate("odd")
        async with gateway(tmp_path, platform, agent) as running:
            await store_of(running).write(
                lambda tx: tx.execute(
                    "CREATE TEMP TRIGGER wrong BEFORE INSERT ON message"
                    " BEGIN SELECT RAISE(ABORT, 'wrong'); END"
                )
            )
            await platform.say("odd")
            await until(lambda: typed == [True])
            gate.set()
            assert (await platform.next_text()).startswith("Something went wrong")
            await until(lambda: not running.profiles["default"].lanes.busy)
            assert typed[-1] is False
            count = len(typed)
            await asyncio.sleep(20)
            assert len(typed) == count

    run(scenario(), speed=HASTY)


def raising(error: BaseException) -> Callable[[], Any]:
    def ends() -> None:
        raise error

    return ends


def lengths(odd: Callable[[], Any]) -> Callable[[str], int]:
    """Measures texts, unless they are odd."""
    return lambda text: odd() if "odd" in text else len(text)


@pytest.mark.parametrize(
    "odd",
    [
        raising(ValueError("\ud800")),
        raising(SystemExit(3)),
        lambda: -1,
        lambda: float("nan"),
        lambda: 10.0,
        lambda: None,
        lambda: True,
    ],
    ids=["error", "exit", "negative", "nan", "float", "nothing", "bool"],
)
def test_a_text_that_its_platform_cannot_measure_is_counted_in_bytes(
    tmp_path: Path, odd: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        platform = ScriptedPlatform(length=lengths(odd), max_length=70)
        async with gateway(tmp_path, platform, ScriptedAgent()) as running:
            for text in ("odd " * 20, "plain " * 15):
                await platform.say(text)
                parts = [await platform.next_text(), await platform.next_text()]
                assert "".join(parts) == text
            (tally,) = [one for (_, hook), one in running.hooks.stats.items() if hook == "length"]
            assert 0 < tally.errors < tally.calls

    run(scenario())
    assert caplog.text.count("counting bytes instead") == 1
    assert "odd odd" not in caplog.text


def test_a_waiting_command_that_does_not_exist_any_more_holds_up_nobody(tmp_path: Path) -> None:
    async def waiting() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        agent.gate("one")
        async with gateway(tmp_path, platform, agent) as running:
            await platform.say("one")
            await agent.started(1)
            await platform.say("/retry")
            await platform.say("two")
            await settle()
            running.grace = 0.0

    async def answered() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent()):
            assert [await platform.next_text() for _ in range(2)] == ["one", "two"]

    run(waiting(), speed=HASTY)
    with closing(sqlite3.connect(tmp_path / "state.db")) as database:
        database.execute("UPDATE inbox SET payload = replace(payload, '/retry', '/gone')")
        database.execute("UPDATE inbox SET payload = CAST(payload AS BLOB)")
        database.commit()
    run(answered())
    assert rows(tmp_path, "SELECT count(*) FROM inbox WHERE state <> 'done'") == [(0,)]


@pytest.mark.parametrize("text", ["bad", "/retry"])
@pytest.mark.parametrize("busy", ["queue", "coalesce"])
@pytest.mark.parametrize("begun", [False, True], ids=["new session", "old session"])
def test_a_waiting_message_that_cannot_be_read_is_given_up_and_the_next_one_answered(
    tmp_path: Path, text: str, busy: str, begun: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        config = f'[sessions]\nbusy = "{busy}"\n'
        async with gateway(tmp_path, platform, agent, config=config) as running:
            if begun:
                await platform.say("first")
                assert await platform.next_text() == "first"
            running.drain.begin("somebody", 60)
            await platform.say(text, event_id="bad")
            await store_of(running).write(
                lambda tx: tx.execute("UPDATE inbox SET payload = x'ff' WHERE event_id = 'bad'")
            )
            await platform.say("good")
            running.drain.end()
            await until(lambda: "good" in platform.texts())
            await until(lambda: not running.profiles["default"].lanes.busy)
            assert running.profiles["default"].lanes.waiting == 0

    with caplog.at_level("ERROR", "hermes_core"):
        run(scenario(), speed=HASTY)
    assert [record.getMessage() for record in caplog.records] == [
        f"inbox:{1 + begun} is given up: what is stored of it cannot be read"
    ]
    found = rows(tmp_path, "SELECT event_id, state, reason FROM inbox WHERE state <> 'done'")
    assert found == [("bad", "dead", "what is stored of it cannot be read")]


def test_an_answer_that_cannot_be_read_holds_up_nothing_behind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        platform = ScriptedPlatform()
        platform.results.append(RateLimited(5))
        async with gateway(tmp_path, platform, ScriptedAgent()) as running:
            for text in ("one", "two", "three"):
                await platform.say(text)
            await until(lambda: not running.profiles["default"].lanes.busy)
            await store_of(running).write(
                lambda tx: tx.execute(
                    "UPDATE outbox SET payload = x'ff', files = 1 WHERE sequence < 3"
                )
            )
            await until(lambda: "three" in platform.texts())
        async with gateway(tmp_path, platform, ScriptedAgent()):
            await platform.say("four")
            await until(lambda: "four" in platform.texts())
        assert platform.texts() == ["three", "four"]

    with caplog.at_level("ERROR", "hermes_core"):
        run(scenario(), speed=HASTY)
    reason = "what is stored of it cannot be read"
    assert [record.getMessage() for record in caplog.records] == [
        f"a message is not sent (outbox:{number}): {reason}" for number in (1, 2)
    ]
    found = rows(tmp_path, "SELECT state, reason FROM outbox ORDER BY sequence")
    assert found == [("failed", reason)] * 2 + [("delivered", "")] * 2


def test_a_message_that_cannot_be_read_joins_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        config = '[sessions]\nbusy = "coalesce"\n'
        async with gateway(tmp_path, platform, agent, config=config) as running:
            running.drain.begin("somebody", 60)
            for text in ("one", "bad", "two"):
                await platform.say(text, event_id=text)
            await store_of(running).write(
                lambda tx: tx.execute("UPDATE inbox SET payload = x'ff' WHERE event_id = 'bad'")
            )
            running.drain.end()
            await until(lambda: "two" in platform.texts())
        assert [turn.texts for turn in agent.runs] == [("one",), ("two",)]

    run(scenario())


def test_a_message_that_cannot_be_read_after_a_crash_does_not_keep_the_gateway_down(
    tmp_path: Path,
) -> None:
    async def crashed() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent) as running:
            running.drain.begin("somebody", 60)
            await platform.say("bad", event_id="bad")

    async def scenario() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent()):
            await platform.say("good")
            assert await platform.next_text() == "good"

    run(crashed())
    with closing(sqlite3.connect(tmp_path / "state.db")) as database:
        database.execute(
            "INSERT INTO turn (id, session_id, session_key, generation, attempt, owner, preview,"
            " state, reason, started_at) SELECT 't1', 's1', session_key, 0, 9, 'u1', '',"
            " 'running', '', 0 FROM inbox"
        )
        database.execute(
            "UPDATE inbox SET payload = x'ff', state = 'running', attempts = 9, turn_id = 't1'"
        )
        database.commit()
    run(scenario())
    assert rows(tmp_path, "SELECT state FROM inbox ORDER BY sequence") == [("dead",), ("done",)]


def test_what_was_erased_cannot_be_tried_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent()) as running:
            await platform.say("one")
            assert await platform.next_text() == "one"
            await store_of(running).write(lambda tx: tx.execute("UPDATE inbox SET payload = x''"))
            await platform.say("/retry")
            said = await platform.next_text()
            assert said == "The last message is not kept any more: send it again."

    run(scenario())


def test_a_command_in_the_lane_that_breaks_is_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent()) as running:
            await platform.say("one")
            assert await platform.next_text() == "one"
            await store_of(running).write(
                lambda tx: tx.execute(
                    "CREATE TEMP TRIGGER wrong BEFORE UPDATE ON message"
                    " BEGIN SELECT RAISE(ABORT, 'wrong'); END"
                )
            )
            await platform.say("/undo")
            await platform.say("two")
            assert await platform.next_text() == "two"
            await until(lambda: not running.profiles["default"].lanes.busy)
            assert running.profiles["default"].lanes.waiting == 0

    run(scenario())
    found = rows(tmp_path, "SELECT state, reason FROM inbox WHERE type = 'command'")
    assert found == [("dead", "a fault of the gateway")]


class Commander:
    """A plugin with the command /do, which does what a test says."""

    def __init__(self, ends: Callable[[], Any]) -> None:
        self.ends = ends

    @hookimpl
    def commands(self) -> list[ChatCommand]:
        return [ChatCommand("do", "does it", self.run)]

    async def run(self, call: CommandCall) -> str:
        answer = self.ends()
        return str(await answer) if isinstance(answer, asyncio.Future) else answer


def never() -> asyncio.Future[str]:
    return asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    "ends",
    [raising(SystemExit(3)), raising(KeyboardInterrupt()), raising(OSError()), never, lambda: None],
    ids=["exit", "interrupt", "error", "never", "no text"],
)
def test_a_command_that_fails_or_does_not_end_is_said_to_have_failed(
    tmp_path: Path, ends: Callable[[], Any]
) -> None:
    async def scenario() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(), Commander(ends)):
            await platform.say("/do")
            assert (await platform.next_text()).startswith("/do failed")

    run(scenario(), speed=5 * HASTY)


def test_a_command_that_does_not_end_delays_no_stop(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(), Commander(never)) as running:
            await platform.say("/do")
            await settle()
            began = asyncio.get_running_loop().time()
            await running.stop()
            assert asyncio.get_running_loop().time() - began < 30

    run(scenario(), speed=HASTY)


class Breaking:
    """A plugin with a service that ends the process, if it can, when a test says."""

    def __init__(self, when: str) -> None:
        self.when = when

    @hookimpl
    def services(self) -> list[Service]:
        return [Service("breaking", self.made)]

    def made(self, context: ServiceContext) -> Breaking:
        self.context = context
        self.reach("factory")
        return self

    async def start(self) -> None:
        self.reach("start")
        self.context.spawn(self.work(), "work")

    async def stop(self) -> None:
        self.reach("stop")

    async def work(self) -> None:
        self.reach("work")

    def reach(self, place: str) -> None:
        if place == self.when:
            raise SystemExit(3)


@pytest.mark.parametrize("when", ["factory", "start", "work", "stop"])
def test_a_service_that_ends_the_process_ends_itself(tmp_path: Path, when: str) -> None:
    async def scenario() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(), Breaking(when)):
            await platform.say("hello")
            assert await platform.next_text() == "hello"

    run(scenario())
