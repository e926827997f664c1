"""Events a second that the Buzz plugin takes in: verified, admitted, committed to the inbox.

Ceilings in the same run: how fast the relay itself takes the events, and how fast their signatures
can be verified by the same library with nothing around it. Run ``python benchmarks/buzz_intake.py``
where ``hermes-plugin-buzz[test]`` is installed.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from hermes_buzz.events import read_event
from hermes_buzz.testing import BuzzRelay, Person, Witness, talking
from hermes_core import AgentEvent, Text, Turn
from hermes_core.testing import ScriptedAgent

LIVE = 900
BACKLOG = 2000


def verified(events: list[dict[str, Any]]) -> float:
    """Events a second that are only decoded and verified."""
    texts = [json.dumps(event) for event in events]
    started = time.perf_counter()
    if not all(read_event(text) for text in texts):
        raise ValueError("an event is not authentic")
    return len(texts) / (time.perf_counter() - started)


async def wait(_: Turn) -> AsyncIterator[AgentEvent]:
    """An agent that leaves everything in the inbox."""
    await asyncio.get_running_loop().create_future()
    yield Text("")


async def measure(home: Path) -> dict[str, float]:
    """All figures of one run, events a second."""
    alice, bot = Person("alice"), Person("bot")
    found: dict[str, float] = {}
    more = 'streaming = false\n[gateway]\nshutdown_grace = "0s"\n[sessions]\nmax_waiting = 100000'
    async with BuzzRelay() as relay:
        direct = relay.channel("", alice, bot, kind="dm")
        tags = [["h", direct]]
        now = relay.now()
        live = [alice.event(9, f"live {n}", tags, at=now + n // 10) for n in range(LIVE)]
        late = [alice.event(9, f"late {n}", tags, at=now + 100 + n // 4) for n in range(BACKLOG)]
        found["verified_only"] = verified(live + late)
        witness = Witness()
        settings: dict[str, Any] = {"allowed": (alice,), "agent": ScriptedAgent(wait), "more": more}
        async with talking(home, relay, bot, witness, **settings):
            started = time.perf_counter()
            await relay.publish_all(live)
            found["relay_takes"] = LIVE / (time.perf_counter() - started)
            await witness.until(lambda: len(witness.received) >= LIVE)
            found["live"] = LIVE / (time.perf_counter() - started)
        await relay.publish_all(late)
        async with talking(home, relay, bot, witness, ready=False, **settings):
            await witness.until(lambda: len(witness.received) > LIVE)
            first, started = len(witness.received), time.perf_counter()
            await witness.until(lambda: len(witness.received) >= LIVE + BACKLOG)
            seconds = time.perf_counter() - started
            found["backlog"] = (LIVE + BACKLOG - first) / seconds
    return found


def main() -> None:
    """Print one line."""
    with tempfile.TemporaryDirectory(prefix="hermes-") as directory:
        found = asyncio.run(measure(Path(directory) / "home"))
    print(" ".join(f"{name}={rate:.0f}" for name, rate in found.items()))


if __name__ == "__main__":
    main()
