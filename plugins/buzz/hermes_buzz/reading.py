"""Which channels are read, and that each of them is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hermes_buzz.events import Event, Kind
from hermes_buzz.feed import Feed
from hermes_buzz.membership import Channel, Directory
from hermes_buzz.subscriptions import Filter, Subscription
from hermes_buzz.trouble import ConnectionDown, RelayError

if TYPE_CHECKING:
    from hermes_buzz.bridge import Bridge
    from hermes_buzz.connection import Connection
    from hermes_buzz.cursors import CursorStore
    from hermes_buzz.incoming import Translator
    from hermes_core import AdapterContext

log = logging.getLogger(__name__)

SETTLED_AFTER = 60
"""Seconds after which a stored event that nobody was told of means that a subscription is dead."""
LOOK_BACK = 900
"""Seconds of a channel that are looked through for such an event."""
BATCH = 64
NONE: frozenset[str] = frozenset()
SAVE_EVERY = 1.0
"""Seconds between two writes of the cursors. What is read again after a crash is recognised."""


class Reader:
    """Runs one feed for each channel of the account. `serve` is its life."""

    def __init__(
        self,
        context: AdapterContext,
        *,
        me: str,
        connection: Connection,
        bridge: Bridge,
        store: CursorStore,
        translator: Translator,
        only: frozenset[str],
        relay_key: str,
        reconcile_every: float,
        wall: Callable[[], float],
    ) -> None:
        """`only` limits the channels, unless it is empty. `relay_key` is the relay's own key, ""
        when it states none."""
        self._context = context
        self._me = me
        self._connection = connection
        self._bridge = bridge
        self._store = store
        self._translator = translator
        self._every = reconcile_every
        self._wall = wall
        self._relay_key = relay_key
        self._feeds: dict[str, tuple[Feed, asyncio.Task[None]]] = {}
        self._dirty = asyncio.Event()
        self._syncing = asyncio.Lock()
        self._group: asyncio.TaskGroup
        self.directory = Directory(self._query, me, only, relay_key)

    async def serve(self, group: asyncio.TaskGroup) -> None:
        """Read every channel; the tasks that go on doing so belong to `group`. Raises RelayError.

        What is pushed about membership is asked for first, so that nothing falls between.
        """
        self._group = group
        kinds = [Kind.MEMBER_ADDED, Kind.MEMBER_REMOVED]
        since = self._store.members_since or int(self._wall())
        self._store.members_since = since
        query = {"kinds": kinds, "#p": [self._me], "since": since}
        members = await self._connection.subscribe(query)
        await self._sync(self._added(members.stored))
        group.create_task(self._keep_saving())
        group.create_task(self._follow_membership(members))
        group.create_task(self._keep_reconciling())

    def channel(self, channel_id: str) -> Channel:
        """What is known of a channel."""
        return self.directory.channels.get(channel_id) or Channel(id=channel_id)

    async def find(self, channel_id: str, event_id: str) -> Event | None:
        """The event of a channel with that id, None when the relay has none. Raises RelayError."""
        found = await self._connection.fetch({"ids": [event_id], "#h": [channel_id]})
        fits = (event for event in found if event.id == event_id)
        return next((event for event in fits if event.value("h") == channel_id), None)

    def changed(self) -> None:
        """Something is to be saved soon."""
        self._store.changed()
        self._dirty.set()

    # ── membership ───────────────────────────────────────────────────────────────────────────────

    async def _follow_membership(self, members: Subscription) -> None:
        while batch := await members.next_batch(BATCH):
            added = self._added(batch)
            if await self._try_sync(added):
                newest = max(event.created_at for event in batch)
                self._store.members_since = max(self._store.members_since, newest)
                self._dirty.set()
        raise ConnectionDown(f"the relay ended the news about membership: {members.closed}")

    def _added(self, events: Sequence[Event]) -> frozenset[str]:
        """The channels to which the account was added last, each to be read from then on."""
        added: dict[str, bool] = {}
        for event in sorted(events, key=lambda event: event.created_at):
            if self._me not in event.values("p") or self._relay_key not in ("", event.pubkey):
                continue
            channel_id = event.value("h")
            added[channel_id] = event.kind == Kind.MEMBER_ADDED
            if added[channel_id]:
                self._store.channel(channel_id, event.created_at)
        return frozenset(channel_id for channel_id, is_in in added.items() if is_in)

    async def _try_sync(self, added: frozenset[str] = NONE) -> bool:
        try:
            await self._sync(added)
        except ConnectionDown:
            raise
        except RelayError as error:
            log.warning("the channels cannot be learned: %s", error)
            return False
        return True

    async def _sync(self, added: frozenset[str] = NONE) -> None:
        """Learn which channels there are, and read just these. Raises RelayError."""
        async with self._syncing:
            await self.directory.refresh(added)
            wanted = self.directory.channels
            for channel_id in [key for key in self._feeds if key not in wanted]:
                await self._drop(channel_id)
            for channel_id in wanted:
                if channel_id not in self._feeds or self._feeds[channel_id][1].done():
                    self._start(channel_id)

    async def _keep_reconciling(self) -> None:
        """Push may fail and subscriptions may die without a word: look now and then."""
        while True:
            await asyncio.sleep(self._every)
            if await self._try_sync():
                await self._revive()

    async def _revive(self) -> None:
        """Read a channel anew when the relay has what its subscription did not bring."""
        until = int(self._wall()) - SETTLED_AFTER
        for channel_id in list(self._feeds):
            cursor = self._store.channel(channel_id, until)
            since = max(cursor.since, until - LOOK_BACK)
            query = self._feed(channel_id).filter(since=since, until=until)
            try:
                events = await self._query([query])
            except ConnectionDown:
                raise
            except RelayError as error:
                log.info("a channel cannot be checked: %s", error, extra={"chat": channel_id})
                continue
            if any(event.created_at > cursor.at and not cursor.has(event.id) for event in events):
                log.warning("a subscription was dead", extra={"chat": channel_id})
                await self._drop(channel_id)
                self._start(channel_id)

    # ── feeds ────────────────────────────────────────────────────────────────────────────────────

    def _start(self, channel_id: str) -> None:
        feed = self._feed(channel_id)
        task = self._group.create_task(feed.run(), name=f"buzz {channel_id}")
        self._feeds[channel_id] = (feed, task)

    async def _drop(self, channel_id: str) -> None:
        feed, task = self._feeds.pop(channel_id)
        task.cancel()
        await feed.leave()

    def _feed(self, channel_id: str) -> Feed:
        return Feed(
            channel_id,
            self._store.channel(channel_id, int(self._wall())),
            self._connection,
            translate=lambda event: self._translator.translate(
                event,
                self.channel(channel_id),
                self.directory.name(event.pubkey),
                lambda event_id: self.find(channel_id, event_id),
            ),
            receive=self._context.receive,
            now=lambda: int(self._wall()),
            changed=self.changed,
            opened=lambda: self._context.reachable(channel_id),
        )

    async def _query(self, filters: Sequence[Filter]) -> list[Event]:
        """Over HTTP where the relay can, else over the socket."""
        if not self._bridge.absent:
            try:
                return await self._bridge.query(filters)
            except RelayError:
                if not self._bridge.absent:
                    raise
        found: list[Event] = []
        for query in filters:
            found += await self._connection.fetch(query)
        return found

    async def _keep_saving(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            try:
                await self._store.save()
            except OSError as error:
                log.error("the cursors cannot be saved: %s", error)
            await asyncio.sleep(SAVE_EVERY)
