from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from hermes_console.client import Client, Delayed, Happening, Lost
from hermes_console.protocol import Attached, Write
from hermes_console.question import Reply
from hermes_core import HermesError


class Gateway:
    """The other end of every connection that the client makes. `None` in `frames` breaks it."""

    def __init__(self) -> None:
        self.up = True
        self.attempts = 0
        self.closed = 0
        self.refusal: HermesError | None = None
        self.frames: asyncio.Queue[Mapping[str, object] | None] = asyncio.Queue()
        self.heard: asyncio.Queue[Mapping[str, object]] = asyncio.Queue()
        self.naps: asyncio.Queue[asyncio.Event] = asyncio.Queue()
        self.told: list[tuple[Happening, bool]] = []

    async def attach(self) -> Gateway:
        self.attempts += 1
        if not self.up:
            raise HermesError("no gateway is running")
        self.tell("attached", chat="main")
        return self

    async def send(self, frame: Mapping[str, object]) -> None:
        if frame.get("text") == "too long":
            raise HermesError("a frame is longer than allowed")
        if not self.up:
            raise ConnectionResetError
        self.heard.put_nowait(frame)

    async def receive(self) -> Mapping[str, object] | None:
        if self.refusal is not None:
            raise self.refusal
        return await self.frames.get()

    async def close(self) -> None:
        self.closed += 1

    def tell(self, type_: str, **fields: object) -> None:
        self.frames.put_nowait({"type": type_, **fields})

    def answer(self, id_: object, text: str, kind: str = "final", **fields: object) -> None:
        self.tell("message", id=f"o-{text}", text=text, kind=kind, answers=[id_], **fields)

    async def sleep(self, seconds: float) -> None:
        """Time passes when the test wakes the sleeper."""
        nap = asyncio.Event()
        self.naps.put_nowait(nap)
        await nap.wait()

    async def wake(self) -> None:
        (await self.naps.get()).set()


@asynccontextmanager
async def running(
    gateway: Gateway, patience: float | None = None
) -> AsyncIterator[tuple[Client, asyncio.Task[None]]]:
    def tell(happening: Happening, own: bool) -> None:
        gateway.told.append((happening, own))

    client = Client(gateway.attach, tell, patience=patience, sleep=gateway.sleep)
    task = asyncio.create_task(client.run())
    yield client, task
    task.cancel()
    with suppress(asyncio.CancelledError, HermesError):
        await task


def start(work: Coroutine[Any, Any, Reply]) -> asyncio.Task[Reply]:
    return asyncio.create_task(work)


def test_a_reply_is_complete_with_its_last_part() -> None:
    async def scenario() -> None:
        gateway = Gateway()
        async with running(gateway) as (client, _):
            asking = start(client.ask("hello"))
            said = await gateway.heard.get()
            assert said["text"] == "hello"
            gateway.tell("received", id=said["id"], outcome="accepted")
            gateway.tell("message", id="p", text="on", kind="preview")
            gateway.answer("somebody-else", "not for us")
            gateway.answer(said["id"], "one ", part=1, parts=2)
            gateway.answer(said["id"], "two", part=2, parts=2)
            assert await asking == Reply("answered", "one two")
        texts = [(t.text, own) for t, own in gateway.told if isinstance(t, Write)]
        assert texts == [("on", False), ("not for us", False), ("one ", True), ("two", True)]

    asyncio.run(scenario())


def test_one_answer_may_answer_several_messages() -> None:
    async def scenario() -> None:
        gateway = Gateway()
        async with running(gateway) as (client, _):
            both = [start(client.ask("a")), start(client.ask("b"))]
            ids = [(await gateway.heard.get())["id"] for _ in both]
            gateway.tell("message", id="o", text="a and b", kind="final", answers=ids)
            assert [await asking for asking in both] == [Reply("answered", "a and b")] * 2

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("outcome", "end"), [("denied", "denied: nobody"), ("refused", "not taken: nobody")]
)
def test_without_a_turn_there_is_a_reason(outcome: str, end: str) -> None:
    async def scenario() -> None:
        gateway = Gateway()
        async with running(gateway) as (client, _):
            asking = start(client.ask("hello"))
            said = await gateway.heard.get()
            gateway.tell("received", id=said["id"], outcome=outcome, reason="nobody")
            assert await asking == Reply("denied" if outcome == "denied" else "refused", end)

    asyncio.run(scenario())


def test_a_failed_turn_and_a_cancelled_turn_are_ends() -> None:
    async def scenario() -> None:
        gateway = Gateway()
        async with running(gateway) as (client, _):
            failing, cancelled = start(client.ask("a")), start(client.ask("b"))
            first, second = await gateway.heard.get(), await gateway.heard.get()
            gateway.answer(first["id"], "it broke", "error")
            gateway.tell("cancelled", answers=[second["id"]])
            assert await failing == Reply("failed", "it broke")
            assert (await cancelled).end == "cancelled"

    asyncio.run(scenario())


