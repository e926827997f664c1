"""What is asked, what is confirmed, and what happens when nobody answers."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from telegram.error import Conflict, InvalidToken, NetworkError

from hermes_core import AccountFailed, Address, NotReady, RateLimited
from hermes_telegram.client import Flood
from hermes_telegram.inbound import Event, Reader
from hermes_telegram.intake import Intake
from hermes_telegram.poller import Poller, Window, explain
from hermes_telegram.settings import Timing
from hermes_telegram.wire import Update, decode_update


async def unmoved(old: str, new: str) -> None:
    """No group moves here."""


class TelegramAndWindow(RuleBasedStateMachine):
    """A server that keeps what is not confirmed, and a window that must never confirm too much."""

    def __init__(self) -> None:
        super().__init__()
        self.window = Window()
        self.next_id = 100
        self.kept: list[int] = []
        self.running: set[int] = set()
        self.taken: set[int] = set()

    @rule(gap=st.integers(1, 3))
    def something_happens(self, gap: int) -> None:
        self.next_id += gap
        self.kept.append(self.next_id)

    @precondition(lambda self: not self.kept and not self.running)
    @rule(start=st.integers(1, 10_000))
    def ids_start_anew_after_an_idle_week(self, start: int) -> None:
        self.ask(lost=False)
        self.next_id = start
        self.taken.clear()  # the same number names another update now

    @rule(lost=st.booleans())
    def ask(self, lost: bool) -> None:
        """The question always arrives; its answer may be lost."""
        offset = self.window.offset
        if offset is not None:
            confirmed = {number for number in self.kept if number < offset}
            assert confirmed <= self.taken
            self.kept = [number for number in self.kept if number >= offset]
        if not lost:
            fresh = self.window.shown(offset, self.kept[:10])
            assert not fresh & self.running
            assert not fresh & self.taken
            self.running |= fresh

    @precondition(lambda self: self.running)
    @rule(data=st.data(), taken=st.booleans())
    def one_ends(self, data: st.DataObject, taken: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.running)))
        self.running.discard(number)
        if taken:
            self.taken.add(number)
            self.window.finished(number)
        else:
            self.window.refused(number)

    @invariant()
    def it_knows_what_is_under_way(self) -> None:
        assert self.window.busy == bool(self.running)


TestWindow = TelegramAndWindow.TestCase
TestWindow.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


class Server:
    """Answers questions with what is scripted, then never again."""

    def __init__(self, *answers: Sequence[Update] | Exception) -> None:
        self.answers = deque(answers)
        self.offsets: list[int | None] = []
        self.renewed = 0

    async def updates(self, offset: int | None, timeout: int) -> Sequence[Update]:
        self.offsets.append(offset)
        if not self.answers:
            await asyncio.get_running_loop().create_future()
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def renew_updates(self) -> None:
        self.renewed += 1


class World:
    """A poller whose pauses take no time but move the clock."""

    def __init__(self, server: Server) -> None:
        self.now = 0.0
        self.pauses: list[float] = []
        self.received: list[str] = []
        self.lost: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.refusals = 0
        self.server = server
        timing = Timing(sleep=self.sleep, hold=0.0, slack=5.0)
        reader = Reader(
            own_id=1,
            username="me",
            address=lambda chat, kind, thread: Address(platform="telegram", chat_id=chat),
        )
        intake = Intake(reader, self.receive, unmoved, timing)
        self.poller = Poller(server, intake, timing, self.lost.set_result, lambda: self.now)

    async def sleep(self, seconds: float) -> None:
        if seconds:
            self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    async def receive(self, event: Event) -> None:
        if self.refusals:
            self.refusals -= 1
            raise NotReady("not now")
        self.received.append(getattr(event, "text", ""))

    async def run(self) -> None:
        """Run until the server has nothing more to say, or the account is lost."""
        polling = asyncio.create_task(self.poller.run())
        for _ in range(2000):
            await asyncio.sleep(0)
        polling.cancel()
        await asyncio.wait({polling})


def said(number: int, text: str) -> Update:
    message = {
        "message_id": number,
        "chat": {"id": number, "type": "private"},
        "from": {"id": 7, "first_name": "A"},
        "text": text,
    }
    return decode_update(json.dumps({"update_id": number, "message": message}).encode())


def test_an_offset_is_sent_until_it_is_heard_and_then_no_more() -> None:
    async def main() -> None:
        server = Server(
            [said(10, "a"), said(11, "b")], NetworkError("down"), [], [said(3, "c")], []
        )
        world = World(server)
        await world.run()
        assert world.received == ["a", "b", "c"]
        assert server.offsets == [None, 12, 12, None, 4, None]

    asyncio.run(main())


@pytest.mark.case("TG-13")
def test_gaps_and_disorder_lose_nothing() -> None:
    async def main() -> None:
        first = [said(103, "third"), said(101, "first"), said(102, "second")]
        server = Server(first, [said(105, "fifth")], [])
        world = World(server)
        await world.run()
        assert sorted(world.received) == ["fifth", "first", "second", "third"]
        assert server.offsets == [None, 104, 106, None]

    asyncio.run(main())


def test_what_the_core_refuses_is_asked_for_again_after_growing_pauses() -> None:
    async def main() -> None:
        again = [said(10, "a")]
        server = Server(again, again, again, again, [])
        world = World(server)
        world.refusals = 3
        await world.run()
        assert world.received == ["a"]
        assert server.offsets == [None, 10, 10, 10, 11, None]
        assert world.pauses == [1.0, 2.0, 4.0]
        assert not world.lost.done()

    asyncio.run(main())


def test_flood_control_names_the_pause_and_is_no_loss() -> None:
    async def main() -> None:
        world = World(Server(Flood(60.0), [said(1, "a")]))
        await world.run()
        assert world.pauses == [60.0]
        assert world.received == ["a"]
        assert not world.lost.done()

    asyncio.run(main())


def test_an_account_that_must_be_silent_for_long_is_not_called_connected() -> None:
    async def main() -> None:
        world = World(Server(Flood(500.0)))
        await world.run()
        error = world.lost.result()
        assert isinstance(error, RateLimited)
        assert error.retry_after == 500.0
        assert world.pauses == []

    asyncio.run(main())


@pytest.mark.case("TG-06")
def test_a_conflict_that_ends_costs_nothing() -> None:
    async def main() -> None:
        world = World(Server(*[Conflict("two")] * 5, [said(1, "a")], []))
        await world.run()
        assert world.pauses == [1.0, 2.0, 4.0, 8.0, 16.0]
        assert world.received == ["a"]
        assert not world.lost.done()

    asyncio.run(main())


@pytest.mark.case("TG-06")
@pytest.mark.parametrize("error", [Conflict("two"), NetworkError("down"), TimeoutError()])
def test_silence_that_lasts_is_reported_and_the_pauses_are_capped(error: Exception) -> None:
    async def main() -> None:
        world = World(Server(*[error] * 100))
        await world.run()
        assert world.lost.done()
        assert world.pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
        if isinstance(error, Conflict):
            assert "another program" in str(world.lost.result())

    asyncio.run(main())


@pytest.mark.case("TG-06")
def test_a_conflict_says_which_of_the_two_it_is() -> None:
    webhook = "Conflict: can't use getUpdates method while webhook is active"
    assert "webhook" in str(explain(Conflict(webhook)))
    assert "webhook" not in str(explain(Conflict("Conflict: terminated by other getUpdates")))


def test_a_revoked_token_is_the_end() -> None:
    async def main() -> None:
        world = World(Server(InvalidToken("Unauthorized")))
        await world.run()
        assert isinstance(world.lost.result(), AccountFailed)
        assert world.server.offsets == [None]

    asyncio.run(main())


def test_a_dead_connection_is_replaced() -> None:
    async def main() -> None:
        world = World(Server(TimeoutError(), [said(1, "a")], []))
        await world.run()
        assert (world.server.renewed, world.received) == (1, ["a"])

    asyncio.run(main())


def test_a_reply_that_never_comes_is_noticed() -> None:
    async def main() -> None:
        server = Server()
        world = World(server)
        # poll 0 and slack: the only real time in these tests, and the one thing under test.
        timing = Timing(poll=0, slack=0.01, patience=-1.0, sleep=world.sleep)
        reader = Reader(own_id=1, username="", address=_nowhere)
        poller = Poller(
            server, Intake(reader, world.receive, unmoved, timing), timing, world.lost.set_result
        )
        await poller.run()
        assert "dead" in str(world.lost.result())

    asyncio.run(main())


def _nowhere(chat: str, kind: object, thread: str | None) -> Address:
    return Address(platform="telegram", chat_id=chat)
