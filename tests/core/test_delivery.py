"""Every answer arrives, whole and once, or it is said loudly that it did not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core import (
    DeliveryInfo,
    Outbound,
    OutcomeUnknown,
    ProfileScope,
    RateLimited,
    Receipt,
    SendFailed,
    SendRejected,
    hookimpl,
)
from hermes_core.gateway import Gateway
from hermes_core.store import outbox
from hermes_core.testing import (
    OK,
    After,
    Result,
    ScriptedAgent,
    ScriptedPlatform,
    StoreThenRaise,
    WallClock,
    gateway,
)
from tests.core.support import (
    HASTY,
    SHORT,
    UNKNOWN,
    no_room_for,
    room_again,
    rows,
    run,
    store_of,
    three_parts,
    until,
)

FAST = '[gateway]\ndurability = "normal"\n'
MARK = "[repeated] "


class Timed(ScriptedPlatform):
    """Notes the loop's time of each outbound call."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.times: list[float] = []

    async def outbound(
        self, call: Literal["send", "edit"], message_id: str, message: Outbound
    ) -> Receipt:
        self.times.append(asyncio.get_running_loop().time())
        return await super().outbound(call, message_id, message)


class Listener:
    """Hears how deliveries ended."""

    def __init__(self) -> None:
        self.delivered: list[DeliveryInfo] = []
        self.failed: list[DeliveryInfo] = []

    @hookimpl
    def on_delivered(self, scope: ProfileScope, delivery: DeliveryInfo) -> None:
        self.delivered.append(delivery)

    @hookimpl
    def on_delivery_failed(self, scope: ProfileScope, delivery: DeliveryInfo) -> None:
        self.failed.append(delivery)


async def settled(running: Gateway) -> None:
    """Wait until nothing is on its way."""

    async def open_rows() -> int:
        found = await store_of(running).write(
            lambda tx: tx.execute(
                "SELECT COUNT(*) FROM outbox WHERE state IN ('pending', 'attempting')"
            ).fetchone()
        )
        return int(found[0])

    while await open_rows():  # noqa: ASYNC110 - rows are asked, they do not tell
        await asyncio.sleep(0)


# ── failures that are certain ────────────────────────────────────────────────────────────────────


