"""What the tests of the rooms share: an event loop that does not wait, and plugins that judge."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from hermes_core import AgentEvent, OutcomeUnknown, ProfileScope, Sender, Text, Turn, hookimpl
from hermes_core.gateway import Gateway
from hermes_core.messages import Address
from hermes_core.store import Store, Tx, open_read_only
from hermes_core.store.database import connection_of
from hermes_core.testing import Hang, Result, StoreThenRaise

T = TypeVar("T")

HASTY = 20.0
"""A speed at which pauses are short and nothing is too late on a machine that is busy."""


class _HastySelector(selectors.DefaultSelector):
    def __init__(self, speed: float) -> None:
        super().__init__()
        self._speed = speed

    def select(self, timeout: float | None = None) -> Any:
        return super().select(timeout and timeout / self._speed)


class HastyLoop(asyncio.SelectorEventLoop):
    """A loop whose time goes faster: pauses and time limits pass in a fraction of their time."""

    def __init__(self, speed: float) -> None:
        super().__init__(_HastySelector(speed))
        self._speed = speed

    def time(self) -> float:
        return super().time() * self._speed


def run(work: Coroutine[Any, Any, T], *, speed: float = 1.0, limit: float = 30.0) -> T:
    """Run what a test does on an event loop; what hangs for `limit` real seconds fails instead."""

    async def limited() -> T:
        async with asyncio.timeout(limit * speed):
            return await work

    with asyncio.Runner(loop_factory=lambda: HastyLoop(speed)) as runner:
        return runner.run(limited())


async def until(true: Callable[[], bool]) -> None:
    """Let everything else go on until something is so."""
    while not true():  # noqa: ASYNC110 - what is waited for may be anything
        await asyncio.sleep(0.001)


async def settle(turns: int = 50) -> None:
    """Let everything that can go on without waiting for anything do so."""
    for _ in range(turns):
        await asyncio.sleep(0)


def store_of(gateway: Gateway) -> Store:
    return gateway.profiles["default"].store


@asynccontextmanager
async def held_writes(gateway: Gateway) -> AsyncIterator[Callable[[], None]]:
    """Nothing is committed inside the context, until what it gives is called."""
    loop = asyncio.get_running_loop()
    begun, go = asyncio.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        loop.call_soon_threadsafe(begun.set)
        go.wait()

    write = store_of(gateway).write(hold)
    await begun.wait()
    try:
        yield go.set
    finally:
        go.set()
        await write


async def no_room_for(gateway: Gateway, event: str) -> None:
    """From now on the disk is full for SQLite when it writes `event`: `INSERT ON message`."""

    def op(tx: Tx) -> None:
        (pages,) = tx.execute("PRAGMA page_count").fetchone()
        tx.execute(f"PRAGMA max_page_count = {pages}")
        filler = "INSERT INTO kv VALUES ('test', 'filler', zeroblob(1000000))"
        tx.execute(f"CREATE TEMP TRIGGER no_room BEFORE {event} BEGIN {filler}; END")

    await store_of(gateway).write(op)


async def room_again(gateway: Gateway) -> None:
    """The disk has room again."""

    def op(tx: Tx) -> None:
        tx.execute("DROP TRIGGER no_room")
        tx.execute("PRAGMA max_page_count = 1000000")

    await store_of(gateway).write(op)


def received(gateway: Gateway) -> dict[str, int]:
    """The counters of admission, those that are not zero."""
    counts: Any = gateway.profiles["default"].status()["received"]
    return {name: count for name, count in counts.items() if count}


def rows(home: Path, query: str) -> list[tuple[Any, ...]]:
    """What a query finds in the database of a home whose gateway has stopped."""
    with closing(open_read_only(home / "state.db")) as database:
        return connection_of(database).execute(query).fetchall()


Verdict = Callable[[Sender], Any]


class Judge:
    """A plugin that decides who may speak. Its verdict may be an awaitable."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        self.asked: list[tuple[str, Address]] = []

    @hookimpl
    async def authorize(self, scope: ProfileScope, sender: Sender, address: Address) -> Any:
        self.asked.append((sender.id, address))
        answer = self.verdict(sender)
        return await answer if isinstance(answer, Awaitable) else answer


JUDGED = '[authorization]\nauthorizers = ["judge"]\n'
"""Settings that let a plugin called judge speak for every platform."""


def three_parts(turn: Turn) -> AsyncIterator[AgentEvent]:
    return saying("111111 222222 333333")


async def saying(*pieces: str) -> AsyncIterator[AgentEvent]:
    for piece in pieces:
        yield Text(piece)


SHORT: dict[str, Any] = {"max_length": 7 + len("[repeated] [delayed] ")}
"""A platform on which `three_parts` are three messages: room for the marks is kept."""


class Unspeakable(Exception):
    def __str__(self) -> NoReturn:
        raise RuntimeError("even this fails")


UNKNOWN: list[Result] = [
    OutcomeUnknown("scripted"),
    StoreThenRaise(OutcomeUnknown("scripted")),
    StoreThenRaise(ConnectionError("scripted")),
    StoreThenRaise(Unspeakable()),
    Hang(),
]
"""What becomes of a call whose outcome nobody knows."""
