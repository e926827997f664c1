"""The event of an outbox row: a function of the row, taken by the relay once."""

from __future__ import annotations

import asyncio
from collections import deque
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_buzz.connection import Answer
from hermes_buzz.cursors import FileCursors
from hermes_buzz.events import Draft, Event
from hermes_buzz.keys import LocalSigner
from hermes_buzz.outgoing import (
    REDATE_AFTER,
    Composer,
    MissingTarget,
    Publisher,
    anchors,
    dates,
)
from hermes_buzz.pacing import QUIET, Pacing, retry_after
from hermes_buzz.settings import BuzzSettings
from hermes_buzz.trouble import ConnectionDown
from hermes_core import (
    Address,
    Outbound,
    OutcomeUnknown,
    RateLimited,
    Secret,
    SendError,
    SendFailed,
    SendRejected,
    Unreachable,
)

KEY = "5".zfill(64)
SIGNER = LocalSigner(KEY)
A, B = "a" * 64, "b" * 64
NOW = 1_700_000_000.5


def settings(**more: Any) -> BuzzSettings:
    return BuzzSettings(relay_url="wss://r.example", private_key=Secret(KEY), **more)


def row(**more: Any) -> Outbound:
    address = Address(platform="buzz", chat_id="c", thread_id=A, kind="thread")
    values = {"id": "o_1", "created_at": NOW, "address": address, "text": "hello", **more}
    return Outbound(**values)


def composed(tmp_path: Path, message: Outbound, **names: str) -> Draft:
    composer = Composer(settings(), None, FileCursors(tmp_path / "c.json"), SIGNER.public_key)
    mentions = composer.mentions(message, lambda: names)
    return composer.chat(message, int(NOW), (), mentions, ())


def test_the_same_row_is_the_same_event_and_another_row_is_another(tmp_path: Path) -> None:
    first = composed(tmp_path, row()).signed(SIGNER)
    assert composed(tmp_path, row(repeated=True, answers=("x",))).signed(SIGNER).id == first.id
    assert composed(tmp_path, row(id="o_2")).signed(SIGNER).id != first.id


def test_whom_a_row_mentions_does_not_change_any_more(tmp_path: Path) -> None:
    store = FileCursors(tmp_path / "c.json")
    composer = Composer(settings(), None, store, SIGNER.public_key)
    message = row(text="@ann @bob")
    assert composer.mentions(message, lambda: {"ann": A}) == [A]
    assert composer.mentions(message, lambda: {"ann": B, "bob": B}) == [A]


def test_nobody_mentions_themselves_and_a_preview_nobody(tmp_path: Path) -> None:
    composer = Composer(settings(), None, FileCursors(tmp_path / "c.json"), SIGNER.public_key)
    assert composer.mentions(row(text="@me"), lambda: {"me": SIGNER.public_key}) == []
    assert composer.mentions(row(text="@ann", kind="preview"), lambda: {"ann": A}) == []


@pytest.mark.parametrize(
    ("mode", "part", "reply_to", "tags"),
    [
        ("first", 1, B, [("e", A, "", "root"), ("e", B, "", "reply")]),
        ("first", 2, B, [("e", A, "", "reply")]),
        ("all", 2, B, [("e", A, "", "root"), ("e", B, "", "reply")]),
        ("first", 1, A, [("e", A, "", "reply")]),
        ("first", 1, None, [("e", A, "", "reply")]),
        ("off", 1, B, []),
    ],
)
@pytest.mark.case("BZ-06")
def test_what_a_part_refers_to(
    mode: str, part: int, reply_to: str | None, tags: list[tuple[str, ...]]
) -> None:
    message = row(part=part, parts=2, reply_to=reply_to)
    found = anchors(message, A, settings(reply_to_mode=mode))
    assert found[0] == tags
    assert found[-1] == []
    assert anchors(message, "", settings(reply_to_mode=mode)) == [[]]
    assert anchors(message, A, settings(reply_to_mode=mode, reply_in_thread=False)) == [[]]


def test_an_answer_to_what_is_gone_stays_in_its_thread() -> None:
    found = anchors(row(reply_to=B), A, settings())
    assert found == [[("e", A, "", "root"), ("e", B, "", "reply")], [("e", A, "", "reply")], []]


@given(st.floats(0, 86_400 * 2))
def test_dates_are_few_and_never_out_of_the_relay_s_tolerance(age: float) -> None:
    found = dates(row(), NOW + age)
    assert abs(found[-1] - (NOW + age)) <= REDATE_AFTER + 1
    assert len(found) <= 200
    assert found == sorted(set(found))


