"""Runs the services of one profile: builds each with its context, starts, asks, stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from hermes_core.errors import ConfigError, ControlError, HermesError, PluginError, described
from hermes_core.plugins.model import contained, containing
from hermes_core.redaction import Redactor
from hermes_core.secrets import ProfileSecrets
from hermes_core.services import AnsweringService
from hermes_core.store.database import connection_of
from hermes_core.store.migrations import migrate_plugin

if TYPE_CHECKING:
    from hermes_core.observers import Cursor, Durable
    from hermes_core.plugins import Hooks, Owned
    from hermes_core.profiles import ProfileScope
    from hermes_core.services import RunningService, Service
    from hermes_core.settings import Settings
    from hermes_core.store import Store, Tx

T = TypeVar("T")
SettingsT = TypeVar("SettingsT", bound="Settings")

log = logging.getLogger(__name__)

LIMIT = 10.0
"""Seconds for the `stop` of a service, and for its `start` when its settings have changed."""
MAX_KEY = 200
MAX_VALUE = 65_536


class Kv:
    """`services.KeyValues` in the table `kv`, under one owner."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self._owner = owner

    async def get(self, key: str) -> object:
        return await self._store.write(lambda tx: self._get(tx, key))

    async def set(self, key: str, value: object) -> None:
        encoded = msgspec.json.encode(value)
        if not key or len(key) > MAX_KEY or len(encoded) > MAX_VALUE:
            raise ValueError(f"a key has 1 to {MAX_KEY} characters, a value {MAX_VALUE} bytes")
        row = (self._owner, key, encoded)
        await self._store.write(
            lambda tx: tx.execute(
                "INSERT INTO kv (owner, key, value) VALUES (?, ?, ?)"
                " ON CONFLICT (owner, key) DO UPDATE SET value = excluded.value",
                row,
            )
        )

    async def delete(self, key: str) -> None:
        await self._store.write(
            lambda tx: tx.execute("DELETE FROM kv WHERE owner = ? AND key = ?", (self._owner, key))
        )

    async def items(self) -> dict[str, object]:
        rows = await self._store.write(
            lambda tx: tx.execute(
                "SELECT key, value FROM kv WHERE owner = ? ORDER BY key", (self._owner,)
            ).fetchall()
        )
        return {key: msgspec.json.decode(value) for key, value in rows}

    def _get(self, tx: Tx, key: str) -> object:
        row = tx.execute(
            "SELECT value FROM kv WHERE owner = ? AND key = ?", (self._owner, key)
        ).fetchone()
        return None if row is None else msgspec.json.decode(row[0])


