"""Many sessions and many messages on a network with bad days; afterwards the counters add up."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from hermes_core import NotReady, OutcomeUnknown, RateLimited, SendFailed
from hermes_core.testing import OK, Result, ScriptedAgent, ScriptedPlatform, gateway

CONFIG = """
[agent]
use = "scripted"
[gateway]
durability = "normal"
max_running_turns = 2000
"""
AT_ONCE = 500
"""Sessions that talk at the same time."""


@dataclass
class Outcome:
    """What a soak found."""

    messages: int = 0
    lost: int = 0
    reordered: int = 0
    duplicates: int = 0
    sums_up: bool = False


class _Network(ScriptedPlatform):
    """Idempotent, with one bad day in `rarity`."""

    def __init__(self, rarity: int, seed: int) -> None:
        super().__init__(idempotent=True)
        self._rng = random.Random(seed)  # noqa: S311 - bad days, no secrets
        self._rarity = rarity

    def bad_days(self) -> None:
        """Script what becomes of the next calls."""
        self.results.extend(self._day() for _ in range(AT_ONCE - len(self.results)))

    def _day(self) -> Result:
        if self._rng.randrange(self._rarity):
            return OK
        return self._rng.choice(
            (RateLimited(0.05), SendFailed("a bad day"), OutcomeUnknown("a bad day"))
        )


async def soak(home: Path, sessions: int, messages: int, seed: int = 1) -> Outcome:
    """`sessions` conversations of `messages` messages each, `AT_ONCE` of them at a time."""
    network = _Network(rarity=50, seed=seed)
    agent = ScriptedAgent()
    found = Outcome()
    async with gateway(home, network, agent, config=CONFIG) as running:
        for first in range(0, sessions, AT_ONCE):
            batch = range(first, min(first + AT_ONCE, sessions))
            network.bad_days()
            await asyncio.gather(*(_talk(network, f"c{n}", messages) for n in batch))
            await _answered(network, (len(batch)) * messages)
            _judge(network, found, [f"c{n}" for n in batch], messages)
            network.forget()
            agent.runs.clear()
        counts = running.profiles["default"].admission.counts
    outcomes = ("accepted", "duplicate", "denied", "refused", "handled", "not_ready")
    found.sums_up = counts["received"] == sum(counts[name] for name in outcomes)
    return found


async def _talk(network: ScriptedPlatform, chat: str, messages: int) -> None:
    for number in range(messages):
        try:
            await network.say(f"{number}", chat=chat, user=chat)
        except NotReady:
            raise AssertionError("a gateway that runs is not ready") from None


async def _answered(network: ScriptedPlatform, count: int) -> None:
    while len(network.sent) < count:
        await network.change()


def _judge(network: ScriptedPlatform, found: Outcome, chats: list[str], messages: int) -> None:
    answers: dict[str, list[int]] = defaultdict(list)
    for sent in network.sent:
        answers[sent.message.address.chat_id].append(int(sent.message.text))
    for chat in chats:
        seen = answers[chat]
        found.messages += messages
        found.lost += messages - len(set(seen))
        found.duplicates += len(seen) - len(set(seen))
        found.reordered += seen != sorted(seen)