@pytest.mark.case("DL-06")
def test_the_wait_that_a_platform_states_is_kept_and_costs_no_attempt(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent, listener = Timed(), ScriptedAgent(), Listener()
        platform.results.extend([RateLimited(8), OK, RateLimited(8)])
        async with gateway(tmp_path, platform, agent, listener):
            await platform.say("hello")
            await until(lambda: len(platform.attempts) == 1)
            await platform.say("other", chat="c2")  # answered meanwhile
            assert await platform.next_text() == "other"
            assert await platform.next_text() == "hello"
            await until(lambda: len(listener.delivered) == 2)
        first, _, second, third = platform.times
        assert second - first >= 8
        assert third - second >= 8
        assert platform.texts() == ["other", "hello"]
        assert [info.attempts for info in listener.delivered] == [1, 1]

    run(scenario(), speed=HASTY)


def test_a_limit_of_the_account_holds_for_all_its_chats(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = Timed(), ScriptedAgent()
        platform.results.append(RateLimited(8, scope="account"))
        async with gateway(tmp_path, platform, agent):
            await platform.say("one")
            await until(lambda: len(platform.attempts) == 1)
            await platform.say("two", chat="c2")
            assert {await platform.next_text() for _ in range(2)} == {"one", "two"}
        assert all(time - platform.times[0] >= 8 for time in platform.times[1:])

    run(scenario(), speed=HASTY)


def test_the_answer_to_a_command_is_sent_before_a_stop_that_follows_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent):
            await platform.say("/whoami")  # `/restart` is such a command
        assert len(platform.texts()) == 1
        async with gateway(tmp_path, platform, agent):
            await platform.say("hello")
        assert len(platform.texts()) == 2

    run(scenario())


def test_a_wait_outlasts_a_restart_and_delays_no_stop(tmp_path: Path) -> None:
    clock = WallClock()

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        platform.results.append(RateLimited(3600))
        async with asyncio.timeout(4):  # less than the grace of a delivery, which is 5
            async with gateway(tmp_path, platform, agent, wall=clock):
                await platform.say("hello")
                await until(lambda: len(platform.attempts) == 1)
                await asyncio.sleep(0.01)
        async with gateway(tmp_path, platform, agent, wall=clock):
            await platform.say("other", chat="c2")
            assert await platform.next_text() == "other"
            assert len(platform.attempts) == 2
        clock.advance(3600)
        async with gateway(tmp_path, platform, agent, wall=clock):
            assert await platform.next_text() == "[delayed] hello"

    run(scenario())


@pytest.mark.case("DL-08")
def test_a_reply_that_is_half_delivered_is_resumed(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(**SHORT), ScriptedAgent(three_parts)
        listener = Listener()
        platform.results.extend([OK, SendFailed("scripted")])
        async with gateway(tmp_path, platform, agent, listener):
            await platform.say("hello")
            assert [await platform.next_text() for _ in range(3)] == [
                "111111 ",
                "222222 ",
                "333333",
            ]
            await until(lambda: len(listener.delivered) == 3)
        assert [message.part for message in platform.attempts] == [1, 2, 2, 3]
        assert [message.part for message in (sent.message for sent in platform.sent)] == [1, 2, 3]
        assert {message.parts for message in platform.attempts} == {3}
        assert listener.failed == []

    run(scenario(), speed=HASTY)
    assert rows(tmp_path, "SELECT DISTINCT state FROM outbox") == [("delivered",)]


@pytest.mark.case("DL-08")
def test_a_part_that_never_arrives_is_on_record_with_its_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(**SHORT), ScriptedAgent(three_parts)
        listener = Listener()
        platform.results.extend([OK, *[SendFailed("scripted")] * 100])
        async with gateway(tmp_path, platform, agent, listener):
            await platform.say("hello")
            await until(lambda: len(listener.failed) >= 1)
            assert listener.failed[0].message.text == "222222 "
            assert "scripted" in listener.failed[0].reason
            assert listener.failed[0].attempts == 8

    run(scenario(), speed=5 * HASTY)
    assert "not delivered" in caplog.text
    states = dict(rows(tmp_path, "SELECT json_extract(payload, '$.text'), state FROM outbox"))
    assert states["111111 "] == "delivered"
    assert states["222222 "] == "failed"


def test_what_a_platform_refuses_is_not_tried_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent, listener = ScriptedPlatform(), ScriptedAgent(), Listener()
        platform.results.append(SendRejected("blocked", kind="forbidden"))
        async with gateway(tmp_path, platform, agent, listener):
            await platform.say("hello")
            await until(lambda: len(listener.failed) == 1)
            await platform.say("again")
            assert await platform.next_text() == "again"
        assert len(platform.attempts) == 2

    run(scenario())
    assert rows(tmp_path, "SELECT state, reason FROM outbox ORDER BY sequence") == [
        ("failed", "refused by the platform: blocked"),
        ("delivered", ""),
    ]


@pytest.mark.case("DL-05")
def test_formatting_that_is_refused_is_left_out_once(tmp_path: Path) -> None:
    text = "snake_case [brackets] and *an odd * number*"

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        platform.results.append(SendRejected("cannot parse entities", kind="bad_format"))
        async with gateway(tmp_path, platform, agent):
            await platform.say(text)
            assert await platform.next_text() == text
        assert [message.plain for message in platform.attempts] == [False, True]
        assert {message.id for message in platform.attempts} == {platform.attempts[0].id}

    run(scenario())


def test_what_is_refused_without_formatting_too_is_given_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent, listener = ScriptedPlatform(), ScriptedAgent(), Listener()
        platform.results.extend([SendRejected("cannot parse", kind="bad_format")] * 3)
        async with gateway(tmp_path, platform, agent, listener):
            await platform.say("*")
            await until(lambda: len(listener.failed) == 1)
        assert len(platform.attempts) == 2

    run(scenario())


def test_a_message_that_is_too_old_is_not_sent(tmp_path: Path) -> None:
    clock = WallClock()

    async def scenario() -> None:
        platform, agent, listener = ScriptedPlatform(), ScriptedAgent(), Listener()
        platform.connect_results.extend([ConnectionError("scripted")] * 3)
        async with gateway(tmp_path, platform, agent, listener, wall=clock) as running:
            await until(lambda: len(platform.connects) == 1)
            account = running.profiles["default"].accounts.get("scripted")
            assert account is not None
            assert not account.connected
        async with gateway(tmp_path, platform, agent, wall=clock):
            pass
        platform.connect_results.clear()
        platform.results.append(RateLimited(10))
        async with gateway(tmp_path, platform, agent, listener, wall=clock):
            await platform.say("hello")
            await until(lambda: len(platform.attempts) == 1)
            clock.advance(86_401)
            await until(lambda: len(listener.failed) == 1)
            assert listener.failed[0].message.text == "hello"
            assert platform.sent == []

    run(scenario(), speed=HASTY)
    assert rows(tmp_path, "SELECT state FROM outbox") == [("expired",)]


# ── outcomes that are unknown ────────────────────────────────────────────────────────────────────


@pytest.mark.case("DL-10")
@pytest.mark.parametrize("result", UNKNOWN, ids=["lost", "arrived", "broke", "unspeakable", "hung"])
@pytest.mark.parametrize("kind", ["plain", "idempotent", "reconciles"])
def test_what_may_have_arrived_arrives_and_at_most_twice(
    tmp_path: Path, result: Result, kind: str
) -> None:
    arrived = isinstance(result, StoreThenRaise)

    async def scenario() -> None:
        platform = ScriptedPlatform(
            idempotent=kind == "idempotent", reconciles=kind == "reconciles"
        )
        platform.results.append(result)
        async with gateway(tmp_path, platform, ScriptedAgent()) as running:
            await platform.say("hello")
            await until(lambda: bool(platform.attempts))
            await settled(running)
            await platform.say("next")
            await until(lambda: "next" in platform.texts())
        again = {"plain": f"{MARK}hello"}.get(kind, "hello")
        once = arrived and kind != "plain"
        first = ["hello"] if arrived else []
        assert platform.texts() == [*first, *([] if once else [again]), "next"]
        assert len({message.id for message in platform.attempts}) == 2

    run(scenario(), speed=5 * HASTY)


def test_an_adapter_that_answers_nonsense_cannot_tell(tmp_path: Path) -> None:
    class Odd(ScriptedPlatform):
        async def found(self, message: Outbound) -> Receipt | None:
            return True  # type: ignore[return-value]

    async def scenario() -> None:
        platform = Odd(reconciles=True)
        platform.results.append(OutcomeUnknown("scripted"))
        async with gateway(tmp_path, platform, ScriptedAgent()):
            await platform.say("hello")
            assert await platform.next_text() == f"{MARK}hello"

    run(scenario(), speed=HASTY)


def test_a_message_is_marked_once_however_often_it_is_repeated(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        platform.results.extend([OutcomeUnknown("scripted")] * 3)
        async with gateway(tmp_path, platform, agent):
            await platform.say("hello")
            assert await platform.next_text() == f"{MARK}hello"
        assert [message.repeated for message in platform.attempts] == [False, True, True, True]

    run(scenario(), speed=HASTY)


def test_where_a_repeat_would_be_worse_it_is_dropped_and_said(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent, listener = ScriptedPlatform(), ScriptedAgent(), Listener()
        platform.results.append(StoreThenRaise(OutcomeUnknown("scripted")))
        config = '[platforms.scripted]\non_unknown = "drop"\n'
        async with gateway(tmp_path, platform, agent, listener, config=config):
            await platform.say("hello")
            await until(lambda: len(listener.failed) == 1)
            await platform.say("next")
            await until(lambda: platform.texts() == ["hello", "next"])

    run(scenario(), speed=HASTY)
    states = rows(tmp_path, "SELECT state FROM outbox ORDER BY sequence")
    assert states == [("unknown",), ("delivered",)]


results = st.lists(
    st.sampled_from(["ok", "failed", "unknown", "arrived", "limited", "rejected"]), max_size=12
)


@given(results, st.sampled_from(["plain", "idempotent", "reconciles"]))
@settings(max_examples=25)
def test_whatever_the_network_does_what_people_see_is_in_order_and_whole(
    tmp_path_factory: pytest.TempPathFactory, scripted: Sequence[str], kind: str
) -> None:
    made: dict[str, Any] = {
        "ok": lambda: OK,
        "failed": lambda: SendFailed("scripted"),
        "unknown": lambda: OutcomeUnknown("scripted"),
        "arrived": lambda: StoreThenRaise(OutcomeUnknown("scripted")),
        "limited": lambda: RateLimited(0.5),
        "rejected": lambda: SendRejected("scripted"),
    }
    home = tmp_path_factory.mktemp("home")

    async def scenario() -> None:
        platform = ScriptedPlatform(
            idempotent=kind == "idempotent", reconciles=kind == "reconciles"
        )
        platform.results.extend(made[name]() for name in scripted)
        texts = [f"n{number}" for number in range(6)]
        async with gateway(home, platform, ScriptedAgent(), config=FAST) as running:
            for text in texts:
                await platform.say(text)
            # One session: everything before it is on its way when the last turn has ended.
            await until(lambda: len(platform.attempts) > 0)
            await until(lambda: not running.profiles["default"].status()["busy_sessions"])
            await settled(running)
        shown = platform.texts()
        rejected = scripted.count("rejected")
        seen = list(dict.fromkeys(text.removeprefix(MARK) for text in shown))
        assert seen == [text for text in texts if text in seen]  # in order
        assert len(texts) - len(seen) <= rejected  # nothing else is missing
        repeats = len(shown) - len(seen)
        assert repeats == sum(text.startswith(MARK) for text in shown) - (
            # A marked one may be the only one that arrived.
            sum(f"{MARK}{text}" in shown and text not in shown for text in seen)
        )
        if kind != "plain":
            assert repeats == 0

    run(scenario(), speed=5 * HASTY)


# ── receipts, and the database ───────────────────────────────────────────────────────────────────


def test_every_attempt_of_a_message_has_its_id_and_its_time(tmp_path: Path) -> None:
    clock = WallClock()

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        platform.results.extend([SendFailed("scripted"), OutcomeUnknown("scripted")])
        async with gateway(tmp_path, platform, agent, wall=clock):
            began = clock()
            await platform.say("hello", event_id="x")
            await until(lambda: len(platform.attempts) == 1)
            clock.advance(5)
            assert await platform.next_text() == f"{MARK}hello"
        assert {message.id for message in platform.attempts} == {platform.attempts[0].id}
        assert {message.created_at for message in platform.attempts} == {began}
        assert {message.answers for message in platform.attempts} == {("x",)}

    run(scenario(), speed=HASTY)


def test_a_receipt_that_cannot_be_stored_is_stored_later_and_nothing_is_sent_twice(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        platform, agent, listener = ScriptedPlatform(), ScriptedAgent(), Listener()
        release = asyncio.Event()
        call = After(release)
        platform.results.append(call)
        async with gateway(tmp_path, platform, agent, listener) as running:
            await platform.say("hello")
            await call.begun.wait()
            # No operation that settles a row works from now on, until one is told to.
            await no_room_for(running, "UPDATE OF message_id ON outbox")
            release.set()
            assert await platform.next_text() == "hello"
            await asyncio.sleep(3)
            assert listener.delivered == []
            await room_again(running)
            await until(lambda: len(listener.delivered) == 1)
            await platform.say("next")
            assert await platform.next_text() == "next"
        async with gateway(tmp_path, platform, agent):
            await platform.say("last")
            assert await platform.next_text() == "last"
        assert platform.texts() == ["hello", "next", "last"]

    run(scenario(), speed=HASTY)


def test_a_stop_lets_a_whole_answer_be_delivered(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(**SHORT), ScriptedAgent(three_parts)
        release = asyncio.Event()
        call = After(release)
        platform.results.append(call)
        async with gateway(tmp_path, platform, agent) as running:
            await platform.say("hello")
            await call.begun.wait()
            stopping = asyncio.create_task(running.stop())
            await asyncio.sleep(0.01)
            release.set()
            await stopping
        assert platform.texts() == ["111111 ", "222222 ", "333333"]

    run(scenario())
    assert rows(tmp_path, "SELECT DISTINCT state FROM outbox") == [("delivered",)]


def test_a_stop_without_grace_keeps_the_rest_for_the_next_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(**SHORT, idempotent=True), ScriptedAgent(three_parts)
        call = After(asyncio.Event())
        platform.results.append(call)
        config = '[gateway]\nshutdown_grace = "0s"\n'
        async with gateway(tmp_path, platform, agent, config=config):
            await platform.say("hello")
            await call.begun.wait()
        assert platform.texts() == []
        async with gateway(tmp_path, platform, agent):
            assert [await platform.next_text() for _ in range(3)] == [
                "111111 ",
                "222222 ",
                "333333",
            ]
        assert len(agent.runs) == 1

    run(scenario(), speed=HASTY)


def test_rows_of_one_chat_are_claimed_one_after_the_other(tmp_path: Path) -> None:
    """The order is a matter of the database, not of who asks."""

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent) as running:
            chat = outbox.Chat("scripted.gone", "nobody")
            for number in range(3):
                message = Outbound(
                    id=f"o{number}",
                    created_at=0.0,
                    address=platform.address("nobody", account="gone"),
                    text=str(number),
                )
                row = outbox.NewRow(message, "key", None, 1e12)
                await store_of(running).write(partial(outbox.append, rows=[row], claim_first=False))
            claimed = [
                await store_of(running).write(lambda tx: outbox.claim(tx, chat, 0.0))
                for _ in range(4)
            ]
            assert [row and row.message.text for row in claimed] == ["0", "1", "2", None]

    run(scenario())
