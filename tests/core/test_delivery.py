"""Every answer arrives, whole and once, or it is said loudly that it did not."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core import (
    AgentEvent,
    ChatKind,
    DeliveryInfo,
    Final,
    Outbound,
    OutcomeUnknown,
    ProfileScope,
    RateLimited,
    Receipt,
    SendFailed,
    SendRejected,
    Text,
    Turn,
    Unreachable,
    hookimpl,
)
from hermes_core.gateway import Gateway
from hermes_core.store import outbox
from hermes_core.testing import (
    OK,
    After,
    Hang,
    Result,
    ScriptedAgent,
    ScriptedPlatform,
    StoreThenRaise,
    WallClock,
    gateway,
)
from tests.core.support import HASTY, no_room_for, room_again, rows, run, store_of, until

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


def three_parts(turn: Turn) -> AsyncIterator[AgentEvent]:
    return saying("111111 222222 333333")


async def saying(*pieces: str) -> AsyncIterator[AgentEvent]:
    for piece in pieces:
        yield Text(piece)


SHORT: dict[str, Any] = {"max_length": 7 + len("[repeated] [delayed] ")}
"""A platform on which `three_parts` are three messages: room for the marks is kept."""


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


class Unspeakable(Exception):
    def __str__(self) -> NoReturn:
        raise RuntimeError("even this fails")


UNKNOWN: list[Result] = [
    OutcomeUnknown("scripted"),
    StoreThenRaise(OutcomeUnknown("scripted")),
    StoreThenRaise(ConnectionError("scripted")),
    StoreThenRaise(Unspeakable()),
    Hang(),
]


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


# ── while it is written ──────────────────────────────────────────────────────────────────────────


@pytest.mark.case("DL-13")
@pytest.mark.parametrize("limited", [False, True], ids=["in time", "while limited"])
def test_a_streamed_answer_ends_complete(tmp_path: Path, limited: bool) -> None:
    pieces = [f"piece {number}\n" for number in range(40)]

    async def pausing(turn: Turn) -> AsyncIterator[AgentEvent]:
        for number, piece in enumerate(pieces):
            if number < 37:
                await asyncio.sleep(0.2)
            yield Text(piece)

    async def scenario() -> None:
        platform = ScriptedPlatform(edit=True, edit_interval=1.0)
        if limited:
            platform.results.extend([OK, RateLimited(2), OK, RateLimited(3)])
        async with gateway(tmp_path, platform, ScriptedAgent(pausing)):
            await platform.say("go")
            assert await platform.next_text() == "".join(pieces)
        assert platform.texts() == ["".join(pieces)]
        assert len({sent.message_id for sent in platform.sent}) == 1
        shown = [sent.message.text for sent in platform.sent]
        assert all("".join(pieces).startswith(text) for text in shown)
        assert 3 < len(shown) < 20

    run(scenario(), speed=HASTY)


@pytest.mark.case("DL-06")
def test_what_a_pause_kept_from_being_shown_is_shown_after_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async def speak(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text("one ")
            await until(lambda: len(platform.sent) == 1)
            platform.results.append(RateLimited(2))
            yield Text("two ")
            await until(lambda: platform.sent[-1].message.text.strip() == "one two")
            yield Text("three")

        platform = ScriptedPlatform(edit=True, edit_interval=1.0)
        async with gateway(tmp_path, platform, ScriptedAgent(speak)):
            await platform.say("go")
            assert await platform.next_text() == "one two three"
        assert [sent.message.kind for sent in platform.sent[:2]] == ["preview", "preview"]

    run(scenario(), speed=HASTY)


@pytest.mark.parametrize("kind", ["dm", "group"])
def test_a_preview_is_edited_less_often_where_many_read_it(tmp_path: Path, kind: ChatKind) -> None:
    async def speak(turn: Turn) -> AsyncIterator[AgentEvent]:
        for number in range(5):
            await asyncio.sleep(3)
            yield Text(f"{number} ")
        await asyncio.sleep(3)

    async def scenario() -> None:
        platform = ScriptedPlatform(edit=True, edit_interval=1.0, group_edit_interval=3600.0)
        async with gateway(tmp_path, platform, ScriptedAgent(speak)):
            await platform.say("go", kind=kind)
            assert await platform.next_text() == "0 1 2 3 4 "
        edits = [sent for sent in platform.sent if sent.call == "edit"]
        assert (len(edits) == 1) is (kind == "group")  # the final text

    run(scenario(), speed=HASTY)


def test_a_streamed_answer_of_many_parts_continues_its_preview(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(**SHORT, edit=True), ScriptedAgent(three_parts)
        async with gateway(tmp_path, platform, agent):
            await platform.say("go")
            await until(lambda: len(platform.texts()) == 3)
        assert "".join(platform.texts()) == "111111 222222 333333"
        assert len({sent.message_id for sent in platform.sent}) == 3

    run(scenario())


def test_a_preview_costs_no_more_when_the_answer_grows(tmp_path: Path) -> None:
    measured = 0

    def length(text: str) -> int:
        nonlocal measured
        measured += len(text)
        return len(text)

    def has_grown(before: int) -> bool:
        return len(platform.sent) > before

    async def grows(turn: Turn) -> AsyncIterator[AgentEvent]:
        for number in range(20):
            shown = len(platform.sent)
            yield Final(f"{number} " + "word " * 20_000)
            await until(partial(has_grown, shown))
        yield Final("short")

    async def scenario() -> None:
        async with gateway(tmp_path, platform, ScriptedAgent(grows)):
            await platform.say("go")
            assert await platform.next_text() == "short"

    platform = ScriptedPlatform(edit=True, max_length=200, length=length)
    run(scenario())
    assert len(platform.sent) >= 21
    assert measured < 21 * 20 * 200


def test_what_an_agent_takes_back_is_not_on_the_screen_at_the_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        async def changes(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text("a first try")
            await until(lambda: bool(platform.sent))
            yield Final("the answer")

        platform = ScriptedPlatform(edit=True)
        async with gateway(tmp_path, platform, ScriptedAgent(changes)):
            await platform.say("go")
            await until(lambda: platform.texts() == ["the answer"])
        assert len({sent.message_id for sent in platform.sent}) == 1

    run(scenario())


@pytest.mark.parametrize(
    "result",
    [Hang(), SendFailed("scripted"), ValueError("scripted"), SendRejected("scripted")],
    ids=["hangs", "fails", "breaks", "is refused"],
)
def test_a_preview_that_fails_costs_nothing_but_itself(tmp_path: Path, result: Result) -> None:
    async def scenario() -> None:
        async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text("one ")
            await until(lambda: bool(platform.attempts))
            yield Text("two")

        platform = ScriptedPlatform(edit=True)
        platform.results.append(result)
        async with gateway(tmp_path, platform, ScriptedAgent(slowly)):
            await platform.say("go")
            assert await platform.next_text() == "one two"
        assert platform.texts() == ["one two"]

    run(scenario(), speed=HASTY)


@pytest.mark.parametrize("result", UNKNOWN, ids=["lost", "arrived", "broke", "unspeakable", "hung"])
@pytest.mark.parametrize("reconciles", [True, False], ids=["can tell", "cannot tell"])
def test_a_preview_that_may_have_arrived_is_completed_and_never_shown_twice(
    tmp_path: Path, result: Result, reconciles: bool
) -> None:
    async def scenario() -> None:
        async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text("one ")
            await until(lambda: bool(platform.attempts))
            yield Text("two ")
            await asyncio.sleep(5)  # of a hasty clock: time for more previews
            yield Text("three")

        platform = ScriptedPlatform(edit=True, edit_interval=1, reconciles=reconciles)
        platform.results.append(result)
        async with gateway(tmp_path, platform, ScriptedAgent(slowly)):
            await platform.say("go")
            await until(lambda: "one two three" in platform.texts())
        shown = {sent.message_id: sent.message.text for sent in platform.sent}
        arrived = isinstance(result, StoreThenRaise)
        stray = ["one "] if arrived and not reconciles else []
        assert list(shown.values()) == [*stray, "one two three"]

    run(scenario(), speed=HASTY)


@pytest.mark.parametrize("error", [RateLimited(1.0), Unreachable("scripted")])
@pytest.mark.parametrize("first", ["preview", "answer"])
def test_a_platform_that_cannot_tell_just_now_is_asked_again(
    tmp_path: Path, error: Exception, first: str
) -> None:
    """Whether what was sent first arrived: the beginning of an answer, or all of it."""
    errors = deque([error])

    class Busy(ScriptedPlatform):
        async def found(self, message: Outbound) -> Receipt | None:
            if errors:
                raise errors.popleft()
            return await super().found(message)

    async def scenario() -> None:
        async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text("one ")
            if first == "preview":
                await until(lambda: bool(platform.sent))
            yield Text("two")

        platform = Busy(edit=first == "preview", edit_interval=100, reconciles=True)
        platform.results.append(StoreThenRaise(OutcomeUnknown("scripted")))
        config = '[platforms.scripted]\non_unknown = "drop"\n'
        async with gateway(tmp_path, platform, ScriptedAgent(slowly), config=config) as running:
            await platform.say("go")
            await until(lambda: not errors)
            await until(lambda: running.profiles["default"].delivery.idle(platform.address()))
            platform.lose_connection()
            await platform.say("/whoami")
            await until(lambda: any("admitted" in text for text in platform.texts()))
        shown = {sent.message_id: sent.message.text for sent in platform.sent}
        assert list(shown.values())[:-1] == ["one two"]

    run(scenario(), speed=HASTY)
    states = rows(tmp_path, "SELECT state FROM outbox ORDER BY sequence")
    assert states == [("delivered",), ("delivered",)]


@pytest.mark.parametrize("token", ["[SILENT]", "NO_REPLY", " [SILENT]\n"])
def test_nothing_is_shown_of_an_answer_that_chooses_silence(tmp_path: Path, token: str) -> None:
    async def silent(turn: Turn) -> AsyncIterator[AgentEvent]:
        if turn.messages[0].text == "again":
            yield Text("[SIL")
            yield Text("LY] no")
        else:
            for character in token:
                yield Text(character)
                await asyncio.sleep(1)  # of a hasty clock: time for a preview

    async def scenario() -> None:
        platform = ScriptedPlatform(edit=True)
        async with gateway(tmp_path, platform, ScriptedAgent(silent)) as running:
            await platform.say("go")
            await until(lambda: running.profiles["default"].status()["turns"] == {"silent": 1})
            assert platform.sent == []
            await platform.say("again")
            assert await platform.next_text() == "[SILLY] no"

    run(scenario(), speed=HASTY)


def test_where_there_are_drafts_an_answer_is_drafted_and_sent_once(tmp_path: Path) -> None:
    async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text("one ")
        await until(lambda: platform.drafted == ["one "])
        await asyncio.sleep(45)  # of a hasty clock: a draft is shown again before it goes
        assert set(platform.drafted) == {"one "}
        assert len(platform.drafted) >= 3
        yield Text("two")
        await until(lambda: "one two" in platform.drafted)

    async def scenario() -> None:
        async with gateway(tmp_path, platform, ScriptedAgent(slowly)):
            await platform.say("go")
            assert await platform.next_text() == "one two"
        assert [(sent.call, sent.message.text) for sent in platform.sent] == [("send", "one two")]

    platform = ScriptedPlatform(edit=True, drafts=["dm"])
    run(scenario(), speed=HASTY)


@pytest.mark.parametrize("error", [SendRejected("no drafts here"), ValueError("scripted"), None])
def test_where_drafts_fail_once_answers_are_shown_by_edits(
    tmp_path: Path, error: Exception | None
) -> None:
    async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text("one ")
        await until(lambda: bool(platform.sent))
        yield Text("two")

    async def scenario() -> None:
        async with gateway(tmp_path, platform, ScriptedAgent(slowly)):
            await platform.say("go", kind="dm" if error else "group")
            await until(lambda: platform.texts() == ["one two"])
        assert platform.drafted == []
        assert platform.sent[0].message.text == "one "
        assert len({sent.message_id for sent in platform.sent}) == 1

    platform = ScriptedPlatform(edit=True, drafts=["dm"])
    platform.draft_results.extend([error] if error else [])
    run(scenario(), speed=HASTY)


def test_a_draft_that_is_limited_is_shown_later(tmp_path: Path) -> None:
    async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text("one ")
        await until(lambda: not platform.draft_results)
        yield Text("two ")
        await until(lambda: bool(platform.drafted))
        yield Text("three")

    async def scenario() -> None:
        async with gateway(tmp_path, platform, ScriptedAgent(slowly)):
            await platform.say("go")
            assert await platform.next_text() == "one two three"
        assert len(platform.sent) == 1

    platform = ScriptedPlatform(edit=True, drafts=["dm"])
    platform.draft_results.append(RateLimited(5))
    run(scenario(), speed=HASTY)


def test_the_log_says_once_a_turn_why_no_preview_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hermes_core.previews")

    async def scenario() -> None:
        async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
            for number in range(1, 4):
                yield Text(f"{number} ")
                await until(partial(attempted, number))

        def attempted(count: int) -> bool:
            return len(platform.attempts) >= count

        platform = ScriptedPlatform(edit=True, edit_interval=1)
        platform.results.extend([SendFailed("nobody is there")] * 3)
        async with gateway(tmp_path, platform, ScriptedAgent(slowly)):
            await platform.say("go")
            assert await platform.next_text() == "1 2 3 "
        assert len(caplog.records) == 1

    run(scenario(), speed=HASTY)


def test_a_preview_that_can_no_longer_be_edited_is_followed_by_a_message(tmp_path: Path) -> None:
    async def scenario() -> None:
        async def slowly(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text("one ")
            await until(lambda: bool(platform.sent))
            platform.results.append(SendRejected("message to edit not found"))
            yield Text("two")

        platform = ScriptedPlatform(edit=True, edit_interval=60)
        async with gateway(tmp_path, platform, ScriptedAgent(slowly)):
            await platform.say("go")
            await until(lambda: "one two" in platform.texts())
        assert platform.texts() == ["one two"]

    run(scenario(), speed=HASTY)
