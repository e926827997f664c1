"""What a plugin author writes to keep something running beside the conversations: a service.

A plugin declares `Service(name, factory)` by the `services` hook. For each profile that is served
the core calls the factory once, with a `ServiceContext`, and starts what it gives. The context is
all that the service gets: its own sections of the profile's settings, its own small state, its own
tables, and events that survive a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar, runtime_checkable

import msgspec

from hermes_core.settings import Settings, TableArray

if TYPE_CHECKING:
    import asyncio
    import sqlite3

    from hermes_core.profiles import ProfileScope

T = TypeVar("T")
SettingsT = TypeVar("SettingsT", bound=Settings)


@dataclass(frozen=True)
class Section:
    """A table of the settings file that belongs to a plugin, declared by the `settings` hook.

    `name` is the table's dotted name, at most two parts: ``memory_trim``, ``hooks.outbound``.
    `type` is one table, or `TableArray` for ``[[hooks.outbound]]``.
    """

    name: str
    type: type[Settings] | TableArray


@dataclass(frozen=True)
class Schema:
    """Tables of a plugin in the state database of every profile, declared by the `models` hook.

    `name` begins the name of every table, with ``_`` behind it. Each step is a list of SQL
    statements; steps that are new are carried out in order, in one transaction, before the services
    start. A step that has shipped is never edited; a new one is appended.
    """

    name: str
    steps: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Description:
    """One line of what a plugin does in a profile, for ``hermes hooks list``.

    `hooks` are the names of the hooks that it concerns. `text` holds no secret.
    """

    name: str
    hooks: tuple[str, ...]
    text: str


class RunningService(Protocol):
    """What a factory gives. It runs between `start` and `stop`, on the gateway's event loop."""

    async def start(self) -> None:
        """Begin. The database is open, no turn runs yet. What is raised costs this service only."""

    async def stop(self) -> None:
        """End. Every observer has been told everything; the database is still open."""


@runtime_checkable
class AnsweringService(Protocol):
    """A service that commands can ask something, through the control socket."""

    async def request(self, request: Mapping[str, object]) -> Mapping[str, object]:
        """Answer in plain JSON values. A HermesError is told to whoever asked."""


@dataclass(frozen=True)
class Service:
    """A service as declared by the `services` hook. A class whose ``__init__`` takes the context is
    a factory."""

    name: str
    factory: Callable[[ServiceContext], RunningService]


class KeyValues(Protocol):
    """Small durable state of one plugin in one profile: JSON values by name. Each call is one
    commit.

    A value has at most 64 KiB as JSON, a key 200 characters; ValueError for more.
    """

    async def get(self, key: str) -> object:
        """The value, None when there is none."""

    async def set(self, key: str, value: object) -> None: ...

    async def delete(self, key: str) -> None: ...

    async def items(self) -> dict[str, object]: ...


class DurableEvent(msgspec.Struct, frozen=True):
    """An event as it was committed together with what it tells of.

    `values` are the arguments of the hook as plain JSON values, without the scope. `sequence` only
    ever rises; `created_at` is in UNIX seconds. `truncated` says that something was left out of the
    values to keep them bounded.
    """

    sequence: int
    hook: str
    created_at: float
    values: dict[str, object]
    truncated: bool = False


class EventCursor(Protocol):
    """The place of one reader in the durable events of its profile. It survives restarts."""

    async def read(self, limit: int = 100) -> list[DurableEvent]:
        """The next events of the wanted hooks, oldest first, without moving on."""

    def move(self, tx: sqlite3.Connection, sequence: int) -> None:
        """Move behind `sequence`, within a transaction of `Tables.write`: with what is made of
        it."""

    async def wait(self) -> None:
        """Return when there may be something to read that was not there at the last call."""


class Tables(Protocol):
    """The tables that the plugin declared by the `models` hook, in the profile's database.

    Operations get the open connection, run in the core's database threads, and touch no table of
    others.
    """

    def write(self, op: Callable[[sqlite3.Connection], T]) -> asyncio.Future[T]:
        """Run `op` in a transaction. The order of calls is the order of commits. Raises
        StoreError when nothing can be written, StoreFault when SQLite refuses what `op` does, and
        whatever else it raises."""

    async def read(self, op: Callable[[sqlite3.Connection], T]) -> T:
        """Run `op` on what is committed. Raises StoreError and StoreFault."""


Spawn: TypeAlias = Callable[[Coroutine[object, object, None], str], "asyncio.Task[None]"]


class ServiceContext(Protocol):
    """What the core gives to one service of one profile."""

    @property
    def scope(self) -> ProfileScope: ...

    @property
    def kv(self) -> KeyValues: ...

    @property
    def tables(self) -> Tables: ...

    @property
    def wall(self) -> Callable[[], float]:
        """The time, in UNIX seconds."""

    def section(self, name: str, kind: type[SettingsT]) -> SettingsT:
        """The plugin's own table `name`. Raises ConfigError when the file does not have it and
        must."""

    def table_array(self, name: str, kind: type[SettingsT]) -> Sequence[SettingsT]:
        """The plugin's own ``[[name]]``, in the order of the file."""

    def spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run `work` in a task that the core owns: an error is logged, and it is cancelled and
        awaited after `stop`."""

    def events(self, hooks: Collection[str], *, max_age: float = 3 * 86400.0) -> EventCursor:
        """Ask for durable events of these hooks; call it in `start`. One cursor a service.

        They are written in the transaction of what they tell of, so a crash loses none, and are
        kept until every cursor is behind them, at most `max_age` seconds. `DURABLE_HOOKS` names the
        hooks that can be asked for; ValueError for another one.
        """

    def redact(self, text: str) -> str:
        """`text` without any secret value that the profile knows."""


DURABLE_HOOKS = frozenset(
    {"on_session_start", "on_subagent_end", "on_tool_call_end", "on_turn_end"}
)
"""The hooks whose events are written by the transaction that ends a turn."""
