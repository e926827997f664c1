"""When a gateway erases what is over, and what people see of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import peewee as pw
import pytest

from hermes_core import (
    Accepted,
    Address,
    AgentEvent,
    Attach,
    Duplicate,
    Message,
    Sender,
    SendRejected,
    Text,
    Turn,
    hookimpl,
)
from hermes_core.attachments import Attachments
from hermes_core.config import RetentionSettings
from hermes_core.gateway import Gateway
from hermes_core.messages import encode
from hermes_core.retention import PERIOD, STEP, Retention
from hermes_core.spool import Spool
from hermes_core.store import Store, Tx, erasing, inbox, open_read_only, search
from hermes_core.store.arrivals import said
from hermes_core.store.database import connection_of, open_writer
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, WallClock, gateway
from tests.cli.rows import rows_in
from tests.core.support import run, until

ROOT = Path(__file__).parents[2]
DAY = 86_400.0
SHORT = '[retention]\ncontent = "1d"\nkeys = "7d"\n'


class Clockwork(asyncio.SelectorEventLoop):
    """A loop whose time stands still until it is told otherwise."""

    now = 0.0

    def time(self) -> float:
        return self.now


class Leaping(asyncio.SelectorEventLoop):
    """A loop whose time can be ahead of the real one."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def run_in(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(work)


def _contents(database: pw.SqliteDatabase) -> list[bytes]:
    found = connection_of(database).execute("SELECT payload FROM inbox ORDER BY sequence")
    return [payload for (payload,) in found]


def _ended_event(at: float) -> Callable[[Tx], object]:
    """An operation that stores an event which needs no turn."""
    event = Message(
        address=Address(platform="scripted", chat_id="c1"),
        sender=Sender(id="u1"),
        event_id="e1",
        text="hello",
    )
    arrival = inbox.Arrival(
        account="scripted",
        chat_id="c1",
        event_id="e1",
        message_id="e1",
        sender_id="u1",
        type="message",
        session_key="key",
        payload=encode(event),
        received_at=at,
        max_waiting=1,
        ended="needs no answer",
    )
    return lambda tx: inbox.insert(tx, arrival)


async def erase(gateway: Gateway, profile: str = "default") -> None:
    await gateway.profiles[profile].retention.erase()


def contents(home: Path) -> list[bytes]:
    with closing(open_read_only(home / "state.db")) as database:
        return _contents(database)


# ── when ─────────────────────────────────────────────────────────────────────────────────────────


def _no_task(*_: object) -> asyncio.Task[None]:
    raise AssertionError("nothing is fetched here")


class Housekeeper:
    """A retention whose minutes pass when a test says so. One event ended at the beginning."""

    def __init__(self, directory: Path, loop: Clockwork) -> None:
        self.wall = WallClock()
        self.loop = loop
        self.store = Store(directory / "state.db")
        self.retention = Retention(
            self.store,
            Spool(directory / "spool", []),
            Attachments(directory / "attachments", lambda _: None, _no_task),
            RetentionSettings(),
            self.wall,
        )

    async def minutes(self, count: int) -> None:
        for _ in range(count):
            self.loop.now += 60.0
            self.wall.advance(60.0)
            await self.retention.keep_house()

    async def erased(self) -> bool:
        return await self.store.read(_contents) in ([b""], [])


@asynccontextmanager
async def housekeeper(directory: Path, loop: Clockwork) -> AsyncIterator[Housekeeper]:
    keeper = Housekeeper(directory, loop)
    await keeper.store.open()
    await keeper.store.write(_ended_event(keeper.wall()))
    yield keeper
    await keeper.store.close()


def test_nothing_is_erased_before_the_clock_has_gone_on_evenly(tmp_path: Path) -> None:
    async def main() -> None:
        async with housekeeper(tmp_path, loop) as keeper:
            keeper.wall.advance(31 * DAY)
            await keeper.minutes(int(PERIOD / 60))
            assert not await keeper.erased()
            await keeper.minutes(1)
            assert await keeper.erased()

    loop = Clockwork()
    run_in(loop, main())


def test_a_step_of_the_clock_that_is_taken_back_erases_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with housekeeper(tmp_path, loop) as keeper:
            await keeper.minutes(15)
            keeper.wall.advance(365 * DAY)
            await keeper.minutes(int(PERIOD / 60))
            keeper.wall.advance(-365 * DAY)
            await keeper.minutes(100)
            assert not await keeper.erased()

    loop = Clockwork()
    run_in(loop, main())


def test_a_clock_that_is_corrected_a_little_does_not_put_it_off(tmp_path: Path) -> None:
    async def main() -> None:
        async with housekeeper(tmp_path, loop) as keeper:
            keeper.wall.advance(31 * DAY)
            for _ in range(int(PERIOD / 60) + 1):
                keeper.wall.advance(STEP / 2)
                await keeper.minutes(1)
            assert await keeper.erased()

    loop = Clockwork()
    run_in(loop, main())


