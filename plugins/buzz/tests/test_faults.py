"""What a relay may do to the account, and what must not come of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from hermes_buzz.testing import BuzzRelay, Person, Witness, eventually, listening, talking
from hermes_core.adapters import Account
from hermes_core.gateway import Gateway
from hermes_core.testing import WallClock


def run(test: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await test

    asyncio.run(limited())


def account_of(gateway: Gateway) -> Account:
    account = gateway.profiles["default"].accounts.get("buzz")
    assert account is not None
    return account


def reason(gateway: Gateway) -> str:
    return account_of(gateway).reason


async def answered(relay: BuzzRelay, bot: Person, count: int) -> list[str]:
    return [(await relay.next_event(bot))["content"] for _ in range(count)]


async def exactly(relay: BuzzRelay, bot: Person, texts: list[str]) -> None:
    """Each of these is in the relay's store once, and nothing else by the account."""
    stored = await relay.stored({"authors": [bot.key], "kinds": [9]})
    assert sorted(event["content"] for event in stored) == sorted(texts)


def test_what_is_said_while_the_relay_is_away_is_answered_once(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                await relay.say(alice, direct, "before")
                await answered(relay, bot, 1)
                relay.faults.refuse = True
                await relay.close(1012)
                await relay.until(lambda: not relay.clients)
                await relay.say(alice, direct, "during")
                relay.faults.refuse = False
                assert await answered(relay, bot, 1) == ["during"]
                await relay.say(alice, direct, "after")
                assert await answered(relay, bot, 1) == ["after"]
            await exactly(relay, bot, ["before", "during", "after"])

    run(test())


def test_a_connection_that_goes_silent_is_given_up(tmp_path: Path) -> None:
    """Half-open: the socket stays, nothing comes, not even a pong."""

    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            more = 'read_idle = "300ms"'
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), more=more):
                relay.faults.deaf = True
                await relay.until(lambda: not relay.clients)
                relay.faults.deaf = False
                await relay.say(alice, direct, "hello")
                assert await answered(relay, bot, 1) == ["hello"]
                assert relay.connections > 1

    run(test())


def test_a_quiet_relay_that_answers_pings_is_kept(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            more = 'read_idle = "300ms"\nreconcile_every = "1s"\npresence = false'
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), more=more):
                queries = relay.bridge.queries
                await relay.until(lambda: relay.bridge.queries > queries)
                assert relay.connections == 1
                await relay.say(alice, direct, "hello")
                assert await answered(relay, bot, 1) == ["hello"]

    run(test())


def test_one_closed_subscription_does_not_touch_the_others(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            one = relay.channel("", alice, bot, kind="dm")
            two = relay.channel("", alice, bot, kind="dm")
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                await relay.end_subscriptions(one, "restricted: not a channel member")
                await relay.say(alice, two, "still here")
                assert await answered(relay, bot, 1) == ["still here"]
                assert relay.connections == 1

    run(test())


@pytest.mark.parametrize(
    "why",
    [
        "error: overloaded",
        "rate-limited: quota exceeded; retry in 0s",
        "auth-required: not authenticated",
        "",
    ],
)
def test_a_subscription_that_ended_is_asked_for_again_and_nothing_is_missed(
    tmp_path: Path, why: str
) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            one = relay.channel("", alice, bot, kind="dm")
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                before = len(relay.requests)
                await relay.end_subscriptions(one, why)
                await relay.say(alice, one, "between")
                await listening(relay, bot, since=before)
                assert await answered(relay, bot, 1) == ["between"]
                assert relay.connections == 1

    run(test())


def test_a_rate_limited_event_is_sent_again_as_the_same_event(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            more = "presence = false\ntyping = false"
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), more=more):
                relay.faults.rate_limited = 2
                await relay.say(alice, direct, "hello")
                assert await answered(relay, bot, 1) == ["hello"]
            sent = [event for label, event in relay.frames if label == "EVENT"]
            assert len({event["id"] for event in sent if event["kind"] == 9}) == 1
            await exactly(relay, bot, ["hello"])

    run(test())


def test_an_answer_whose_receipt_was_lost_is_there_once(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            more = 'presence = false\nprogress = "none"\nstreaming = false'
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), more=more):
                relay.faults.lost = 1
                await relay.say(alice, direct, "first")
                await answered(relay, bot, 1)
                await relay.say(alice, direct, "second")
                assert await answered(relay, bot, 1) == ["second"]
            await exactly(relay, bot, ["first", "second"])

    run(test())


