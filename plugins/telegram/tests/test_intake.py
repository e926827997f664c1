"""Albums and order, with time in the hands of the test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from hermes_core import Address, Edited, Message, NotReady
from hermes_telegram.inbound import Event, Reader
from hermes_telegram.intake import Intake
from hermes_telegram.settings import Timing
from hermes_telegram.wire import Update, decode_update


class Quiet:
    """Pauses end when the test says so."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def sleep(self, _: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def passes(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class Core:
    """What was received, and what to do about it."""

    def __init__(self) -> None:
        self.received: list[Event] = []
        self.moves: list[tuple[str, str]] = []
        self.hold: Callable[[Event], Awaitable[None]] | None = None

    async def receive(self, event: Event) -> None:
        if self.hold is not None:
            await self.hold(event)
        self.received.append(event)

    async def migrated(self, old: str, new: str) -> None:
        self.moves.append((old, new))
        if len(self.moves) == 1:
            raise NotReady("not now")

    @property
    def messages(self) -> list[Message]:
        return [event for event in self.received if isinstance(event, Message)]


def intake(core: Core, quiet: Quiet) -> Intake:
    def address(chat: str, kind: object, thread: str | None) -> Address:
        return Address(platform="telegram", chat_id=chat, thread_id=thread)

    reader = Reader(own_id=100, username="me", address=address)
    return Intake(reader, core.receive, core.migrated, Timing(sleep=quiet.sleep))


def update(number: int, chat: int = 1, kind: str = "message", **content: object) -> Update:
    message = {
        "message_id": number,
        "chat": {"id": chat, "type": "private"},
        "from": {"id": 7, "first_name": "A"},
        **content,
    }
    return decode_update(json.dumps({"update_id": 1000 + number, kind: message}).encode())


def photo(number: int, album: str = "g", caption: str = "") -> Update:
    picture = [{"file_id": f"f{number}", "width": 1, "height": 1}]
    return update(number, media_group_id=album, photo=picture, caption=caption)


async def idle() -> None:
    """Let everything run that can run."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.case("TG-09")
def test_an_album_is_one_message_whatever_order_its_items_come_in() -> None:
    async def main() -> None:
        core, quiet = Core(), Quiet()
        entry = intake(core, quiet)
        done = []
        for number in (14, 11, 13, 12, 15, 17, 16, 19, 18):
            done.append(entry.put(photo(number, caption="three" if number == 13 else "")))
            await idle()
        assert core.received == []
        quiet.passes()
        await asyncio.gather(*done)
        (message,) = core.messages
        assert message.text == "three"
        assert [file.ref for file in message.attachments] == [f"f{n}" for n in range(11, 20)]
        assert (message.message_id, message.event_id) == ("11", "m11+8")

    asyncio.run(main())


@pytest.mark.case("TG-09")
def test_ten_items_are_a_whole_album_without_a_wait() -> None:
    async def main() -> None:
        core = Core()
        entry = intake(core, Quiet())
        await asyncio.gather(*(entry.put(photo(number)) for number in range(10)))
        assert len(core.messages) == 1

    asyncio.run(main())


@pytest.mark.case("TG-09")
def test_a_late_item_is_a_message_of_its_own_and_a_repeated_one_is_none() -> None:
    async def main() -> None:
        core, quiet = Core(), Quiet()
        entry = intake(core, quiet)
        first = entry.put(photo(1))
        await idle()
        quiet.passes()
        await first
        late, again = entry.put(photo(2)), entry.put(photo(1))
        await idle()
        quiet.passes()
        await asyncio.gather(late, again)
        assert [message.event_id for message in core.messages] == ["m1", "m2"]

    asyncio.run(main())


@pytest.mark.case("TG-09")
def test_an_edit_of_an_item_waits_behind_its_album() -> None:
    async def main() -> None:
        core, quiet = Core(), Quiet()
        entry = intake(core, quiet)
        edited = update(
            1, kind="edited_message", media_group_id="g", photo=[{"file_id": "x"}], caption="new"
        )
        done = [entry.put(photo(1)), entry.put(edited), entry.put(photo(2))]
        await idle()
        quiet.passes()
        await asyncio.gather(*done)
        assert [type(event) for event in core.received] == [Message, Edited]
        assert len(core.messages[0].attachments) == 2

    asyncio.run(main())


def test_what_follows_an_album_stays_behind_it_and_other_chats_do_not_wait() -> None:
    async def main() -> None:
        core, quiet = Core(), Quiet()
        entry = intake(core, quiet)
        entry.put(photo(1))
        behind = entry.put(update(2, text="behind"))
        await entry.put(update(3, chat=2, text="elsewhere"))
        assert [message.text for message in core.messages] == ["elsewhere"]
        quiet.passes()
        await behind
        assert [message.text for message in core.messages] == ["elsewhere", "", "behind"]

    asyncio.run(main())


def test_what_is_not_taken_is_given_back_with_everything_behind_it() -> None:
    async def main() -> None:
        core = Core()
        closed = True

        async def refuse(event: Event) -> None:
            if closed and isinstance(event, Message) and event.text == "2":
                raise NotReady("closed")

        core.hold = refuse
        entry = intake(core, Quiet())
        first, second, third = (entry.put(update(n, text=str(n))) for n in (1, 2, 3))
        await first
        for given_back in (second, third):
            with pytest.raises(NotReady):
                await given_back
        closed = False
        await asyncio.gather(*(entry.put(update(n, text=str(n))) for n in (2, 3)))
        assert [message.text for message in core.messages] == ["1", "2", "3"]

    asyncio.run(main())


def test_stopping_gives_everything_back_that_is_not_taken() -> None:
    async def main() -> None:
        core, quiet = Core(), Quiet()
        entry = intake(core, quiet)
        waiting = [entry.put(photo(1)), entry.put(update(2, text="x"))]
        await idle()
        await entry.stop()
        for future in waiting:
            with pytest.raises(NotReady):
                await future
        assert core.received == []

    asyncio.run(main())


def test_one_chat_is_taken_in_one_by_one() -> None:
    async def main() -> None:
        core = Core()
        inside = 0

        async def alone(_: Event) -> None:
            nonlocal inside
            inside += 1
            assert inside == 1
            await idle()
            inside -= 1

        core.hold = alone
        entry = intake(core, Quiet())
        await asyncio.gather(*(entry.put(update(n, text=str(n))) for n in range(20)))
        assert [message.text for message in core.messages] == [str(n) for n in range(20)]

    asyncio.run(main())


def test_a_group_that_moves_is_told_before_what_follows_and_again_if_not_taken() -> None:
    async def main() -> None:
        core = Core()
        way_in = intake(core, Quiet())
        notices = (
            update(1, chat=-5, migrate_to_chat_id=-1005),
            update(1, chat=-1005, migrate_from_chat_id=-5),
        )
        refused = [way_in.put(notices[0]), way_in.put(update(2, chat=-5, text="next"))]
        for done in refused:
            with pytest.raises(NotReady):
                await done
        for notice in notices:
            await way_in.put(notice)
        assert core.moves == [("-5", "-1005")] * 3
        assert core.received == []

    asyncio.run(main())