def test_a_row_keeps_its_dates_as_it_grows_older() -> None:
    assert dates(row(), NOW - 30) == [int(NOW)]
    young, old = dates(row(), NOW + 700), dates(row(), NOW + 1900)
    assert old[: len(young)] == young


class ScriptedRelay:
    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = deque(answers)
        self.published: list[Event] = []
        self.authentications = 0

    async def publish(self, event: Event, limit: float) -> Answer:
        self.published.append(event)
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def authenticated(self, limit: float) -> None:
        self.authentications += 1

    async def fetch(self, query: dict[str, object]) -> list[Event]:
        return [event for event in self.published if event.id in str(query["ids"])]


def publish(relay: ScriptedRelay, pacing: Pacing | None = None) -> Event:
    async def test() -> Event:
        publisher = Publisher(relay, SIGNER, pacing or Pacing(), "relay", None)
        return await publisher.publish(Draft(kind=9, created_at=int(NOW)))

    return asyncio.run(test())


@pytest.mark.parametrize(
    "passing",
    [
        [Answer(None, "rate-limited: quota exceeded; retry in 0s")] * 3,
        [Answer(None, "auth-required: not authenticated")],
        [TimeoutError()],
        [Answer(False, "invalid: target event not found")],
    ],
)
def test_what_passes_is_waited_for_with_the_same_event(passing: list[Any]) -> None:
    relay = ScriptedRelay(*passing, Answer(True))
    event = publish(relay)
    assert {sent.id for sent in relay.published} == {event.id}
    assert len(relay.published) == len(passing) + 1


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([TimeoutError(), TimeoutError()], OutcomeUnknown),
        ([ConnectionDown("gone")], OutcomeUnknown),
        ([Answer(None, "rate-limited: retry in 0s")] * 4, RateLimited),
        ([Answer(False, "rate-limited: retry in 3s")], RateLimited),
        ([Answer(False, "error: internal")], SendFailed),
        ([Answer(False, "invalid: event timestamp too far from server time")], SendFailed),
        ([Answer(False, "restricted: not a channel member")], Unreachable),
        ([Answer(False, "invalid: restricted: not a channel member")], Unreachable),
        ([Answer(False, "blocked: banned")], SendRejected),
        ([Answer(False, "invalid: content too long")], SendRejected),
        ([Answer(False, "invalid: whatever")], SendRejected),
        ([Answer(False, "")], SendRejected),
    ],
)
def test_what_a_refusal_means(answers: list[Any], error: type[SendError]) -> None:
    with pytest.raises(error):
        publish(ScriptedRelay(*answers))


def test_a_target_that_does_not_come_is_given_up() -> None:
    with pytest.raises(MissingTarget):
        publish(ScriptedRelay(*[Answer(False, "invalid: parent not found")] * 4))


def test_a_long_pause_is_left_to_delivery() -> None:
    async def test() -> None:
        pacing = Pacing()
        pacing.close(300)
        publisher = Publisher(ScriptedRelay(), SIGNER, pacing, "relay", None)
        with pytest.raises(RateLimited) as limited:
            await publisher.publish(Draft(kind=9, created_at=int(NOW)))
        assert 290 < limited.value.retry_after <= 300
        assert limited.value.scope == "account"

    asyncio.run(test())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("rate-limited: quota exceeded; retry in 7s", 7),
        ("rate-limited: quota exceeded; retry in 0.5 s", 0.5),
        ("rate-limited: slow down", 2),
        ("retry in 99999999999s", 3600),
    ],
)
def test_how_long_to_wait(text: str, seconds: float) -> None:
    assert retry_after(text) == seconds


def test_frames_are_paced() -> None:
    """With 100 a second and 3 at once, 13 frames take at least a tenth of a second."""

    async def test() -> float:
        pacing = Pacing(rate=100, burst=3)
        loop = asyncio.get_running_loop()
        started = loop.time()
        async with asyncio.TaskGroup() as group:
            for _ in range(13):
                group.create_task(pacing.turn())
        assert not pacing.try_event_turn()
        return loop.time() - started

    assert asyncio.run(test()) >= 0.099


def test_signs_of_life_leave_room_for_messages() -> None:
    """The relay counts every EVENT frame of a minute, typing and presence too."""

    async def test() -> int:
        pacing = Pacing(rate=10_000, burst=10_000)
        for _ in range(QUIET - 1):
            await pacing.event_turn()
        signs = sum(pacing.try_event_turn() for _ in range(10))
        await pacing.event_turn()
        return signs

    assert asyncio.run(test()) == 1