class PluginTables:
    """`services.Tables`: operations on the profile's database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def write(self, op: Callable[[Tx], T]) -> asyncio.Future[T]:
        return self._store.write(op)

    async def read(self, op: Callable[[Tx], T]) -> T:
        return await self._store.read(lambda database: op(connection_of(database)))


class Context:
    """`services.ServiceContext` of one service."""

    def __init__(
        self,
        *,
        plugin: str,
        service: str,
        scope: ProfileScope,
        store: Store,
        durable: Durable,
        sections: Collection[str],
        wall: Callable[[], float],
    ) -> None:
        self.scope = scope
        self.kv = Kv(store, plugin)
        self.tables = PluginTables(store)
        self.wall = wall
        self.tasks: set[asyncio.Task[None]] = set()
        self._plugin = plugin
        self._service = service
        self._durable = durable
        self.follows = False
        self._sections = frozenset(sections)
        self._known: frozenset[str] = frozenset()
        self._redactor = Redactor()

    def section(self, name: str, kind: type[SettingsT]) -> SettingsT:
        found = self._found(name)
        if not isinstance(found, kind):
            raise ConfigError("the settings do not have this table", where=f"[{name}]")
        return found

    def table_array(self, name: str, kind: type[SettingsT]) -> Sequence[SettingsT]:
        found = self._found(name)
        return (
            [item for item in found if isinstance(item, kind)] if isinstance(found, tuple) else []
        )

    def spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(
            containing(lambda: work), name=f"{self._service} {name}@{self.scope.name}"
        )
        task.add_done_callback(lambda _: work.close())  # in case that it never began
        self.own(task)
        return task

    def own(self, task: asyncio.Task[None]) -> None:
        """A task that ends with the service; what goes wrong in it is logged."""
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def events(self, hooks: Collection[str], *, max_age: float = 3 * 86400.0) -> Cursor:
        self.follows = True
        return self._durable.cursor(f"{self._plugin}.{self._service}", hooks, max_age)

    def release(self) -> None:
        """The service ended: write no events for it."""
        self._durable.release(f"{self._plugin}.{self._service}")

    def redact(self, text: str) -> str:
        secrets = self.scope.secrets
        values = secrets.values() if isinstance(secrets, ProfileSecrets) else frozenset()
        if values != self._known:
            self._known, self._redactor = values, Redactor(values)
        return self._redactor(text)

    def _found(self, name: str) -> object:
        if name not in self._sections:
            raise ConfigError(f"the plugin {self._plugin} did not declare it", where=f"[{name}]")
        return self.scope.settings.sections.get(name)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of a service ended: %s", task.get_name(), exc_info=error)


@dataclass
class _Running:
    context: Context
    service: RunningService | None = None
    error: str = ""


class Services:
    """The services of one profile. One that fails costs itself, not the gateway."""

    def __init__(
        self,
        *,
        scope: ProfileScope,
        store: Store,
        hooks: Hooks,
        durable: Durable,
        wall: Callable[[], float],
    ) -> None:
        self._scope = scope
        self._store = store
        self._hooks = hooks
        self._durable = durable
        self._wall = wall
        self._running: dict[str, _Running] = {}
        self._broken: dict[str, str] = {}

    async def start(self) -> None:
        """Bring the plugins' tables up to date, then build every service in order and start them
        together. One that takes longer than ``[gateway] start_grace`` is left out."""
        self._broken = await self._migrate()
        limit = float(self._scope.settings.gateway.start_grace)
        wanted = {
            name: owned
            for name, owned in self._hooks.services.items()
            if owned.plugin.serves(self._scope)
        }
        await asyncio.gather(*(self._begin(name, owned, limit) for name, owned in wanted.items()))

    async def stop(self) -> None:
        """Stop every service, the last one first, then end the tasks they left."""
        for name in reversed(list(self._running)):
            (await self._end(name)).release()

    async def restart(self, sections: Collection[str]) -> None:
        """Stop and start the services of the plugins whose tables of the settings changed."""
        changed = {self._hooks.sections[name].plugin.name for name in sections}
        for name, owned in self._hooks.services.items():
            if name in self._running and owned.plugin.name in changed:
                before = await self._end(name)
                await self._begin(name, owned, LIMIT)
                # Not before the new one has asked for its events: what is committed meanwhile
                # has to be written for it.
                if not self._running[name].context.follows:
                    before.release()

    async def _begin(self, name: str, owned: Owned[Service], limit: float) -> None:
        running = self._running[name] = _Running(self._context(name, owned.plugin.name))
        running.error = self._broken.get(owned.plugin.name, "")
        if not running.error:
            await self._start(running, owned.value, limit)
        if running.error:
            log.error("the service %s does not run: %s", name, running.error)

    async def _end(self, name: str) -> Context:
        running = self._running.pop(name)
        if running.service is not None:
            await self._stop(name, running.service, running.context)
        tasks = list(running.context.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=LIMIT)
        return running.context

    async def _stop(self, name: str, service: RunningService, context: Context) -> None:
        try:
            if not await _limited(service.stop, context, f"stop {name}", LIMIT):
                log.warning("the service %s did not stop within %g s", name, LIMIT)
        except Exception:
            log.exception("the service %s failed to stop", name)

    async def request(self, name: str, request: Mapping[str, object]) -> Mapping[str, object]:
        """Ask a service. Raises ControlError when none answers, and what the service raises."""
        running = self._running.get(name)
        if running is None:
            raise ControlError(
                f"the profile {self._scope.name} has no service {name!r}",
                remedy="is its plugin installed? `hermes plugins list` shows it",
            )
        if running.service is None:
            raise ControlError(f"the service {name} does not run: {running.error}")
        if not isinstance(running.service, AnsweringService):
            raise ControlError(f"the service {name} answers nothing")
        return await containing(partial(running.service.request, request))

    def status(self) -> dict[str, str]:
        """`running`, or why not, by name."""
        return {name: running.error or "running" for name, running in self._running.items()}

    async def _migrate(self) -> dict[str, str]:
        """The plugins whose tables cannot be used, and why."""
        broken: dict[str, str] = {}
        for name, owned in self._hooks.schemas.items():
            steps = owned.value.steps
            try:
                await self._store.write(
                    lambda tx, name=name, steps=steps: migrate_plugin(tx, name, steps)  # type: ignore[misc]
                )
            except HermesError as error:
                broken[owned.plugin.name] = str(error)
            except Exception as error:
                broken[owned.plugin.name] = described(error)
        return broken

    def _context(self, service: str, plugin: str) -> Context:
        return Context(
            plugin=plugin,
            service=service,
            scope=self._scope,
            store=self._store,
            durable=self._durable,
            sections=[
                name for name, owned in self._hooks.sections.items() if owned.plugin.name == plugin
            ],
            wall=self._wall,
        )

    async def _start(self, running: _Running, declared: Service, limit: float) -> None:
        """Start a service, or note why it does not run. One that is late is cancelled, and nobody
        waits for that."""
        try:
            service = _built(declared, running.context)
            if not await _limited(service.start, running.context, f"start {declared.name}", limit):
                running.error = f"start was not done within {limit:g} s"
                return
        except HermesError as error:
            running.error = str(error)
        except Exception as error:
            log.debug("a service failed to start", exc_info=error)
            running.error = described(error)
        else:
            running.service = service


async def _limited(
    function: Callable[[], Coroutine[object, object, None]],
    context: Context,
    name: str,
    limit: float,
) -> bool:
    """Let code of a service run to its end. False when that takes more than `limit` seconds: it is
    cancelled, and nobody waits for that. Raises what it raises."""
    task = asyncio.get_running_loop().create_task(containing(function), name=name)
    try:
        await asyncio.wait({task}, timeout=limit)
    finally:
        if not task.done():
            task.cancel()
            context.own(task)
    if not task.done():
        return False
    if task.cancelled():
        raise PluginError("it cancelled itself")
    task.result()
    return True


def _built(declared: Service, context: Context) -> RunningService:
    try:
        return declared.factory(context)
    except (SystemExit, KeyboardInterrupt) as error:
        raise contained(error) from error
