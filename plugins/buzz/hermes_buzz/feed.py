"""One channel: read what was missed, then what comes, and never go past what is not committed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from hermes_buzz.connection import Connection
from hermes_buzz.cursors import ChannelCursor
from hermes_buzz.events import CHANNEL_KINDS, Event
from hermes_buzz.pacing import backoff
from hermes_buzz.subscriptions import MAX_WAITING, PAGE, Subscription
from hermes_buzz.trouble import ConnectionDown, RelayError, RequestClosed
from hermes_core import Inbound, NotReady, Received

log = logging.getLogger(__name__)

BATCH = 64
"""Events that are handed over together, so that the store can commit them together."""

Translate = Callable[[Event], Awaitable[list[Inbound]]]
Receive = Callable[[Inbound], Awaitable[Received]]


class Feed:
    """Reads one channel until it is cancelled or the relay says that it is not for this account."""

    def __init__(
        self,
        channel_id: str,
        cursor: ChannelCursor,
        connection: Connection,
        *,
        translate: Translate,
        receive: Receive,
        now: Callable[[], int],
        changed: Callable[[], None],
        opened: Callable[[], None],
    ) -> None:
        """`changed` is told that the cursor moved, `opened` that the account may read."""
        self.channel_id = channel_id
        self._cursor = cursor
        self._connection = connection
        self._translate = translate
        self._receive = receive
        self._now = now
        self._changed = changed
        self._opened = opened
        self._subscription: Subscription | None = None

    async def run(self) -> None:
        """Follow the channel. Raises ConnectionDown when nothing can be asked any more."""
        failures = 0
        while True:
            try:
                await self._follow()
                failures = 0
            except ConnectionDown:
                raise
            except RelayError as error:
                log.warning("a channel is not read: %s", error, extra={"chat": self.channel_id})
                if isinstance(error, RequestClosed) and error.is_final:
                    return
                failures += 1
                await asyncio.sleep(backoff(failures))

    async def leave(self) -> None:
        """Tell the relay that the channel is not read any more. Raises ConnectionDown."""
        if self._subscription is not None:
            await self._connection.unsubscribe(self._subscription)

    def filter(self, **more: object) -> dict[str, object]:
        """The REQ filter of this channel: exactly one `#h`, or the relay keeps it for itself."""
        return {"kinds": CHANNEL_KINDS, "#h": [self.channel_id], "limit": PAGE, **more}

    async def _follow(self) -> None:
        subscription = await self._connection.subscribe(self.filter(since=self._cursor.since))
        self._subscription = subscription
        try:
            self._opened()
            await self._catch_up(subscription)
            while batch := await subscription.next_batch(BATCH):
                await self.handle(batch)
        except BaseException:
            self._connection.forget(subscription)
            raise
        if subscription.closed is not None:
            raise RequestClosed(subscription.closed, where=self.channel_id)
        await self._connection.unsubscribe(subscription)

    async def _catch_up(self, subscription: Subscription) -> None:
        stored = subscription.stored
        subscription.stored = []
        if len(stored) < PAGE:
            await self.handle(in_order(stored))
            return
        newest = max(self._now(), *(event.created_at for event in stored))
        async for page in self._pages(self._cursor.since, newest):
            await self.handle(page)

    async def _pages(self, since: int, newest: int) -> AsyncIterator[list[Event]]:
        """Everything between two dates, oldest first, a page at a time.

        Relays give the newest events of a range, so a range that fills a page is cut where half of
        that page lies, and the older part is read first.
        """
        ends = [newest]
        while ends:
            until = ends[-1]
            if since > until:
                ends.pop()
                continue
            limit = PAGE if since < until else MAX_WAITING  # one second cannot be cut
            query = self.filter(since=since, until=until, limit=limit)
            page = await self._connection.fetch(query)
            if len(page) >= PAGE and since < until:
                dates = sorted((event.created_at for event in page), reverse=True)
                ends.append(max(since, min(dates[PAGE // 2], until - 1)))
                continue
            yield in_order(page)
            since = until + 1
            ends.pop()

    # ── handing over ─────────────────────────────────────────────────────────────────────────────

    async def handle(self, events: Sequence[Event]) -> None:
        """Hand events over in their order. Returns when every one of them has been handled."""
        fresh = {event.id: event for event in events if self._is_fresh(event)}
        rest = [(event, await self._translated(event)) for event in fresh.values()]
        for start in range(0, len(rest), BATCH):
            await self._hand_over(rest[start : start + BATCH])

    def _is_fresh(self, event: Event) -> bool:
        return event.is_in(self.channel_id) and not self._cursor.has(event.id)

    async def _translated(self, event: Event) -> list[Inbound]:
        """What the event means. One that nobody can make sense of must not stop the channel."""
        try:
            return await self._translate(event)
        except RelayError:
            raise
        except Exception:
            log.exception("an event cannot be understood", extra={"event": event.id})
            return []

    async def _hand_over(self, offers: list[tuple[Event, list[Inbound]]]) -> None:
        failures = 0
        while offers:
            done = await self._offer(offers)
            offers = offers[done:]
            if offers:
                failures = 1 if done else failures + 1
                await asyncio.sleep(backoff(failures))

    async def _offer(self, offers: list[tuple[Event, list[Inbound]]]) -> int:
        """Offer all at once, in order; the number that were taken before the first that was not."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                [group.create_task(self._taken(inbound)) for inbound in inbounds]
                for _, inbounds in offers
            ]
        done = 0
        for (event, _), outcomes in zip(offers, tasks, strict=True):
            if not all(task.result() for task in outcomes):
                break
            self._cursor.advance(event.id, event.created_at, self._now())
            done += 1
        self._changed()
        return done

    async def _taken(self, inbound: Inbound) -> bool:
        """Whether the core has decided about it. Anything but NotReady is a fault that repeating
        would only repeat."""
        try:
            await self._receive(inbound)
        except NotReady as error:
            log.info("not taken in yet: %s", error, extra={"chat": self.channel_id})
            return False
        except Exception:
            log.exception("an event cannot be taken in", extra={"event": inbound.event_id})
        return True


def in_order(events: Sequence[Event]) -> list[Event]:
    """Oldest first. Relays give stored events newest first, which says more than equal dates."""
    oldest_first = list(events)
    oldest_first.reverse()
    oldest_first.sort(key=lambda event: event.created_at)
    return oldest_first
