"""The service of one profile: takes events in, hands each to the targets that want it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_core import DURABLE_HOOKS, DurableEvent, EventCursor, HermesError, ServiceContext
from hermes_outbound_webhooks import durable
from hermes_outbound_webhooks.delivery import Delivery, MemoryBacklog, Worker
from hermes_outbound_webhooks.document import facts_of, tool_of
from hermes_outbound_webhooks.targets import Target, targets_of

if TYPE_CHECKING:
    from hermes_outbound_webhooks.client import Client

log = logging.getLogger(__name__)

FLUSH = 5.0
"""Seconds at the end for what still waits in memory."""
LISTED = 200

_running: dict[str, Webhooks] = {}
"""The services that run, by the uuid of their profile: how the plugin's hooks find theirs."""


def tell(hook: str, values: Mapping[str, object]) -> None:
    """An event happened: in the profile of its scope, or in all when it has none."""
    scope = values.get("scope")
    if scope is None:
        for service in list(_running.values()):
            service.tell(hook, values)
    elif (found := _running.get(getattr(scope, "uuid", ""))) is not None:
        found.tell(hook, values)


def keep_house(uuid: str) -> None:
    """Some time of a profile has passed: what is too old goes."""
    if (found := _running.get(uuid)) is not None:
        found.keep_house()


