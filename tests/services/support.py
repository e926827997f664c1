"""A plugin with one service that records what it is told, and an agent that uses tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from hermes_core import (
    ProfileScope,
    Settings,
    SubagentEnd,
    SubagentInfo,
    Text,
    ToolEnd,
    ToolStart,
    Turn,
    TurnEnd,
    hookimpl,
)
from hermes_core.errors import HermesError
from hermes_core.events import HousekeepingInfo, ToolCallEnd
from hermes_core.messages import AgentEvent
from hermes_core.services import DurableEvent, EventCursor, Schema, Section, Service, ServiceContext
from hermes_core.settings import TableArray

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class KeeperSettings(Settings):
    color: str = "blue"


class TargetSettings(Settings):
    name: str


class Keeper:
    """The service of the plugin below."""

    def __init__(self, plugin: KeeperPlugin, context: ServiceContext) -> None:
        self.context = context
        self.plugin = plugin
        self.cursor: EventCursor | None = None

    async def start(self) -> None:
        if self.plugin.start_error is not None:
            raise self.plugin.start_error
        if self.plugin.durable:
            self.cursor = self.context.events(self.plugin.durable)
        self.plugin.log.append("start")
        self.plugin.running[self.context.scope.uuid] = self

    async def stop(self) -> None:
        self.plugin.log.append("stop")

    async def request(self, request: Mapping[str, object]) -> Mapping[str, object]:
        if request.get("fail"):
            raise HermesError("asked to fail")
        return {"heard": dict(request)}

    async def read(self, count: int) -> list[DurableEvent]:
        """Wait until `count` events can be read."""
        assert self.cursor is not None
        while len(found := await self.cursor.read()) < count:
            await self.cursor.wait()
        return found


class KeeperPlugin:
    def __init__(
        self, durable: Sequence[str] = (), *, schema: Schema | None = None, name: str = "keeper"
    ) -> None:
        self.durable = durable
        self.schema = schema
        self.name = name
        self.start_error: Exception | None = None
        self.log: list[str] = []
        self.running: dict[str, Keeper] = {}
        self.calls: asyncio.Queue[ToolCallEnd] = asyncio.Queue()
        self.subagents: asyncio.Queue[SubagentInfo] = asyncio.Queue()
        self.loads: asyncio.Queue[HousekeepingInfo] = asyncio.Queue()

    @property
    def service(self) -> Keeper:
        (keeper,) = self.running.values()
        return keeper

    @hookimpl
    def settings(self) -> list[Section]:
        return [
            Section("keeper", KeeperSettings),
            Section("keepers.target", TableArray(TargetSettings)),
        ]

    @hookimpl
    def models(self) -> list[Schema]:
        return [] if self.schema is None else [self.schema]

    @hookimpl
    def services(self) -> list[Service]:
        return [Service(self.name, lambda context: Keeper(self, context))]

    @hookimpl
    def on_tool_call_end(self, call: ToolCallEnd) -> None:
        self.calls.put_nowait(call)

    @hookimpl
    def on_subagent_end(self, subagent: SubagentInfo) -> None:
        self.subagents.put_nowait(subagent)

    @hookimpl
    def on_housekeeping(self, load: HousekeepingInfo) -> None:
        self.loads.put_nowait(load)

    @hookimpl
    async def on_turn_end(self, scope: ProfileScope, turn: TurnEnd) -> None:
        await asyncio.sleep(0)
        self.log.append(f"turn {turn.outcome}")


async def with_tools(turn: Turn) -> AsyncIterator[AgentEvent]:
    """An agent that uses a tool twice and answers."""
    yield ToolStart(call_id="1", name="grep", input={"pattern": "x", "odd": float("nan")})
    yield ToolEnd(call_id="1", name="grep", output="two \ud800 lines")
    yield ToolEnd(call_id="2", name="late", error="was never begun")
    yield SubagentEnd(id="h", name="scout", output="found it")
    yield Text("done")