def test_a_target_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                relay.faults.late_targets = 2
                question = await relay.say(alice, direct, "hello")
                answer = await relay.next_event(bot)
                assert ["e", question, "", "reply"] in answer["tags"]

    run(test())


def test_a_target_that_never_comes_does_not_cost_the_answer(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            more = 'progress = "none"\nstreaming = false'
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), more=more):
                relay.faults.late_targets = 1000
                await relay.say(alice, direct, "hello")
                answer = await relay.next_event(bot)
                assert answer["content"] == "hello"
                assert [tag for tag in answer["tags"] if tag[0] == "e"] == []

    run(test())


@pytest.mark.case("BZ-08")
def test_replayed_reordered_and_forged_events(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            witness = Witness()
            home = tmp_path / "home"
            now = relay.now()
            async with talking(home, relay, bot, witness, allowed=(alice,)):
                await relay.say(alice, direct, "late date", at=now + 300)
                early = alice.event(9, "early date", [["h", direct]], at=now + 1)
                await relay.publish(early)
                forged = early | {"content": "forged"}
                unsigned = alice.event(9, "unsigned", [["h", direct]], at=now)
                unsigned["sig"] = "0" * 128
                subscriptions = [
                    subscription
                    for client in relay.clients
                    for subscription in client.subscriptions(direct)
                ]
                for event in (early, early, forged, unsigned):
                    for subscription in subscriptions:
                        await relay.inject(json.dumps(["EVENT", subscription, event]))
                assert sorted(await answered(relay, bot, 2)) == ["early date", "late date"]
                before = len(relay.requests)
                relay.cut()
                await listening(relay, bot, since=before)
                await relay.say(alice, direct, "end")
                assert await answered(relay, bot, 1) == ["end"]
            async with talking(home, relay, bot, witness, allowed=(alice,)):
                await relay.say(alice, direct, "restarted")
                assert await answered(relay, bot, 1) == ["restarted"]
            await exactly(relay, bot, ["late date", "early date", "end", "restarted"])
            assert len(witness.received) == 4

    run(test())


def test_a_backlog_of_500_is_answered_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        texts = [f"message {number}" for number in range(500)]
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            quiet = relay.channel("quiet", alice, bot)
            witness = Witness()
            home = tmp_path / "home"
            async with talking(home, relay, bot, witness, allowed=(alice,)):
                await relay.say(alice, direct, "here")
                await answered(relay, bot, 1)
            now = relay.now()
            events = [
                alice.event(9, text, [["h", direct]], at=now + number)
                for number, text in enumerate(texts)
            ]
            ids = [event["id"] for event in events]
            await relay.publish_all(events)
            async with talking(home, relay, bot, witness, allowed=(alice,), ready=False):
                await witness.until(lambda: len(witness.received) >= 501)
            assert [info.event_id for info in witness.received[1:]] == ids
            assert quiet

    run(test())


def test_a_frame_that_is_too_large_costs_one_connection(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)) as gateway:
                before = len(relay.requests)
                await relay.inject(json.dumps(["NOTICE", "x" * (3 << 20)]))
                await listening(relay, bot, since=before)
                await relay.say(alice, direct, "hello")
                assert await answered(relay, bot, 1) == ["hello"]
                assert account_of(gateway).connected

    run(test())


@pytest.mark.parametrize(
    "frame",
    ["", "{}", "[]", "null", '["EVENT"]', '["OK"]', '["EOSE",7]', '["AUTH"]', "[1,2]", '["X"]'],
)
def test_frames_without_sense_are_passed_over(tmp_path: Path, frame: str) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                await relay.inject(frame)
                await relay.say(alice, direct, "hello")
                assert await answered(relay, bot, 1) == ["hello"]
                assert relay.connections == 1

    run(test())


def test_a_deleted_community_ends_the_account_for_good(tmp_path: Path) -> None:
    async def test() -> None:
        bot = Person("bot")
        async with BuzzRelay() as relay:
            relay.channel("", bot)
            async with talking(tmp_path / "home", relay, bot) as gateway:
                account = account_of(gateway)
                await relay.close(1008)
                await eventually(lambda: account.state == "failed")
                assert gateway.failed_for_good
                assert "deleted" in account.reason

    run(test())


