"""Which channels the account is in: what is pushed, what is not, and what was said meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from hermes_buzz.testing import BuzzRelay, Person, Witness, eventually, listening, talking
from hermes_core.testing import WallClock


def run(test: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await test

    asyncio.run(limited())


async def said(relay: BuzzRelay, bot: Person) -> str:
    return str((await relay.next_event(bot))["content"])


def test_what_is_said_while_the_account_is_not_a_member_is_not_for_it(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        clock = WallClock()
        async with BuzzRelay(wall=clock) as relay:
            channel = relay.channel("general", alice, bot)
            home = tmp_path / "home"
            async with talking(home, relay, bot, allowed=(alice,), wall=clock):
                await relay.say(alice, channel, "before", mentions=[bot])
                assert await said(relay, bot) == "before"
                endings = relay.endings
                clock.advance(300)
                await relay.remove(channel, bot)
                await relay.until(lambda: relay.endings > endings)
                await relay.say(alice, channel, "behind its back", mentions=[bot])
                clock.advance(300)
                requests = len(relay.requests)
                await relay.add(channel, bot)
                await listening(relay, bot, since=requests)
                await relay.say(alice, channel, "after", mentions=[bot])
                assert await said(relay, bot) == "after"
            requests = len(relay.requests)
            async with talking(home, relay, bot, allowed=(alice,), wall=clock):
                # The news is pushed once more, and old by now.
                await relay.say(alice, channel, "restarted", mentions=[bot])
                assert await said(relay, bot) == "restarted"

    run(test())


def test_what_is_said_before_a_membership_is_found_is_answered(tmp_path: Path) -> None:
    """The push was lost, and the list is looked at minutes later."""

    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        clock = WallClock()
        async with BuzzRelay(wall=clock) as relay:
            channel = relay.channel("new", alice)
            more = 'reconcile_every = "1s"'
            async with talking(
                tmp_path / "home", relay, bot, allowed=(alice,), more=more, wall=clock
            ):
                await relay.until(lambda: relay.bridge.queries > 0)
                clock.advance(1)
                await relay.say(alice, channel, "welcome", mentions=[bot])
                relay.bridge.queries = 0
                clock.advance(240)
                relay.rooms[channel].members.add(bot.key)
                assert await said(relay, bot) == "welcome"

    run(test())


def test_a_relay_that_pushes_no_news_costs_no_connection(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            channel = relay.channel("new", alice)
            relay.faults.closed_news = 1
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                await relay.say(alice, direct, "hello")
                assert await said(relay, bot) == "hello"
                await relay.until(lambda: sum("#p" in query for query in relay.requests) == 2)
                await relay.add(channel, bot)  # it was asked again, and pushes now
                await relay.say(alice, channel, "welcome", mentions=[bot])
                assert await said(relay, bot) == "welcome"
                await relay.end_subscriptions("", "error: overloaded")
                await relay.until(lambda: sum("#p" in query for query in relay.requests) == 3)
            assert relay.connections == 1

    run(test())


@pytest.mark.parametrize("why", ["restricted: not a channel member", "invalid: no such channel"])
def test_a_channel_that_was_refused_is_read_once_it_may_be(tmp_path: Path, why: str) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            more = 'reconcile_every = "1s"'
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), more=more):
                requests = len(relay.requests)
                await relay.end_subscriptions(direct, why)
                await relay.say(alice, direct, "meanwhile")
                await listening(relay, bot, since=requests)
                assert await said(relay, bot) == "meanwhile"
                assert relay.connections == 1

    run(test())


def test_an_archived_channel_is_left_and_read_again_when_it_comes_back(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            channel = relay.channel("general", alice, bot)
            more = 'reconcile_every = "1s"'
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), more=more):
                relay.rooms[channel].archived = True
                await relay.until(lambda: relay.endings > 0)
                requests = len(relay.requests)
                relay.rooms[channel].archived = False
                await listening(relay, bot, since=requests)
                await relay.say(alice, channel, "back", mentions=[bot])
                assert await said(relay, bot) == "back"

    run(test())


def test_a_deleted_channel_is_left(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            channel = relay.channel("general", alice, bot)
            direct = relay.channel("", alice, bot, kind="dm")
            more = 'reconcile_every = "1s"'
            witness = Witness()
            async with talking(tmp_path / "home", relay, bot, witness, allowed=(alice,), more=more):
                del relay.rooms[channel]
                await relay.end_subscriptions(channel, "restricted: not a channel member")
                queries = relay.bridge.queries
                await eventually(lambda: relay.bridge.queries > queries + 2)
                requests = len(relay.requests)
                await relay.say(alice, direct, "hello")
                assert await said(relay, bot) == "hello"
                assert not any(query.get("#h") == [channel] for query in relay.requests[requests:])
                assert relay.connections == 1

    run(test())


def test_a_subscription_that_has_died_without_a_word_is_found_out(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        clock = WallClock()
        async with BuzzRelay(wall=clock) as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            more = 'reconcile_every = "1s"'
            async with talking(
                tmp_path / "home", relay, bot, allowed=(alice,), more=more, wall=clock
            ):
                relay.faults.dead = 1
                await relay.say(alice, direct, "anybody?")
                await relay.until(lambda: relay.faults.dead == 0)
                clock.advance(120)
                assert await said(relay, bot) == "anybody?"
                assert relay.connections == 1

    run(test())
