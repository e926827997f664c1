"""The same load for every pipeline: a driver takes messages in and tells when a reply came out."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

STALLED = 60.0
"""Seconds without a reply after which a run has failed."""


class Driver(Protocol):
    """One pipeline. `on_start(session, text)` is to be awaited by its agent, `on_reply(session)`
    called when a reply leaves it."""

    on_start: Callable[[str, str], Awaitable[None]]
    on_reply: Callable[[str], None]

    async def start(self, directory: Path) -> None: ...

    async def inject(self, session: str, text: str) -> None: ...

    async def stop(self) -> None: ...


class Load:
    """Injects messages, waits for replies, and keeps the times from injection to agent start."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._sent: dict[str, float] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self.latencies: list[float] = []
        driver.on_start = self._started
        driver.on_reply = self._replied

    async def _started(self, session: str, text: str) -> None:
        self.latencies.append(time.perf_counter() - self._sent.pop(f"{session} {text}"))

    def _replied(self, session: str) -> None:
        waiting = self._waiting.pop(session, None)
        if waiting is not None:
            waiting.set_result(None)

    async def ask(self, session: str, text: str) -> None:
        """Send one message and wait for its reply."""
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[session] = reply
        self._sent[f"{session} {text}"] = time.perf_counter()
        await self._driver.inject(session, text)
        async with asyncio.timeout(STALLED):
            await reply

    async def talk(self, session: str, turns: int) -> None:
        """A conversation: each message waits for the reply before it."""
        for number in range(turns):
            await self.ask(session, f"m{number}")


def figures(load: Load, turns: int, wall: float, cpu: float) -> dict[str, float]:
    """What a run is judged by."""
    times = sorted(load.latencies)
    return {
        "turns": turns,
        "turns_per_second": turns / wall,
        "cpu_us_per_turn": cpu / turns * 1e6,
        "p50_ms": times[len(times) // 2] * 1e3,
        "p99_ms": times[int(len(times) * 0.99)] * 1e3,
    }


async def measure(driver: Driver, directory: Path, sessions: int, turns: int) -> dict[str, float]:
    """`sessions` conversations of `turns` messages each, side by side."""
    load = Load(driver)
    await driver.start(directory)
    try:
        await load.talk("warm-up", 30)
        load.latencies.clear()
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(load.talk(f"s{number}", turns) for number in range(sessions)))
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        return figures(load, sessions * turns, wall, cpu)
    finally:
        await driver.stop()


async def measure_idle(driver: Driver, directory: Path, sessions: int) -> dict[str, float]:
    """Resident memory that sessions hold which were used once and are idle now, in bytes each."""
    load = Load(driver)
    await driver.start(directory)
    try:
        await load.talk("warm-up", 100)
        before = _resident()
        for first in range(0, sessions, 500):
            batch = range(first, min(first + 500, sessions))
            await asyncio.gather(*(load.ask(f"i{number}", "once") for number in batch))
        load.latencies.clear()
        after = _resident()
        return {"sessions": sessions, "bytes_per_idle_session": (after - before) / sessions}
    finally:
        await driver.stop()


def _resident() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