# ── what people see of it ────────────────────────────────────────────────────────────────────────


def test_a_repeat_is_a_duplicate_although_its_content_is_erased(tmp_path: Path) -> None:
    async def main() -> None:
        wall, platform = WallClock(), ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(), wall=wall) as running:
            assert isinstance(await platform.say("hello", event_id="e1"), Accepted)
            await platform.next_text()
            await running.profiles["default"].delivery.settled()
            wall.advance(31 * DAY)
            await erase(running)
            assert isinstance(await platform.say("hello", event_id="e1"), Duplicate)
            wall.advance(60 * DAY)
            await erase(running)
            assert isinstance(await platform.say("hello", event_id="e1"), Accepted)

    run(main())
    assert [payload for payload in contents(tmp_path) if payload == b""] == []


def test_the_agent_remembers_what_is_erased_elsewhere(tmp_path: Path) -> None:
    async def main() -> None:
        wall, platform = WallClock(), ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(recall), wall=wall) as running:
            await platform.say("the number is 42")
            await platform.next_text()
            await running.profiles["default"].delivery.settled()
            wall.advance(400 * DAY)
            await erase(running)
            await platform.say("which number?")
            assert await platform.next_text() == "the number is 42"

    async def recall(turn: Turn) -> AsyncIterator[AgentEvent]:
        history = await turn.history()
        yield Text(history[0].text if history else "I see")

    run(main())


def test_a_message_that_waits_is_answered_however_old_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        wall, platform = WallClock(), ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(), wall=wall) as running:
            running.profiles["default"].pause()
            await platform.say("hello")
            await platform.next_text()  # that it waits
            wall.advance(1000 * DAY)
            await erase(running)
            running.profiles["default"].resume()
            assert await platform.next_text() == "hello"

    run(main())


def test_files_go_with_the_content(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    path = tmp_path / "files" / "a.txt"
    path.write_text("content")

    async def behave(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text("here")
        yield Attach(path=str(path))

    async def main() -> None:
        wall, platform = WallClock(), ScriptedPlatform(max_attachment=1000)
        platform.results.append(SendRejected("blocked"))
        async with gateway(tmp_path, platform, ScriptedAgent(behave), wall=wall) as running:
            await platform.say("hello")
            counts = running.profiles["default"].delivery.counts
            await until(lambda: counts["failed"] == 1)
            fetched = tmp_path / "attachments" / "fetched"
            fetched.parent.mkdir(exist_ok=True)
            for name, age in (("old", 31 * DAY), ("new", 29 * DAY)):
                fetched.with_name(name).touch()
                os.utime(fetched.with_name(name), times=(wall() - age, wall() - age))
            await erase(running)
            assert [file.name for file in fetched.parent.iterdir()] == ["new"]
            assert len(list((tmp_path / "spool").iterdir())) == 1
            wall.advance(31 * DAY)
            await erase(running)
            assert list((tmp_path / "spool").iterdir()) == []

    run(main())


def test_what_is_erased_is_in_no_file_of_the_database(tmp_path: Path) -> None:
    def is_there() -> bool:
        return any(b"hello" in file.read_bytes() for file in tmp_path.glob("state.db*"))

    async def main() -> None:
        wall = WallClock()
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent(), wall=wall) as running:
            await running.profiles["default"].store.write(_ended_event(wall()))
            assert is_there()
            wall.advance(31 * DAY)
            await erase(running)
            assert not is_there()

    run(main())


def test_each_profile_erases_by_its_own_settings(tmp_path: Path) -> None:
    async def main() -> None:
        wall, platform = WallClock(), ScriptedPlatform()
        config = '[gateway]\nprofiles = ["default", "work"]\n'
        work = tmp_path / "profiles" / "work"
        work.mkdir(parents=True)
        (work / "config.toml").write_text(f'[agent]\nuse = "scripted"\n{SHORT}')
        async with gateway(
            tmp_path, platform, ScriptedAgent(), config=config, wall=wall
        ) as running:
            for name in ("default", "work"):
                profile = running.profiles[name]
                await profile.store.write(_ended_event(wall()))
            wall.advance(2 * DAY)
            await erase(running)
            await erase(running, "work")

    run(main())
    assert b"" not in contents(tmp_path)
    assert contents(tmp_path / "profiles" / "work") == [b""]


def test_new_settings_count_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        wall, platform = WallClock(), ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent(), wall=wall) as running:
            await platform.say("hello")
            await platform.next_text()
            wall.advance(2 * DAY)
            config = tmp_path / "config.toml"
            config.write_text(config.read_text() + SHORT)
            profile = running.profiles["default"]
            await until(lambda: profile.settings.retention.content == DAY)
            await erase(running)

    run(main())
    assert contents(tmp_path) == [b""]


