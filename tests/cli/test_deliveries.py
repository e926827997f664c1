"""`hermes deliveries`: what became of each text, and another chance for what did not arrive."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hermes_core.errors import SendRejected
from hermes_core.store import erasing
from hermes_core.supervision.lock import HomeLock
from hermes_core.testing import OK, ScriptedAgent, ScriptedPlatform, gateway
from tests.cli.rows import Rows, rows_in, run

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]
LONG = "one two three four five six seven eight nine ten eleven twelve"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "home" / "state.db"


@pytest.fixture
def rows(database: Path) -> Iterator[Rows]:
    with rows_in(database) as rows:
        yield rows


def answered(rows: Rows, *texts: str, event: str, chat: str = "c1") -> list[str]:
    rows.arrive("question", event=event, chat=chat)
    return rows.answer(rows.take(chat), *texts, at=102.0 + float(event[1:]))


def listed(hermes: Hermes, *options: str) -> list[dict[str, Any]]:
    result = hermes("deliveries", "list", "--json", *options)
    assert result.returncode == 0, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def states(hermes: Hermes, wanted: str) -> list[str]:
    shown = json.loads(hermes("deliveries", "show", wanted, "--json").stdout)
    return [part["state"] for part in shown["parts"]]


def test_the_outcome_of_every_text(rows: Rows, hermes: Hermes) -> None:
    cases = {
        "sent": ("delivered", "delivered"),
        "partly sent": ("delivered", "failed"),
        "refused by the platform": ("failed", "failed"),
        "unknown": ("unknown", "failed"),
        "expired": ("expired",),
        "pending": ("delivered",),
    }
    for number, (_, ends) in enumerate(cases.items()):
        texts = [f"part {place}" for place in range(max(2, len(ends)))]
        parts = answered(rows, *texts[: len(ends) or 1], event=f"e{number}", chat=f"c{number}")
        for part, end in zip(parts, ends, strict=True):
            rows.settle(part, end, reason="refused by the platform: no")  # type: ignore[arg-type]
    rows.arrive("question", event="e9")
    rows.answer(rows.take(), "open", at=200.0)
    found = listed(hermes)
    assert [row["outcome"] for row in found] == [
        "pending", "sent", "expired", "unknown", "refused by the platform", "partly sent", "sent",
    ]  # fmt: skip
    assert [row["outcome"] for row in listed(hermes, "--pending")] == ["pending"]
    failed = [row["outcome"] for row in listed(hermes, "--failed")]
    assert failed == ["expired", "unknown", "refused by the platform", "partly sent"]
    assert listed(hermes, "--limit", "2") == found[:2]
    text = hermes("deliveries", "list").stdout.splitlines()
    assert text[0].split() == ["DELIVERY", "OUTCOME", "PARTS", "CREATED", "ACCOUNT", "CHAT", "TEXT"]
    assert "1/2" in next(line for line in text if "partly sent" in line)


def test_show_tells_each_part_and_the_tail_that_is_missing(rows: Rows, hermes: Hermes) -> None:
    parts = answered(rows, "shown ", "missing ", "tail\x1b[31m", event="e1")
    rows.settle(parts[0], "delivered", message="m1")
    rows.settle(parts[1], "failed", reason="gave up after 8 attempts: TimeoutError")
    rows.settle(parts[2], "expired", reason="too old to be sent")
    by_part = json.loads(hermes("deliveries", "show", parts[2], "--json").stdout)
    assert by_part["outcome"] == "partly sent"
    assert by_part["undelivered"] == "missing tail\x1b[31m"
    for wanted in (by_part["turn_id"], by_part["id"], "m1", parts[1][:12]):
        assert json.loads(hermes("deliveries", "show", wanted, "--json").stdout) == by_part
    text = hermes("deliveries", "show", parts[0]).stdout
    assert f"delivery {parts[0]}: partly sent" in text
    assert "gave up after 8 attempts: TimeoutError" in text
    assert text.endswith("not delivered:\n  missing tail\\x1b[31m\n")


@pytest.mark.case("CL-07")
def test_replay_and_discard_without_a_gateway(rows: Rows, hermes: Hermes) -> None:
    parts = answered(rows, "shown ", "missing", event="e1")
    rows.settle(parts[0], "delivered", message="m1")
    rows.settle(parts[1], "unknown", reason="it may have arrived")
    replayed = hermes("deliveries", "replay", parts[0])
    assert replayed.stdout == f"1 part of {parts[0]} will be sent again\n"
    assert states(hermes, parts[0]) == ["delivered", "pending"]
    assert rows.write(lambda tx: tx.execute("SELECT doubtful FROM outbox ORDER BY 1").fetchall()) \
        == [(0,), (1,)], "what may have arrived is looked for, or marked"  # fmt: skip
    again = hermes("deliveries", "replay", parts[0])
    assert (again.returncode, again.stdout) == (1, "")
    assert "there is nothing to send again" in again.stderr
    discarded = hermes("deliveries", "discard", parts[1])
    assert discarded.stdout == f"1 part of {parts[0]} discarded\n"
    assert states(hermes, parts[0]) == ["delivered", "discarded"]
    assert listed(hermes, "--failed") == []
    assert hermes("deliveries", "discard", parts[1]).returncode == 1


@pytest.mark.case("CL-07")
def test_ids_that_name_nothing_or_too_much(rows: Rows, hermes: Hermes) -> None:
    first = answered(rows, "in the first chat", event="e1", chat="c1")
    second = answered(rows, "in the second chat", event="e2", chat="c2")
    for part in (*first, *second):
        rows.settle(part, "delivered", message="17")
    for action in ("show", "replay", "discard"):
        for wanted in ("nope", "o_ffff", "", "%"):
            result = hermes("deliveries", action, wanted)
            assert (result.returncode, result.stdout) == (1, "")
            assert "there is no delivery" in result.stderr
        for wanted in ("17", "o_"):
            result = hermes("deliveries", action, wanted)
            assert (result.returncode, result.stdout) == (1, "")
            assert first[0] in result.stderr
            assert "in the second chat" in result.stderr


@pytest.mark.case("CL-07")
def test_a_change_that_cannot_be_made_is_told_as_failed(
    rows: Rows, database: Path, hermes: Hermes
) -> None:
    (part,) = answered(rows, "missing", event="e1")
    rows.settle(part, "failed", reason="no")
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        result = hermes("deliveries", "replay", part)
        assert (result.returncode, result.stdout) == (1, "")
        assert "another process holds the write lock" in result.stderr
        other.execute("ROLLBACK")
    assert states(hermes, part) == ["failed"]
    with HomeLock(database.parent / "gateway.lock", runs="a test"):
        result = hermes("deliveries", "discard", part)
        assert (result.returncode, result.stdout) == (1, "")
        assert "no gateway is running for this home" in result.stderr
    assert states(hermes, part) == ["failed"]


def test_listing_creates_nothing(hermes: Hermes, database: Path) -> None:
    assert listed(hermes) == []
    assert hermes("deliveries", "list").stdout == "There are no such deliveries.\n"
    assert hermes("deliveries", "replay", "o_1").returncode == 1
    assert not database.parent.exists()


def test_a_running_gateway_sends_what_is_replayed(tmp_path: Path, hermes: Hermes) -> None:
    async def play() -> list[str]:
        platform, agent = ScriptedPlatform(max_length=40), ScriptedAgent()
        async with gateway(tmp_path / "home", platform, agent):
            platform.results.extend([OK, SendRejected("blocked")])
            await platform.say(LONG)
            seen = [(await platform.next_text()) for _ in range(3)]
            (failed,) = await asyncio.to_thread(listed, hermes, "--failed")
            assert failed["outcome"] == "partly sent"
            done = await asyncio.to_thread(hermes, "deliveries", "replay", failed["id"])
            assert done.returncode == 0, done.stderr
            assert await platform.next_text() == failed["undelivered"]
            assert await asyncio.to_thread(states, hermes, failed["id"]) == ["delivered"] * 4
            refused = await asyncio.to_thread(hermes, "deliveries", "discard", failed["id"])
            assert refused.returncode == 1
            return [*seen, failed["undelivered"]]

    assert len(set(run(play()))) == 4


def test_offline_changes_are_taken_up_by_the_next_gateway(
    rows: Rows, tmp_path: Path, hermes: Hermes
) -> None:
    """Sent by the account that it was for, which the scripted platform has under this name."""
    (part,) = answered(rows, "late news", event="e1")
    rows.settle(part, "failed", reason="no")
    assert hermes("deliveries", "replay", part).returncode == 0

    async def play() -> str:
        platform = ScriptedPlatform("demo")
        async with gateway(tmp_path / "home", platform, ScriptedAgent()):
            return await platform.next_text()

    assert run(play()) == "[delayed] late news"


def test_what_is_erased_by_age_is_shown_and_not_replayed(rows: Rows, hermes: Hermes) -> None:
    first, second = answered(rows, "one ", "two", event="e1")
    rows.settle(first, "delivered")
    rows.settle(second, "failed")
    rows.write(lambda tx: erasing.erase_outbox(tx, 1000.0))
    (row,) = listed(hermes, "--failed")
    assert [(part["number"], part["parts"], part["erased"]) for part in row["parts"]] == [
        (1, 2, True),
        (2, 2, True),
    ]
    assert "(erased)" in hermes("deliveries", "list").stdout
    assert "its content is erased by age" in hermes("deliveries", "show", first).stdout
    refused = hermes("deliveries", "replay", first)
    assert refused.returncode == 1
    assert f"the content of {second} is erased by age" in refused.stderr
    assert listed(hermes, "--failed") == [row]
    assert hermes("deliveries", "discard", first).returncode == 0
