from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, cast

import pytest

import hermes_console
from hermes_console import protocol
from hermes_console.adapter import ConsoleAdapter, ConsoleSettings
from hermes_core import (
    Accepted,
    Address,
    ChatKind,
    Denied,
    Duplicate,
    Handled,
    HermesError,
    Inbound,
    Message,
    NotReady,
    Outbound,
    OutboundKind,
    ProfileScope,
    Received,
    Refused,
    Sender,
    TurnEnd,
    TurnInfo,
    Unreachable,
)


class FakeContext:
    """Takes in what the adapter receives; `answer` is what it says to the next event."""

    platform = "console"
    account = "default"

    def __init__(self, profile: str = "u1") -> None:
        self.scope = cast(ProfileScope, SimpleNamespace(uuid=profile, state_dir=Path("/nowhere")))
        self.events: list[Inbound] = []
        self.reached: list[str] = []
        self.answer: Received | Exception = Accepted(1)

    def address(
        self, chat_id: str, *, kind: ChatKind = "dm", thread_id: str | None = None
    ) -> Address:
        return Address(platform="console", chat_id=chat_id, kind=kind, thread_id=thread_id)

    async def receive(self, inbound: Inbound) -> Received:
        self.events.append(inbound)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def reachable(self, chat_id: str) -> None:
        self.reached.append(chat_id)

    async def migrated(self, old_chat_id: str, new_chat_id: str) -> None:
        raise AssertionError((old_chat_id, new_chat_id))

    def lost(self, error: Exception) -> None:
        raise AssertionError(error)


class FakeChannel:
    """A client: what it says is put into `said`, what it is told is got from `told`."""

    def __init__(self, chat: object = "main") -> None:
        self.peer_uid = os.getuid()
        self.parameters: Mapping[str, object] = {"chat": chat}
        self.said: asyncio.Queue[dict[str, object] | None] = asyncio.Queue()
        self.told: asyncio.Queue[Mapping[str, object]] = asyncio.Queue()
        self.gone = False
        self.reads = asyncio.Event()
        self.reads.set()

    async def send(self, frame: Mapping[str, object]) -> None:
        await self.reads.wait()
        if self.gone:
            raise ConnectionResetError
        self.told.put_nowait(frame)

    async def receive(self) -> dict[str, object] | None:
        return await self.said.get()

    async def say(self, id_: str, text: str) -> Mapping[str, object]:
        """Say something and return what was told next."""
        self.said.put_nowait({"type": "message", "id": id_, "text": text})
        return await self.told.get()


@asynccontextmanager
async def attached(
    adapter: ConsoleAdapter, *channels: FakeChannel
) -> AsyncIterator[list[FakeChannel]]:
    """The adapter with these clients attached; at the end they leave."""
    await adapter.connect()
    async with asyncio.TaskGroup() as tasks:
        for channel in channels:
            tasks.create_task(adapter.attach(channel))
            assert (await channel.told.get())["type"] == "attached"
        yield list(channels)
        for channel in channels:
            channel.said.put_nowait(None)
    await adapter.disconnect()


def console(context: FakeContext | None = None) -> ConsoleAdapter:
    return ConsoleAdapter(ConsoleSettings(), context or FakeContext())


def outbound(
    id_: str, text: str, kind: OutboundKind = "final", answers: tuple[str, ...] = ()
) -> Outbound:
    address = Address(platform="console", chat_id="main")
    return Outbound(id=id_, created_at=0.0, address=address, text=text, kind=kind, answers=answers)


def test_a_message_of_a_client_becomes_an_event_of_its_user() -> None:
    async def scenario() -> None:
        context = FakeContext()
        async with attached(console(context), FakeChannel("work")) as [channel]:
            told = await channel.say("m1", "hello")
            assert told == {"type": "received", "id": "m1", "outcome": "accepted"}
        (event,) = context.events
        assert isinstance(event, Message)
        assert (event.event_id, event.text, event.mentions_me) == ("m1", "hello", True)
        assert event.address == Address(platform="console", chat_id="work")
        assert event.sender.id == str(os.getuid())
        assert context.reached == ["work"]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (Duplicate(1), "duplicate", ""),
        (Denied("nobody granted"), "denied", "nobody granted"),
        (Refused("1000 are waiting"), "refused", "1000 are waiting"),
        (Handled(3, "status"), "handled", ""),
        (NotReady("stopping"), "later", "stopping"),
    ],
)
def test_the_client_is_told_the_fate_of_its_message(
    answer: Received | Exception, outcome: str, reason: str
) -> None:
    async def scenario() -> None:
        context = FakeContext()
        context.answer = answer
        async with attached(console(context), FakeChannel()) as [channel]:
            told = await channel.say("m1", "hello")
            assert (told["outcome"], told.get("reason", "")) == (outcome, reason)

    asyncio.run(scenario())


def test_cancel_is_the_command_stop() -> None:
    async def scenario() -> None:
        context = FakeContext()
        context.answer = Handled(1, "stop")
        async with attached(console(context), FakeChannel()) as [channel]:
            channel.said.put_nowait({"type": "cancel", "id": "c1"})
            assert (await channel.told.get())["outcome"] == "handled"
        (event,) = context.events
        assert isinstance(event, Message)
        assert (event.event_id, event.text) == ("c1", "/stop")

    asyncio.run(scenario())