class Webhooks:
    """Everything that one profile sends."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._targets = targets_of(context.scope)
        self._workers: dict[str, Worker] = {}
        self._memory: dict[str, MemoryBacklog] = {}
        self._durable: dict[str, durable.DurableBacklog] = {}
        self._clients: list[Client] = []
        self._cursor: EventCursor | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        from hermes_outbound_webhooks.client import Client

        for target in self._targets:
            if target.refused:
                log.error("webhook %s is refused: %s", target.name, target.refused)
                continue
            for note in target.notes:
                log.warning("webhook %s: %s", target.name, note)
            client = Client(target, wall=self._context.wall)
            self._clients.append(client)
            self._add(target, client)
        self.keep_house()
        self._follow()
        _running[self._context.scope.uuid] = self

    async def stop(self) -> None:
        await self._flush()  # and queue until then: after a reload nobody else does
        _running.pop(self._context.scope.uuid, None)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._report_left()
        for client in self._clients:
            await client.close()

    def tell(self, hook: str, values: Mapping[str, object]) -> None:
        """Queue an event for each target that wants it. Never waits and does no work on it."""
        tool = tool_of(values)
        now = self._context.wall()
        for target in self._targets:
            if target.refused or not target.wants(hook, tool):
                continue
            worker = self._workers[target.name]
            if worker.gone:
                worker.counts["dropped"] += 1
            elif target.name in self._memory:
                delivery = Delivery(target.events[hook], hook, now, values)
                self._memory[target.name].put(delivery)
            elif hook not in DURABLE_HOOKS:
                self._store(target, hook, values, now)

    def keep_house(self) -> None:
        """Give up and delete what is too old, also of targets that nothing is sent to."""
        ages = {
            target.name: float(target.settings.max_age)
            for target in self._targets
            if target.settings.durable
        }
        now = self._context.wall()
        kept = min(durable.KEPT, float(self._context.scope.settings.retention.content))
        try:
            write = self._context.tables.write(lambda tx: durable.sweep(tx, ages, now, kept))
        except HermesError as error:
            log.warning("old deliveries cannot be deleted: %s", error)
            return
        write.add_done_callback(self._swept)

    def _swept(self, write: asyncio.Future[bool]) -> None:
        if write.cancelled():
            return
        if (error := write.exception()) is not None:
            log.warning("old deliveries cannot be deleted: %s", error)
        elif write.result():
            keep_house(self._context.scope.uuid)  # by whom it is to be done now

    async def request(self, request: Mapping[str, object]) -> Mapping[str, object]:
        """`status`, `deliveries` or `replay`, for ``hermes webhooks``."""
        wanted = request.get("do")
        if wanted == "status":
            return {"targets": {name: worker.status() for name, worker in self._workers.items()}}
        if wanted == "deliveries":
            return {"deliveries": await self._deliveries(failed=bool(request.get("failed")))}
        if wanted == "replay":
            return {"target": await self._replay(str(request.get("id", "")))}
        raise HermesError(f"the webhooks cannot {wanted!r:.40}")

    # ── building ─────────────────────────────────────────────────────────────────────────────────

    def _add(self, target: Target, client: Client) -> None:
        backlog: MemoryBacklog | durable.DurableBacklog
        if target.settings.durable:
            backlog = durable.DurableBacklog(target, self._context.tables, self._context.wall)
            self._durable[target.name] = backlog
        else:
            backlog = MemoryBacklog(target, lambda lost: self._dropped(target, lost))
            self._memory[target.name] = backlog
        worker = Worker(
            target,
            backlog,
            profile=self._context.scope.name,
            post=client.post,
            mask=self._context.redact,
            wall=self._context.wall,
        )
        self._workers[target.name] = worker
        self._tasks.append(self._context.spawn(worker.run(), target.name))

    def _follow(self) -> None:
        """Read the durable events that any durable target wants."""
        hooks = {
            hook
            for target in self._targets
            if target.name in self._durable
            for hook in target.events
            if hook in DURABLE_HOOKS
        }
        if hooks:
            oldest = max(target.settings.max_age for target in self._targets)
            self._cursor = self._context.events(sorted(hooks), max_age=float(oldest))
            self._tasks.append(self._context.spawn(self._read(self._cursor), "events"))

    # ── durable targets ──────────────────────────────────────────────────────────────────────────

    async def _read(self, cursor: EventCursor) -> None:
        while True:
            await cursor.wait()
            while not await self._take_all(cursor):
                pass

    async def _take_all(self, cursor: EventCursor) -> bool:
        """Make deliveries of every event that there is. False, after a pause, when the database
        cannot be used."""
        try:
            while events := await cursor.read():
                rows = [row for event in events for row in self._rows(event)]
                last = events[-1].sequence
                await self._context.tables.write(
                    lambda tx, rows=rows, last=last: self._take_over(tx, cursor, rows, last)  # type: ignore[misc]
                )
                for backlog in self._durable.values():
                    backlog.added()
        except HermesError as error:
            log.warning("durable webhooks wait for the database: %s", error)
            await asyncio.sleep(durable.AFTER_FAULT)
            return False
        return True

    def _rows(self, event: DurableEvent) -> list[tuple[str, Delivery]]:
        tool = tool_of(event.values)
        return [
            (
                target.name,
                Delivery(
                    target.events[event.hook],
                    event.hook,
                    event.created_at,
                    event.values,
                    truncated=event.truncated,
                ),
            )
            for target in self._targets
            if target.name in self._durable
            and not self._workers[target.name].gone
            and target.wants(event.hook, tool)
        ]

    @staticmethod
    def _take_over(
        tx: sqlite3.Connection,
        cursor: EventCursor,
        rows: Sequence[tuple[str, Delivery]],
        last: int,
    ) -> None:
        """In one transaction: an event is a delivery from now on, and is not read again."""
        for target, delivery in rows:
            durable.insert(tx, target, delivery)
        cursor.move(tx, last)

    def _store(self, target: Target, hook: str, values: Mapping[str, object], now: float) -> None:
        """An event that no transaction of a turn writes: it is durable from here on."""
        facts, cut = facts_of(values)
        delivery = Delivery(target.events[hook], hook, now, facts, truncated=cut)
        backlog = self._durable[target.name]
        try:
            write = self._context.tables.write(lambda tx: durable.insert(tx, target.name, delivery))
        except HermesError as error:
            log.warning("webhook %s: an event is lost: %s", target.name, error)
            return
        write.add_done_callback(lambda done: _stored(done, backlog))

    # ── the end ──────────────────────────────────────────────────────────────────────────────────

    async def _flush(self) -> None:
        waiting = [
            asyncio.ensure_future(self._workers[name].drained())
            for name in self._memory
            if not self._workers[name].gone
        ]
        if not waiting:
            return
        _, late = await asyncio.wait(waiting, timeout=FLUSH)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def _report_left(self) -> None:
        for name, backlog in self._memory.items():
            worker = self._workers[name]
            left = [*([worker.busy] if worker.busy else []), *backlog.left()]
            worker.counts["dropped"] += len(left)
            if left:
                log.warning("webhook %s: %d events were dropped at the end", name, len(left))

    def _dropped(self, target: Target, delivery: Delivery) -> None:
        worker = self._workers[target.name]
        first = worker.counts["dropped"] == 0
        worker.counts["dropped"] += 1
        report = log.warning if first else log.debug
        report("webhook %s does not keep up: %s was dropped", target.name, delivery.event)

    # ── answers ──────────────────────────────────────────────────────────────────────────────────

    async def _deliveries(self, *, failed: bool) -> list[dict[str, Any]]:
        rows = await self._context.tables.read(
            lambda tx: durable.listing(tx, failed=failed, limit=LISTED)
        )
        for name in self._memory:
            ended = self._workers[name].ended
            rows += [
                delivery.row(name) for delivery in ended if not failed or delivery.state == "failed"
            ]
        rows.sort(key=lambda row: row["created_at"], reverse=True)
        return rows[:LISTED]

    async def _replay(self, delivery_id: str) -> str:
        served = {name for name, worker in self._workers.items() if not worker.gone}
        now, ready = self._context.wall(), served.intersection(self._durable)
        target = await self._context.tables.write(
            lambda tx: durable.replay(tx, delivery_id, ready, now)
        )
        if target is not None:
            self._durable[target].added()
            return target
        for name, backlog in self._memory.items():
            ended = self._workers[name].ended
            for delivery in list(ended):
                if delivery.id == delivery_id and delivery.body:
                    if name not in served:
                        raise durable.no_target(name)
                    ended.remove(delivery)
                    delivery.attempts, delivery.state = 0, "pending"
                    backlog.put(delivery)
                    return name
        raise HermesError(
            f"there is no ended delivery {delivery_id!r:.60} whose body was kept",
            remedy="see `hermes webhooks deliveries`",
        )


def _stored(write: asyncio.Future[None], backlog: durable.DurableBacklog) -> None:
    if not write.cancelled() and (error := write.exception()) is not None:
        log.warning("an event of a durable webhook is lost: %s", error)
    else:
        backlog.added()
