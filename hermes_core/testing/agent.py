"""An agent without a model: it answers as a test tells it to, and records what it was asked."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import cast

import msgspec

from hermes_core.agents import Agent, AgentType, Turn
from hermes_core.hookspecs import hookimpl
from hermes_core.messages import AgentEvent, Text
from hermes_core.settings import Settings
from hermes_core.testing.platform import Empty, _append

Behaviour = Callable[[Turn], AsyncIterator[AgentEvent]]


class AgentRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run: what it was given, how deep its stack was, and how many ran in its session with
    it."""

    turn_id: str
    session_id: str
    attempt: int
    texts: tuple[str, ...]
    depth: int
    at_once: int


class ScriptedAgent:
    """A plugin with the agent `scripted`. Without further orders it says back what it is told.

    `behaviour` replaces that: an async generator function of the turn. `gates` hold runs back: a
    turn whose first message is the name of a gate waits until the gate is opened. `runs` is what it
    was asked.
    """

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        *,
        name: str = "scripted",
        journal: Path | None = None,
    ) -> None:
        self.behaviour: Behaviour = behaviour or self.echo
        self.runs: list[AgentRun] = []
        self.journal = journal
        self._gates: dict[str, asyncio.Event] = {}
        self._started = asyncio.Event()
        self._now: Counter[str] = Counter()
        self._declared = AgentType(name, _bound_agent(self), Empty)

    @hookimpl
    def agents(self) -> list[AgentType]:
        return [self._declared]

    def gate(self, name: str) -> asyncio.Event:
        """The gate for messages that read `name`. Set it to let them pass."""
        return self._gates.setdefault(name, asyncio.Event())

    async def started(self, count: int) -> None:
        """Wait until `count` runs have begun since the start of the test."""
        while len(self.runs) < count:
            self._started.clear()
            await self._started.wait()

    async def echo(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        gate = self._gates.get(turn.messages[0].text)
        if gate is not None:
            await gate.wait()
        yield Text("\n".join(message.text for message in turn.messages))

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Record the run and behave."""
        self._now[turn.session_id] += 1
        record = AgentRun(
            turn_id=turn.id,
            session_id=turn.session_id,
            attempt=turn.attempt,
            texts=tuple(message.text for message in turn.messages),
            depth=_depth(),
            at_once=self._now[turn.session_id],
        )
        self.runs.append(record)
        if self.journal is not None:
            _append(self.journal, record)
        self._started.set()
        try:
            async with aclosing(_generator(self.behaviour(turn))) as events:
                async for event in events:
                    yield event
        finally:
            self._now[turn.session_id] -= 1


def _generator(events: AsyncIterator[AgentEvent]) -> AsyncGenerator[AgentEvent, None]:
    """A behaviour is a generator; its clean-up belongs to the end of the run, not to some time
    later."""
    return cast("AsyncGenerator[AgentEvent, None]", events)


def _depth() -> int:
    """How many frames are on the stack. `inspect.stack` looks for the source of each."""
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def _bound_agent(script: ScriptedAgent) -> type[Agent[Settings]]:
    class Scripted(Agent[Settings]):
        def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
            return script.run(turn)

    return Scripted