def test_what_an_ended_session_said_is_not_even_in_the_index(tmp_path: Path) -> None:
    def is_there() -> bool:
        return any(b"yxwsecret" in file.read_bytes() for file in tmp_path.glob("state.db*"))

    async def main() -> None:
        wall, platform = WallClock(), ScriptedPlatform()
        config = '[retention]\ntranscript = "30d"\n'
        async with gateway(
            tmp_path, platform, ScriptedAgent(), config=config, wall=wall
        ) as running:
            store = running.profiles["default"].store
            await platform.say("zyxwsecret")
            await platform.next_text()
            await search.catch_up(store)
            await platform.say("/new")
            await platform.next_text()
            await running.profiles["default"].delivery.settled()
            await platform.say("something else")
            await platform.next_text()
            await search.catch_up(store)
            assert is_there()
            wall.advance(31 * DAY)
            await erase(running)
            assert not is_there()

    run(main())


def test_housekeeping_indexes_transcripts(tmp_path: Path) -> None:
    def indexed(database: pw.SqliteDatabase) -> bool:
        query = "SELECT 1 FROM sqlite_master WHERE name = 'message_text'"
        return connection_of(database).execute(query).fetchone() is not None

    async def main() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent()) as running:
            while not await running.profiles["default"].store.read(indexed):
                loop.ahead += 60.0
                await asyncio.sleep(0)

    loop = Leaping()
    run_in(loop, main())


def test_housekeeping_makes_a_damaged_index_anew(tmp_path: Path) -> None:
    """The agent answers with a word of each message; the index is damaged after the first few."""

    async def main() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent()) as running:
            profile = running.profiles["default"]
            for number in range(30):
                await platform.say(f"word{number}")
                await platform.next_text()
                await profile.housekeep()
                if number == 3:
                    await profile.store.write(
                        lambda tx: tx.execute("DELETE FROM message_text_data WHERE id > 10")
                    )
            assert await profile.store.write(search.index) == 0
            check = "INSERT INTO message_text (message_text, rank) VALUES ('integrity-check', 1)"
            await profile.store.write(lambda tx: tx.execute(check))

    run(main())


def test_housekeeping_goes_on_after_what_broke_it(tmp_path: Path) -> None:
    wall, broken = WallClock(), True

    def clock() -> float:
        if broken and loop.ahead:
            raise OverflowError("scripted")
        return wall()

    class Listener:
        rounds = 0

        @hookimpl
        def on_housekeeping(self) -> None:
            self.rounds += 1

    async def main() -> None:
        nonlocal broken
        listener = Listener()
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent, listener, wall=clock):
            for _ in range(10_000):
                loop.ahead += 60.0
                await asyncio.sleep(0)
                if listener.rounds == 3:
                    break
            broken = False
        assert listener.rounds >= 3

    loop = Leaping()
    run_in(loop, main())


def test_housekeeping_erases_while_a_gateway_runs(tmp_path: Path) -> None:
    async def main() -> None:
        wall = WallClock()
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent(), wall=wall) as running:
            store = running.profiles["default"].store
            await store.write(_ended_event(wall() - 31 * DAY))
            while await store.read(_contents) != [b""]:
                loop.ahead += 60.0
                await asyncio.sleep(0)

    loop = Leaping()
    run_in(loop, main())


# ── a crash in the middle ────────────────────────────────────────────────────────────────────────

VICTIM = """
import asyncio, os, signal, sys
from pathlib import Path
from hermes_core.store import Store, erasing

async def main(path, count):
    store = Store(path)
    await store.open()

    def op(tx, step):
        step(tx, 1000.0)
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    while True:
        for step in (erasing.erase_inbox, erasing.erase_outbox, erasing.delete_inbox):
            await store.write(lambda tx: op(tx, step))
            count -= 1

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


@pytest.mark.parametrize("count", range(4))
def test_a_kill_while_it_erases_loses_nothing_else(tmp_path: Path, count: int) -> None:
    path = tmp_path / "state.db"
    with rows_in(path) as rows:
        for number in range(300):
            rows.arrive("over", event=f"done{number}", ended="command x")
        for number in range(20):
            rows.arrive(f"waits {number}", event=f"open{number}")
    victim = [sys.executable, "-c", VICTIM, str(path), str(count)]
    assert subprocess.run(victim, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    with closing(open_writer(path)) as database:
        tx = connection_of(database)
        assert tx.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = tx.execute("SELECT payload FROM inbox WHERE state = 'waiting'").fetchall()
        assert [said(payload) for (payload,) in found] == [f"waits {n}" for n in range(20)]
        for step in (erasing.erase_inbox, erasing.delete_inbox):
            while step(tx, 1000.0).count:
                pass
        assert tx.execute("SELECT COUNT(*) FROM inbox").fetchone() == (20,)
