"""Sessions that are over by their age."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from hermes_core import AgentEvent, SessionInfo, Text, Turn, hookimpl
from hermes_core.gateway import Gateway
from hermes_core.sessions import idle_limit
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from tests.core.support import rows, store_of

DAY = 86_400
IDLE = '[sessions]\nreset = "idle"\nreset_idle = "1h"\n'


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


class Listener:
    """Notes which sessions begin and end, and why."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue()

    @hookimpl
    def on_session_start(self, session: SessionInfo) -> None:
        self.heard.put_nowait(("start", session.address.chat_id, session.reason))

    @hookimpl
    def on_session_end(self, session: SessionInfo) -> None:
        self.heard.put_nowait(("end", session.address.chat_id, session.reason))


async def keep_house(running: Gateway) -> None:
    await running.profiles["default"].housekeep()


def run(path: Path, work: object, config: str = IDLE, agent: ScriptedAgent | None = None) -> None:
    async def main() -> None:
        async with asyncio.timeout(20):
            clock, platform, listener = Clock(), ScriptedPlatform(), Listener()
            plugins = (platform, agent or ScriptedAgent(), listener)
            async with gateway(path, *plugins, config=config, wall=clock) as running:
                await work(running, platform, listener.heard, clock)  # type: ignore[operator]

    asyncio.run(main())


async def talk(platform: ScriptedPlatform, chat: str = "c1") -> None:
    await platform.say("hello", chat=chat)
    await platform.next_text()


Heard = asyncio.Queue[tuple[str, str, str]]


def test_a_session_that_is_idle_ends_although_nobody_writes(tmp_path: Path) -> None:
    async def work(
        running: Gateway, platform: ScriptedPlatform, heard: Heard, clock: Clock
    ) -> None:
        await talk(platform, "c1")
        clock.now += 1800
        await talk(platform, "c2")
        clock.now += 1801
        await keep_house(running)
        await keep_house(running)
        await talk(platform, "c1")
        assert [await heard.get() for _ in range(4)] == [
            ("start", "c1", ""),
            ("start", "c2", ""),
            ("end", "c1", "idle"),
            ("start", "c1", ""),
        ]
        assert heard.empty()

    run(tmp_path, work)


def test_a_session_that_nobody_knows_the_place_of_holds_up_no_other(tmp_path: Path) -> None:
    async def work(
        running: Gateway, platform: ScriptedPlatform, heard: Heard, clock: Clock
    ) -> None:
        for chat in ("c1", "c2"):
            await talk(platform, chat)
        damage = "UPDATE session SET address = x'ff' WHERE session_key LIKE '%:c1'"
        await store_of(running).write(lambda tx: tx.execute(damage))
        clock.now += 3601
        await keep_house(running)
        assert [await heard.get() for _ in range(3)] == [
            ("start", "c1", ""),
            ("start", "c2", ""),
            ("end", "c2", "idle"),
        ]

    run(tmp_path, work)
    assert rows(tmp_path, "SELECT end_reason FROM session") == [("idle",), ("idle",)]


def test_a_message_begins_another_session_when_its_own_is_over(tmp_path: Path) -> None:
    async def work(
        running: Gateway, platform: ScriptedPlatform, heard: Heard, clock: Clock
    ) -> None:
        await talk(platform)
        clock.now += 3601
        await talk(platform)
        ends = [await heard.get() for _ in range(3)]
        assert ends == [("start", "c1", ""), ("end", "c1", "idle"), ("start", "c1", "")]

    run(tmp_path, work)


def test_sessions_do_not_age_unless_told_so(tmp_path: Path) -> None:
    async def work(
        running: Gateway, platform: ScriptedPlatform, heard: Heard, clock: Clock
    ) -> None:
        await talk(platform)
        clock.now += 1000 * DAY
        await keep_house(running)
        await talk(platform)
        assert await heard.get() == ("start", "c1", "")
        assert heard.empty()

    run(tmp_path, work, config="")


def test_a_session_in_which_a_message_waits_does_not_end(tmp_path: Path) -> None:
    async def work(
        running: Gateway, platform: ScriptedPlatform, heard: Heard, clock: Clock
    ) -> None:
        await talk(platform)
        running.profiles["default"].pause()
        await platform.say("two")
        notice = await platform.next_text()
        clock.now += 2 * 3600
        await keep_house(running)
        await platform.say("three")
        running.profiles["default"].resume()
        answers = [await platform.next_text() for _ in range(2)]
        assert (answers, notice in answers) == (["two", "three"], False)
        assert await heard.get() == ("start", "c1", "")
        assert heard.empty()

    run(tmp_path, work)


def test_a_session_in_which_a_turn_runs_does_not_end(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    begun = asyncio.Event()

    async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
        begun.set()
        await go_on.wait()
        yield Text(turn.messages[0].text)

    async def work(
        running: Gateway, platform: ScriptedPlatform, heard: Heard, clock: Clock
    ) -> None:
        await platform.say("one")
        await begun.wait()
        clock.now += 2 * 3600
        await keep_house(running)
        await platform.say("two")
        clock.now += 2 * 3600
        await keep_house(running)
        go_on.set()
        assert [await platform.next_text() for _ in range(2)] == ["one", "two"]
        await keep_house(running)
        assert await heard.get() == ("start", "c1", "")
        assert heard.empty()

    run(tmp_path, work, agent=ScriptedAgent(slowly))


def test_many_sessions_end_in_one_go(tmp_path: Path) -> None:
    async def work(
        running: Gateway, platform: ScriptedPlatform, heard: Heard, clock: Clock
    ) -> None:
        chats = [f"c{number}" for number in range(205)]
        for chat in chats:
            await talk(platform, chat)
        clock.now += 3601
        await keep_house(running)
        found = [await heard.get() for _ in range(2 * len(chats))]
        assert [chat for what, chat, _ in found if what == "end"] == chats

    run(tmp_path, work)


@pytest.fixture
def berlin() -> Iterator[None]:
    """Local time where clocks are set back on 2026-10-25 at three and forward on 2026-03-29."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "CET-1CEST,M3.5.0,M10.5.0/3"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("now", "hour", "last"),
    [
        ("2026-07-01T03:59:59+02:00", 4, "2026-06-30T04:00:00+02:00"),
        ("2026-07-01T04:00:00+02:00", 4, "2026-07-01T04:00:00+02:00"),
        ("2026-10-25T12:00:00+01:00", 1, "2026-10-25T01:00:00+02:00"),
        ("2026-03-29T12:00:00+02:00", 1, "2026-03-29T01:00:00+01:00"),
        ("2026-10-26T00:30:00+01:00", 4, "2026-10-25T04:00:00+01:00"),
    ],
)
def test_a_daily_session_ends_at_that_hour_of_the_local_day(now: str, hour: int, last: str) -> None:
    since = idle_limit("daily", 0, hour)(datetime.fromisoformat(now).timestamp())
    assert since == (datetime.fromisoformat(last).timestamp(), "daily")