def test_a_wrong_clock_is_named_and_mends_itself_when_it_is_set(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        clock = WallClock()
        async with BuzzRelay(wall=clock) as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            relay.faults.clock = 120
            async with talking(
                tmp_path / "home", relay, bot, allowed=(alice,), wall=clock, ready=False
            ) as gateway:
                await eventually(lambda: "clock is 120 s behind" in reason(gateway))
                relay.faults.clock = 0
                await listening(relay, bot)
                await relay.say(alice, direct, "hello")
                assert await answered(relay, bot, 1) == ["hello"]

    run(test())


def test_a_banned_account_fails_and_an_uninvited_one_waits(tmp_path: Path) -> None:
    async def test() -> None:
        bot = Person("bot")
        async with BuzzRelay() as relay:
            relay.channel("", bot)
            relay.faults.auth_reason = "restricted: not a relay member"
            async with talking(tmp_path / "home", relay, bot, ready=False) as gateway:
                account = account_of(gateway)
                await eventually(lambda: account.state == "waiting")
                assert bot.key in account.reason
                relay.faults.auth_reason = "blocked: you are banned from this community"
                await eventually(lambda: account.state == "failed")

    run(test())


@pytest.mark.parametrize("fault", ["silent_auth", "empty_ids", "no_bridge", "no_queries"])
def test_quirks_of_other_relays(tmp_path: Path, fault: str) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            channel = relay.channel("general", alice, bot)
            setattr(relay.faults, fault, True)
            more = f'channels = ["{channel}"]'
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), more=more):
                relay.faults.late_targets = 1
                await relay.say(alice, channel, "hello", mentions=[bot])
                assert await answered(relay, bot, 1) == ["hello"]

    run(test())


def test_a_relay_that_asks_for_authentication_late(tmp_path: Path) -> None:
    """The LocalRelay itself, without a front: the challenge comes with the first request."""

    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay(proactive=False) as relay:
            channel = relay.channel("general", alice, bot)
            more = f'channels = ["{channel}"]'
            witness = Witness()
            async with talking(
                tmp_path / "home", relay, bot, witness, allowed=(alice,), more=more, ready=False
            ):
                await witness.until(lambda: witness.connected == 1)
                await relay.say(alice, channel, "hello", mentions=[bot])
                assert await answered(relay, bot, 1) == ["hello"]

    run(test())


@pytest.mark.parametrize("code", [1000, 1001, 1011, 1012, 1013, 4000])
def test_any_other_goodbye_is_followed_by_a_new_connection(tmp_path: Path, code: int) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                before = len(relay.requests)
                await relay.close(code)
                await listening(relay, bot, since=before)
                await relay.say(alice, direct, "hello")
                assert await answered(relay, bot, 1) == ["hello"]

    run(test())


def test_connections_that_end_before_a_word_is_said(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            relay.faults.hang_ups = 2
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                assert relay.connections == 3
                await relay.say(alice, direct, "hello")
                assert await answered(relay, bot, 1) == ["hello"]

    run(test())


def test_a_relay_may_ask_again_who_is_there(tmp_path: Path) -> None:
    """What was asked for is then asked for once more, no faster than anything else."""

    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        loop = asyncio.get_running_loop()
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                before, started = len(relay.requests), loop.time()
                await relay.inject('["NOTICE","rate-limited: quota exceeded; retry in 2s"]')
                await relay.ask_who_is_there()
                await listening(relay, bot, since=before)
                assert loop.time() - started >= 1.9
                await relay.say(alice, direct, "hello")
                assert await answered(relay, bot, 1) == ["hello"]
                assert relay.connections == 1

    run(test())


def test_a_pause_that_the_relay_wants_holds_over_a_reconnect(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        loop = asyncio.get_running_loop()
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            more = "presence = false\ntyping = false\nstreaming = false"
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), more=more):
                relay.faults.rate_limited, relay.faults.retry_in = 1, "retry in 3s"
                await relay.say(alice, direct, "hello")
                await relay.until(lambda: relay.faults.rate_limited == 0)
                refused, before = loop.time(), len(relay.requests)
                relay.cut()
                await relay.until(lambda: len(relay.requests) > before)
                assert loop.time() - refused >= 2.9
                assert await answered(relay, bot, 1) == ["hello"]

    run(test())
