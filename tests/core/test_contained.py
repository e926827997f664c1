"""Plugins that break the contract cost themselves, and nothing and nobody else."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest

from hermes_core import Address, Outbound, Receipt, SendFailed, SendRejected
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from tests.core.support import HASTY, rows, run, settle, until


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

    def length(text: str) -> int:
        if "odd" in text:
            raise ValueError(text)
        return len(text)

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(typing=typing, length=length), ScriptedAgent()
        gate = agent.gate("odd")
        async with gateway(tmp_path, platform, agent) as running:
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
