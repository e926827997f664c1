"""A channel is read whole and in order, and only what is taken in counts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_buzz.connection import Connection
from hermes_buzz.cursors import ChannelCursor
from hermes_buzz.events import Event
from hermes_buzz.feed import Feed
from hermes_buzz.subscriptions import PAGE, Subscription
from hermes_buzz.trouble import ConnectionDown
from hermes_core import Accepted, Address, Inbound, Message, NotReady, Received, Sender

KEY = "a" * 64


def id_of(number: int) -> str:
    return sha256(str(number).encode()).hexdigest()


def event(number: int, date: int) -> Event:
    return Event(
        id=id_of(number),
        pubkey=KEY,
        created_at=date,
        kind=9,
        tags=(("h", "c"),),
        content="",
        sig="0" * 128,
    )


class Relay(Connection):
    """A relay that has these events, and gives the newest `PAGE` of a range as relays do."""

    def __init__(self, events: list[Event]) -> None:
        self.events = sorted(events, key=lambda event: (-event.created_at, event.id))
        self.queries = 0

    async def subscribe(self, query: Mapping[str, Any]) -> Subscription:
        subscription = Subscription(query)
        self._give(subscription, query)
        subscription.end_of_stored()
        return subscription

    async def fetch(self, query: Mapping[str, Any]) -> list[Event]:
        subscription = Subscription(query)
        self._give(subscription, query)
        return subscription.stored

    def forget(self, subscription: Subscription) -> None:
        pass

    async def unsubscribe(self, subscription: Subscription) -> None:
        raise ConnectionDown("the end of the test")

    def _give(self, subscription: Subscription, query: Mapping[str, Any]) -> None:
        self.queries += 1
        until = query.get("until", 2**40)
        found = [e for e in self.events if query["since"] <= e.created_at <= until]
        for found_event in found[: query["limit"]]:
            subscription.take(found_event)


def message(event: Event) -> Inbound:
    address = Address(platform="buzz", chat_id="c")
    return Message(address=address, sender=Sender(id=KEY), event_id=event.id, text="")


async def read(relay: Relay, cursor: ChannelCursor, not_ready: int = 0) -> list[str]:
    """Read until everything was handed over; the ids in the order in which they were taken in."""
    taken: list[str] = []
    left = not_ready
    wanted = len({event.id for event in relay.events if not cursor.has(event.id)})
    everything = asyncio.Event()
    if not wanted:
        return taken

    async def translate(event: Event) -> list[Inbound]:
        return [message(event)]

    async def receive(inbound: Inbound) -> Received:
        nonlocal left
        if left:
            left -= 1
            raise NotReady("not yet")
        taken.append(inbound.event_id)
        if len(set(taken)) == wanted:
            everything.set()
        return Accepted(len(taken))

    feed = Feed(
        "c",
        cursor,
        relay,
        translate=translate,
        receive=receive,
        now=lambda: 10_000,
        changed=lambda: None,
        opened=lambda: None,
    )
    reading = asyncio.create_task(feed.run())
    waiting = asyncio.create_task(everything.wait())
    await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if reading.done():
        waiting.cancel()
        await reading
    reading.cancel()
    await asyncio.wait({reading})
    return taken


@given(st.lists(st.integers(0, 3000), max_size=1000))
@settings(max_examples=25)
def test_a_backlog_is_read_whole_and_in_order(dates: list[int]) -> None:
    events = [event(number, date) for number, date in enumerate(dates)]
    taken = asyncio.run(read(Relay(events), ChannelCursor(floor=0)))
    date_of = {event.id: event.created_at for event in events}
    assert sorted(taken) == sorted(date_of)
    assert [date_of[event_id] for event_id in taken] == sorted(date_of.values())


def test_a_long_backlog_takes_few_questions() -> None:
    relay = Relay([event(number, number) for number in range(5000)])
    asyncio.run(read(relay, ChannelCursor(floor=0)))
    assert relay.queries < 5000 / PAGE * 5


def test_a_second_in_which_a_page_and_more_was_said_is_read_whole() -> None:
    events = [event(number, 7) for number in range(PAGE + 100)]
    events += [event(PAGE + 100 + number, 6 + 2 * (number % 2)) for number in range(50)]
    taken = asyncio.run(read(Relay(events), ChannelCursor(floor=0)))
    assert sorted(taken) == sorted(event.id for event in events)


def test_an_event_that_nobody_understands_does_not_stop_the_channel() -> None:
    cursor = ChannelCursor(floor=0)
    relay = Relay([event(1, 100), event(2, 200)])

    async def test() -> None:
        handled = asyncio.Event()

        async def translate(found: Event) -> list[Inbound]:
            if found.id == id_of(1):
                raise ValueError("no sense")
            return [message(found)]

        async def receive(inbound: Inbound) -> Received:
            return Accepted(1)

        feed = Feed(
            "c",
            cursor,
            relay,
            translate=translate,
            receive=receive,
            now=lambda: 10_000,
            changed=handled.set,
            opened=lambda: None,
        )
        task = asyncio.create_task(feed.run())
        waiting = asyncio.create_task(handled.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        for one in (task, waiting):
            one.cancel()
        await asyncio.wait({task, waiting})

    asyncio.run(test())
    assert cursor.has(id_of(1))
    assert cursor.has(id_of(2))


def test_what_could_not_be_looked_up_because_the_connection_ended_is_read_again() -> None:
    cursor = ChannelCursor(floor=0)

    async def translate(found: Event) -> list[Inbound]:
        raise ConnectionDown("in the middle of it")

    async def receive(inbound: Inbound) -> Received:
        raise AssertionError

    feed = Feed(
        "c",
        cursor,
        Relay([event(1, 100)]),
        translate=translate,
        receive=receive,
        now=lambda: 10_000,
        changed=lambda: None,
        opened=lambda: None,
    )
    with pytest.raises(ConnectionDown):
        asyncio.run(feed.run())
    assert not cursor.has(id_of(1))


def test_what_is_not_taken_in_is_offered_again_and_not_passed_over() -> None:
    cursor = ChannelCursor(floor=0)
    relay = Relay([event(number, number) for number in range(3)])
    taken = asyncio.run(read(relay, cursor, not_ready=1))
    assert set(taken) == {event.id for event in relay.events}
    assert taken.index(id_of(0)) < len(taken)
    assert all(cursor.has(event.id) for event in relay.events)


def test_nothing_behind_a_refused_event_counts_as_read() -> None:
    cursor = ChannelCursor(floor=0)
    relay = Relay([event(1, 100), event(2, 9_000)])

    async def test() -> None:
        async def translate(event: Event) -> list[Inbound]:
            return [message(event)]

        refused = asyncio.Event()

        async def receive(inbound: Inbound) -> Received:
            if inbound.event_id == id_of(1):
                refused.set()
                raise NotReady("never")
            return Accepted(1)

        feed = Feed(
            "c",
            cursor,
            relay,
            translate=translate,
            receive=receive,
            now=lambda: 10_000,
            changed=lambda: None,
            opened=lambda: None,
        )
        task = asyncio.create_task(feed.run())
        await refused.wait()
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(test())
    assert cursor.since == 0
    assert not cursor.has(id_of(2))