def test_every_client_of_a_chat_sees_every_message_and_edit() -> None:
    async def scenario() -> None:
        adapter = console()
        here, there, elsewhere = FakeChannel(), FakeChannel(), FakeChannel("other")
        async with attached(adapter, here, there, elsewhere):
            assert (await adapter.send(outbound("o1", "a", "preview"))).message_id == "o1"
            final = outbound("o2", "ab", answers=("m1",))
            assert (await adapter.edit("o1", final)).message_id == "o1"
            for channel in (here, there):
                first, second = channel.told.get_nowait(), channel.told.get_nowait()
                assert (first["id"], first["text"], first["kind"]) == ("o1", "a", "preview")
                assert (second["replaces"], second["text"]) == ("o1", "ab")
                assert list(cast(tuple[str], second["answers"])) == ["m1"]
            assert elsewhere.told.empty()

    asyncio.run(scenario())


def test_a_chat_without_a_client_is_unreachable() -> None:
    async def scenario() -> None:
        adapter = console()
        with pytest.raises(Unreachable):
            await adapter.send(outbound("o1", "hello"))
        async with attached(adapter, FakeChannel()) as [channel]:
            channel.gone = True
            with pytest.raises(Unreachable):
                await adapter.send(outbound("o1", "hello"))
        with pytest.raises(Unreachable):
            await adapter.edit("o1", outbound("o1", "hello"))

    asyncio.run(scenario())


def test_a_client_that_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_console.adapter.SLOW_CLIENT", 0.01)

    async def scenario() -> None:
        adapter, reading, stuck = console(), FakeChannel(), FakeChannel()
        async with attached(adapter, reading):
            attaching = asyncio.create_task(adapter.attach(stuck))
            await stuck.told.get()
            stuck.reads.clear()
            await adapter.send(outbound("o1", "hello"))
            assert reading.told.get_nowait()["id"] == "o1"
            with pytest.raises(HermesError, match="does not read"):
                await attaching
            await adapter.send(outbound("o2", "hello again"))
            assert reading.told.get_nowait()["id"] == "o2"

    asyncio.run(scenario())


def test_an_answer_is_stray_when_nobody_attached_asked_for_it() -> None:
    async def scenario() -> None:
        adapter = console()
        async with attached(adapter, FakeChannel(), FakeChannel()) as [asking, watching]:
            await asking.say("m1", "hello")
            await adapter.send(outbound("o1", "mine", answers=("m1",)))
            await adapter.send(outbound("o2", "of before", answers=("m0",)))
            told = [watching.told.get_nowait() for _ in range(2)]
            assert [frame.get("stray", False) for frame in told] == [False, True]

    asyncio.run(scenario())


@pytest.mark.parametrize("without_text", ["cancelled", "silent"])
def test_a_turn_without_a_text_is_told_to_the_chat_that_waits_for_it(
    without_text: Literal["cancelled", "silent"],
) -> None:
    async def scenario() -> None:
        context = FakeContext("this")
        turn = TurnInfo(
            turn_id="t",
            session_id="s",
            session_key="k",
            address=Address(platform="console", chat_id="main"),
            attempt=1,
            messages=("hello",),
            event_ids=("m1",),
        )
        async with attached(console(context), FakeChannel()) as [channel]:
            no_answer = TurnEnd(turn=turn, outcome="silent", error="The agent gave no answer.")
            answered = TurnEnd(turn=turn, outcome="answered")
            for end in (answered, no_answer, TurnEnd(turn=turn, outcome=without_text)):
                await hermes_console.on_turn_end(FakeContext("another").scope, end)
                await hermes_console.on_turn_end(context.scope, end)
            told = channel.told.get_nowait()
            assert (told["type"], list(cast(tuple[str], told["answers"]))) == (without_text, ["m1"])
            assert channel.told.empty()

    asyncio.run(scenario())


@pytest.mark.parametrize("chat", [None, "", 7, "x" * 65, "a\nb"])
def test_only_a_printable_name_is_a_chat(chat: object) -> None:
    with pytest.raises(HermesError, match="cannot name a chat"):
        asyncio.run(console().attach(FakeChannel(chat)))


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "message", "text": "no id"},
        {"type": "message", "id": "", "text": "empty id"},
        {"type": "message", "id": "1", "text": 7},
        {"type": "shout", "id": "1"},
        {},
    ],
)
def test_a_client_that_speaks_nonsense_is_told_so(frame: dict[str, object]) -> None:
    async def scenario() -> None:
        channel = FakeChannel()
        channel.said.put_nowait(frame)
        with pytest.raises(HermesError, match="not what a client says"):
            await console().attach(channel)

    asyncio.run(scenario())


def test_user_ids_are_numbers_in_one_form() -> None:
    assert ConsoleAdapter.normalize_user_id("01000") == "1000"
    for wrong in ("", "root", "-1", "1.0", "²", str(2**32)):
        with pytest.raises(ValueError, match="number of a user"):
            ConsoleAdapter.normalize_user_id(wrong)


def test_only_the_user_of_this_process_is_granted_and_only_here() -> None:
    me, other = Sender(id=str(os.getuid())), Sender(id=str(os.getuid() + 1))
    here, elsewhere = Address(platform="console", chat_id="c"), Address(platform="x", chat_id="c")
    assert hermes_console.authorize(me, here) is True
    assert hermes_console.authorize(other, here) is None
    assert hermes_console.authorize(me, elsewhere) is None


def test_the_longest_text_fits_into_a_frame_of_the_control_socket() -> None:
    (platform,) = hermes_console.platforms()
    worst = "\N{GRINNING FACE}" * (platform.max_length // 12 - 1)
    assert platform.length(worst) <= platform.max_length
    frame = protocol.Write(
        id="o" * 22, text=worst, kind="final", answers=tuple("m" * 32 for _ in range(1000))
    )
    assert protocol.frame_length(str(protocol.pack(frame)["text"])) + 1000 * 36 < 1 << 20
