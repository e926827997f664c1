"""Plugins that break the contract cost themselves, and nothing and nobody else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from hermes_core import Outbound, Receipt, SendFailed, SendRejected
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from tests.core.support import HASTY, rows, run


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
