"""Which channels are read, and that each of them is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hermes_buzz.events import MESSAGES, Event, Kind
from hermes_buzz.feed import Feed, in_order
from hermes_buzz.membership import Channel, Directory
from hermes_buzz.pacing import backoff
from hermes_buzz.subscriptions import PAGE, Filter, Subscription
from hermes_buzz.trouble import MAX_SKEW, ConnectionDown, RelayError, RequestClosed

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
        self._synced_at = int(wall())
        """When the channels were learned last: one that is new was joined since."""
        self._group: asyncio.TaskGroup
        self.directory = Directory(self._query, me, only, relay_key)

    async def serve(self, group: asyncio.TaskGroup) -> None:
        """Read every channel; the tasks that go on doing so belong to `group`. Raises RelayError.

        What is pushed about membership is asked for first, so that nothing falls between.
        """
        self._group = group
        members = await self._ask_for_news()
        await self._learn(members.stored if members is not None else [])
        group.create_task(self._keep_saving())
        group.create_task(self._follow_membership(members))
        group.create_task(self._keep_reconciling())

    def channel(self, channel_id: str) -> Channel:
        """What is known of a channel."""
        return self.directory.channels.get(channel_id) or Channel(id=channel_id)

    async def find(self, channel_id: str, query: Filter) -> list[Event]:
        """Events of a channel that the relay has. Raises RelayError."""
        found = await self._connection.fetch({**query, "#h": [channel_id], "limit": PAGE})
        return [event for event in found if event.is_in(channel_id)]

    async def quote(self, channel_id: str, event_id: str) -> str:
        """What somebody else's message says, as its author edited it last; "" when it is gone.
        Raises RelayError."""
        found = await self.find(channel_id, {"ids": [event_id]})
        said = next((event for event in found if event.kind in MESSAGES), None)
        if said is None or said.pubkey == self._me:
            return ""
        query = {"kinds": [Kind.EDIT], "#e": [event_id], "authors": [said.pubkey]}
        edits = [event for event in await self.find(channel_id, query) if event.kind == Kind.EDIT]
        return max(edits, key=lambda event: event.created_at, default=said).content

    def changed(self) -> None:
        """Something is to be saved soon."""
        self._store.changed()
        self._dirty.set()

    # ── membership ───────────────────────────────────────────────────────────────────────────────

    async def _ask_for_news(self) -> Subscription | None:
        """Ask for what is pushed about membership; None when the relay will not: the lists are
        looked at now and then all the same. Raises RelayError when it does not answer."""
        self._store.members_since = self._store.members_since or int(self._wall())
        kinds = [Kind.MEMBER_ADDED, Kind.MEMBER_REMOVED]
        since = self._store.members_since - MAX_SKEW  # the dates are the relay's
        query = {"kinds": kinds, "#p": [self._me], "since": since}
        try:
            return await self._connection.subscribe(query)
        except RequestClosed as error:
            log.warning("no news about membership: %s", error)
            return None

    async def _follow_membership(self, members: Subscription | None) -> None:
        failures = 0
        while True:
            while members is not None and (batch := await members.next_batch(BATCH)):
                failures = 0
                await self._try_to_learn(batch)
            if members is not None:
                await self._connection.unsubscribe(members)
            failures += 1
            await asyncio.sleep(backoff(failures))
            members = await self._ask_for_news()
            if members is not None:
                await self._try_to_learn(members.stored)

    async def _learn(self, news: Sequence[Event]) -> None:
        """Read the channels that the lists or `news` name, and leave the others. Raises
        RelayError."""
        mine = [event for event in news if self._is_news(event)]
        async with self._syncing:
            added: set[str] = set()
            for event in in_order(mine):
                channel_id = event.value("h")
                if event.kind == Kind.MEMBER_ADDED:
                    oldest = self._store.members_since - MAX_SKEW
                    self._store.channel(channel_id, max(event.created_at, oldest))
                    added.add(channel_id)
                elif self._store.left(channel_id, event.created_at):
                    added.discard(channel_id)
                    await self._drop(channel_id)
            await self._sync(frozenset(added))
        dates = [event.created_at for event in mine]
        self._store.members_since = max([self._store.members_since, *dates])
        self._dirty.set()

    def _is_news(self, event: Event) -> bool:
        return self._me in event.values("p") and self._relay_key in ("", event.pubkey)

    async def _try_to_learn(self, news: Sequence[Event] = ()) -> bool:
        try:
            await self._learn(news)
        except ConnectionDown:
            raise
        except RelayError as error:
            log.warning("the channels cannot be learned: %s", error)
            return False
        return True

    async def _sync(self, added: frozenset[str]) -> None:
        now = int(self._wall())
        await self.directory.refresh(added)
        wanted = self.directory.channels
        for channel_id in [key for key in self._feeds if key not in wanted]:
            await self._drop(channel_id)
        for channel_id in wanted:
            if channel_id not in self._feeds or self._feeds[channel_id][1].done():
                self._start(channel_id)
        self._synced_at = now

    async def _keep_reconciling(self) -> None:
        """Push may fail and subscriptions may die without a word: look now and then."""
        while True:
            await asyncio.sleep(self._every)
            if await self._try_to_learn():
                await self._revive()

    async def _revive(self) -> None:
        """Read a channel anew when the relay has what its subscription did not bring."""
        until = int(self._wall()) - SETTLED_AFTER
        for channel_id, (feed, _) in list(self._feeds.items()):
            cursor = self._store.channel(channel_id, until)
            since = max(cursor.since, until - LOOK_BACK)
            query = feed.filter(since=since, until=until)
            try:
                events = await self._query([query])
            except ConnectionDown:
                raise
            except RelayError as error:
                log.info("a channel cannot be checked: %s", error, extra={"chat": channel_id})
                continue
            missed = [event for event in events if event.is_in(channel_id)]
            if any(event.created_at > cursor.at and not cursor.has(event.id) for event in missed):
                log.warning("a subscription was dead", extra={"chat": channel_id})
                await self._drop(channel_id)
                self._start(channel_id)

    # ── feeds ────────────────────────────────────────────────────────────────────────────────────

    def _start(self, channel_id: str) -> None:
        feed = self._feed(channel_id)
        task = self._group.create_task(feed.run(), name=f"buzz {channel_id}")
        self._feeds[channel_id] = (feed, task)

    async def _drop(self, channel_id: str) -> None:
        feed, task = self._feeds.pop(channel_id, (None, None))
        if feed is not None and task is not None:
            task.cancel()
            await feed.leave()

    def _feed(self, channel_id: str) -> Feed:
        return Feed(
            channel_id,
            self._store.channel(channel_id, self._synced_at),
            self._connection,
            translate=lambda event: self._translator.translate(
                event,
                self.channel(channel_id),
                self.directory.name(event.pubkey),
                lambda query: self.find(channel_id, query),
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
            except RelayError as error:
                log.info("the socket is asked instead: %s", error)
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
