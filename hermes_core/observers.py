"""What observers are told about a turn: at once by notify hooks, and durably by rows of its
commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from hermes_core import hookspecs as specs
from hermes_core.events import (
    SessionInfo,
    SubagentInfo,
    ToolCallEnd,
    TurnEnd,
    TurnInfo,
    TurnOutcome,
)
from hermes_core.messages import SubagentEnd, ToolEnd, ToolStart
from hermes_core.plain import jsonable
from hermes_core.services import DURABLE_HOOKS, DurableEvent
from hermes_core.store import events

if TYPE_CHECKING:
    from hermes_core.hookkinds import Notify
    from hermes_core.plugins import Hooks
    from hermes_core.profiles import ProfileScope
    from hermes_core.store import Store, Tx

log = logging.getLogger(__name__)

MAX_OPEN_CALLS = 1000
"""Tool uses of one turn that may be under way; of more, the end is told without the input."""
MAX_DURABLE_CALLS = 1000
"""Tool uses that one turn keeps for its commit at most."""


_Payload: TypeAlias = tuple[dict[str, object], bool]
"""The values of an event, and whether something had to be left out of them."""


class Durable:
    """The durable events of one profile: who wants which, and who waits for more."""

    def __init__(self, store: Store, wall: Callable[[], float]) -> None:
        self._store = store
        self._wall = wall
        self._cursors: dict[str, Cursor] = {}
        self._wanted: frozenset[str] = frozenset()

    def wants(self, hook: str) -> bool:
        """Whether any service asked for events of this hook."""
        return hook in self._wanted

    def cursor(self, owner: str, hooks: Collection[str], max_age: float) -> Cursor:
        """A reader. Raises ValueError for a hook whose events no transaction writes."""
        if unknown := sorted(set(hooks) - DURABLE_HOOKS):
            raise ValueError(f"{unknown[0]} has no durable events")
        opening = self._store.write(lambda tx: events.open_cursor(tx, owner))
        opening.add_done_callback(_report)
        cursor = Cursor(self._store, owner, frozenset(hooks), max_age)
        self._cursors[owner] = cursor
        self._count()
        return cursor

    def release(self, owner: str) -> None:
        """The reader stopped. Its place is kept; new events are not written for it."""
        self._cursors.pop(owner, None)
        self._count()

    def _count(self) -> None:
        self._wanted = frozenset(hook for one in self._cursors.values() for hook in one.hooks)

    def event(self, spec: Notify[..., object], **values: object) -> events.NewEvent:
        """The row for a call of `spec` with these arguments, without the scope."""
        return events.NewEvent(spec.name, msgspec.json.encode(jsonable(values)))

    def committed(self) -> None:
        """Events were committed: wake the readers."""
        for cursor in self._cursors.values():
            cursor.arrived.set()

    async def expire(self) -> None:
        """Delete what is too old, also when its reader never came."""
        if not self._wanted:
            return
        before = self._wall() - max(cursor.max_age for cursor in self._cursors.values())
        count = await self._store.write(lambda tx: events.expire(tx, before))
        if count:
            log.warning("%d durable events were too old and are deleted unread", count)


def _report(opening: asyncio.Future[int]) -> None:
    if not opening.cancelled() and (error := opening.exception()) is not None:
        log.error("a cursor in the durable events cannot be opened: %s", error)


class Cursor:
    """The place of one service in the durable events (`services.EventCursor`)."""

    def __init__(self, store: Store, owner: str, hooks: frozenset[str], max_age: float) -> None:
        self._store = store
        self._owner = owner
        self.hooks = hooks
        self.max_age = max_age
        self.arrived = asyncio.Event()
        self.arrived.set()

    async def read(self, limit: int = 100) -> list[DurableEvent]:
        rows = await self._store.write(lambda tx: self._read(tx, limit))
        return [_durable_event(row) for row in rows]

    def _read(self, tx: Tx, limit: int) -> list[events.Row]:
        position = events.open_cursor(tx, self._owner)
        return events.read(tx, position, self.hooks, limit)

    def move(self, tx: Tx, sequence: int) -> None:
        events.move(tx, self._owner, sequence)

    async def wait(self) -> None:
        await self.arrived.wait()
        self.arrived.clear()


def _durable_event(row: events.Row) -> DurableEvent:
    values, truncated = msgspec.json.decode(row.payload, type=_Payload)
    return DurableEvent(row.sequence, row.hook, row.created_at, values, truncated)


@dataclass
class TurnWatch:
    """Tells the observers about one turn, and gathers what its commit writes for the durable
    ones."""

    hooks: Hooks
    durable: Durable
    scope: ProfileScope
    info: TurnInfo
    rows: list[events.NewEvent] = field(default_factory=list)
    _open: dict[str, tuple[ToolStart, float]] = field(default_factory=dict)
    _over: bool = False

    def begin(self, session: SessionInfo | None) -> None:
        """The turn begins, and with it its session when `session` is given."""
        if session is not None:
            self._tell(specs.on_session_start, session=session)
        if self.hooks.has(specs.on_turn_start):
            self.hooks.notify(specs.on_turn_start, scope=self.scope, turn=self.info)

    def tool(self, event: ToolStart | ToolEnd) -> None:
        """The agent began or ended to use a tool."""
        if not self._watched(specs.on_tool_call_end):
            return
        now = asyncio.get_running_loop().time()
        if isinstance(event, ToolStart):
            if len(self._open) < MAX_OPEN_CALLS:
                self._open[event.call_id] = (event, now)
            return
        start, began = self._open.pop(event.call_id, (None, now))
        call = ToolCallEnd(
            turn_id=self.info.turn_id,
            session_id=self.info.session_id,
            session_key=self.info.session_key,
            address=self.info.address,
            call_id=event.call_id,
            name=event.name,
            input=start.input if start is not None else {},
            output=event.output,
            error=event.error,
            duration=now - began,
        )
        self._tell(specs.on_tool_call_end, call=call)

    def subagent(self, event: SubagentEnd) -> None:
        """A helper of the agent ended."""
        if not self._watched(specs.on_subagent_end):
            return
        ended = SubagentInfo(
            turn_id=self.info.turn_id,
            session_id=self.info.session_id,
            session_key=self.info.session_key,
            address=self.info.address,
            id=event.id,
            name=event.name,
            output=event.output,
            error=event.error,
        )
        self._tell(specs.on_subagent_end, subagent=ended)

    def rows_with(
        self, end: Callable[[TurnOutcome], TurnEnd], outcome: TurnOutcome
    ) -> list[events.NewEvent]:
        """The rows for the commit that ends the turn this way. `end` tells observers of it."""
        if not self.durable.wants(specs.on_turn_end.name):
            return self.rows
        return [*self.rows, self.durable.event(specs.on_turn_end, turn=end(outcome))]

    def ended(self, end: Callable[[TurnOutcome], TurnEnd], outcome: TurnOutcome) -> None:
        """The end is committed, with its rows. Told once: what comes later is no end."""
        if self._over:
            return
        self._over = True
        if self.hooks.has(specs.on_turn_end):
            self.hooks.notify(specs.on_turn_end, scope=self.scope, turn=end(outcome))
        self.durable.committed()

    def _watched(self, spec: Notify[..., object]) -> bool:
        return self.hooks.has(spec) or self.durable.wants(spec.name)

    def _tell(self, spec: Notify[..., object], **values: object) -> None:
        if self.durable.wants(spec.name) and len(self.rows) < MAX_DURABLE_CALLS:
            self.rows.append(self.durable.event(spec, **values))
        if self.hooks.has(spec):
            self.hooks.notify(spec, scope=self.scope, **values)