@pytest.mark.parametrize("notice_first", [True, False])
def test_a_command_is_answered_by_a_notice(notice_first: bool) -> None:
    async def scenario() -> None:
        gateway = Gateway()
        async with running(gateway) as (client, _):
            asking = start(client.ask("/status"))
            id_ = (await gateway.heard.get())["id"]
            if notice_first:
                gateway.answer(id_, "all is well", "notice")
            gateway.tell("received", id=id_, outcome="handled")
            if not notice_first:
                gateway.answer(id_, "all is well", "notice")
            assert await asking == Reply("answered", "all is well")

    asyncio.run(scenario())


def test_a_notice_on_the_way_does_not_end_a_message() -> None:
    async def scenario() -> None:
        gateway = Gateway()
        async with running(gateway) as (client, _):
            asking = start(client.ask("hello"))
            id_ = (await gateway.heard.get())["id"]
            gateway.tell("received", id=id_, outcome="accepted")
            gateway.answer(id_, "two are waiting before you", "notice")
            gateway.answer(id_, "here you are")
            assert await asking == Reply("answered", "here you are")

    asyncio.run(scenario())


def test_what_is_not_taken_in_is_offered_again_under_the_same_id() -> None:
    async def scenario() -> None:
        gateway = Gateway()
        async with running(gateway) as (client, _):
            asking = start(client.ask("hello"))
            first = await gateway.heard.get()
            gateway.tell("received", id=first["id"], outcome="later", reason="stopping")
            await gateway.wake()
            assert await gateway.heard.get() == first
            gateway.answer(first["id"], "hello")
            assert (await asking).text == "hello"

    asyncio.run(scenario())


def test_a_person_is_told_once_why_nothing_is_taken_in_and_a_pipe_gives_up() -> None:
    async def scenario() -> None:
        gateway = Gateway()
        async with running(gateway, patience=2) as (client, _):
            asking = start(client.ask("hello"))
            for offered in range(5):
                id_ = (await gateway.heard.get())["id"]
                gateway.tell("received", id=id_, outcome="later", reason="a plugin is missing")
                if offered < 4:
                    await gateway.wake()
            reply = await asking
            assert reply == Reply("unsent", "not taken in for 2 seconds: a plugin is missing")
        assert [told for told, _ in gateway.told[1:]] == [Delayed("a plugin is missing")]

    asyncio.run(scenario())


def test_a_lost_gateway_is_reached_again_and_the_answer_arrives() -> None:
    async def scenario() -> None:
        gateway = Gateway()
        async with running(gateway) as (client, _):
            asking = start(client.ask("hello"))
            first = await gateway.heard.get()
            gateway.tell("received", id=first["id"], outcome="accepted")
            gateway.up = False
            gateway.frames.put_nowait(None)
            await gateway.wake()
            nap = await gateway.naps.get()
            gateway.up = True
            nap.set()
            assert await gateway.heard.get() == first
            gateway.tell("received", id=first["id"], outcome="duplicate")
            gateway.answer(first["id"], "hello")
            assert (await asking).text == "hello"
            assert gateway.closed == 1
        kinds = [type(happening) for happening, _ in gateway.told]
        assert kinds == [Attached, Lost, Attached, Write]

    asyncio.run(scenario())


def test_patience_has_an_end() -> None:
    async def scenario() -> None:
        gateway = Gateway()
        gateway.up = False
        async with running(gateway, patience=1.0) as (_, task):
            await gateway.wake()
            await gateway.wake()
            with pytest.raises(HermesError, match="could not be reached for 1 seconds"):
                await task
        assert gateway.attempts == 3

    asyncio.run(scenario())


def test_a_gateway_that_refuses_this_client_ends_it() -> None:
    async def scenario() -> None:
        gateway = Gateway()
        gateway.refusal = HermesError("this gateway does not serve the profile 'x'")
        async with running(gateway) as (_, task):
            with pytest.raises(HermesError, match="does not serve"):
                await task
        assert gateway.closed == 1

    asyncio.run(scenario())


def test_silence_is_an_end() -> None:
    async def scenario() -> None:
        gateway = Gateway()
        async with running(gateway) as (client, _):
            asking = start(client.ask("hello"))
            said = await gateway.heard.get()
            gateway.tell("silent", answers=[said["id"]])
            assert (await asking).end == "silent"

    asyncio.run(scenario())


def test_cancel_stops_the_turn_and_withdraws_what_was_never_sent() -> None:
    async def scenario() -> None:
        gateway = Gateway()
        async with running(gateway) as (client, _):
            asking = start(client.ask("hello"))
            said = await gateway.heard.get()
            await client.cancel()
            assert (await gateway.heard.get())["type"] == "cancel"
            assert not asking.done()
            gateway.tell("cancelled", answers=[said["id"]])
            assert (await asking).end == "cancelled"
        gateway.up = False
        async with running(gateway) as (client, _):
            asking = start(client.ask("hello"))
            await gateway.naps.get()
            await client.cancel()
            assert await asking == Reply("unsent", "not sent")

    asyncio.run(scenario())


def test_a_message_that_fits_into_no_frame_is_an_end() -> None:
    async def scenario() -> None:
        gateway = Gateway()
        async with running(gateway) as (client, _):
            first = start(client.ask("hello"))
            await gateway.heard.get()
            reply = await client.ask("too long")
            assert reply == Reply("unsent", "a frame is longer than allowed")
            first.cancel()

    asyncio.run(scenario())
