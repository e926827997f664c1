"""Updates on their way into the core: each chat in order, chats beside each other, albums whole."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from hermes_core import NotReady
from hermes_telegram import wire
from hermes_telegram.inbound import Event, Reader, album_id, chat_id, migration
from hermes_telegram.settings import Timing

log = logging.getLogger(__name__)

MAX_ALBUM = 10
"""Items of one album (Bot API, sendMediaGroup)."""
REMEMBERED = 256
"""Albums whose items are known, so that one that comes again is not taken for a late one."""

Receive = Callable[[Event], Awaitable[None]]
Migrated = Callable[[str, str], Awaitable[None]]
"""Told the old and the new id of a group."""


@dataclass
class _Job:
    update: wire.Update
    album: str | None
    done: asyncio.Future[None]


@dataclass
class _Chat:
    """What waits in one chat.

    `album` is the one being put together, `more` tells of another item of it.
    """

    jobs: deque[_Job] = field(default_factory=deque)
    album: str | None = None
    more: asyncio.Event = field(default_factory=asyncio.Event)


class Intake:
    """Hands the events of updates to `receive`, one at a time in each chat, and tells `migrated` of
    groups that have moved."""

    def __init__(
        self, reader: Reader, receive: Receive, migrated: Migrated, timing: Timing
    ) -> None:
        self._reader = reader
        self._receive = receive
        self._migrated = migrated
        self._timing = timing
        self._chats: dict[int, _Chat] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._albums: OrderedDict[str, set[int]] = OrderedDict()

    def put(self, update: wire.Update) -> asyncio.Future[None]:
        """Take an update; calls for one chat are handled in their order.

        The result is there once the update may be acknowledged. NotReady means that it may not, and
        that everything behind it in its chat was not taken either.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        job = _Job(update, album_id(update), done)
        key = chat_id(update)
        chat = self._chats.get(key)
        if chat is None:
            chat = self._chats[key] = _Chat()
            task = asyncio.get_running_loop().create_task(
                self._work(key, chat), name=f"telegram chat {key}"
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        chat.jobs.append(job)
        if job.album is not None and job.album == chat.album:
            chat.more.set()
        return done

    async def stop(self) -> None:
        """End at once. What was not taken in stays with Telegram."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _work(self, key: int, chat: _Chat) -> None:
        taken: list[_Job] = []
        try:
            while chat.jobs:
                taken = await self._next(chat)
                await self._take(taken)
                for job in taken:
                    _settle(job, None)
                taken = []
        except NotReady as error:
            self._give_back([*taken, *chat.jobs], error)
        except Exception as error:  # the core's contract allows none: say so, and try again
            log.exception("the core did not take an update in")
            self._give_back([*taken, *chat.jobs], NotReady(f"{type(error).__name__}"))
        finally:
            self._give_back([*taken, *chat.jobs], NotReady("the adapter is disconnecting"))
            del self._chats[key]

    def _give_back(self, jobs: list[_Job], error: NotReady) -> None:
        for job in jobs:
            _settle(job, error)

    async def _next(self, chat: _Chat) -> list[_Job]:
        """The next update, or all items of the next album once it is whole."""
        first = chat.jobs.popleft()
        if first.album is None:
            return [first]
        chat.album = first.album
        items = [first]
        try:
            while len(items) < MAX_ALBUM:
                chat.more.clear()
                more = [job for job in chat.jobs if job.album == first.album]
                for job in more:
                    chat.jobs.remove(job)
                items += more
                if not more and not await self._another(chat):
                    break
        except asyncio.CancelledError:
            chat.jobs.extendleft(reversed(items))
            raise
        chat.album = None
        return items

    async def _another(self, chat: _Chat) -> bool:
        """Whether one more item of the album comes before it has been quiet for long enough."""
        more = asyncio.ensure_future(chat.more.wait())
        quiet = asyncio.ensure_future(self._timing.sleep(self._timing.album))
        try:
            await asyncio.wait({more, quiet}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            more.cancel()
            quiet.cancel()
        return chat.more.is_set()

    async def _take(self, jobs: list[_Job]) -> None:
        moved = migration(jobs[0].update)
        if moved is not None:
            await self._migrated(*moved)
        for event in self._events(jobs):
            await self._receive(event)
        album = jobs[0].album
        if album is not None:
            known = self._albums.setdefault(album, set())
            known.update(_message(job).message_id for job in jobs)
            self._albums.move_to_end(album)
            while len(self._albums) > REMEMBERED:
                self._albums.popitem(last=False)

    def _events(self, jobs: list[_Job]) -> list[Event]:
        try:
            album = jobs[0].album
            if album is None:
                return self._reader.events(jobs[0].update)
            known = self._albums.get(album, set())
            items = {_message(job).message_id: _message(job) for job in jobs}
            fresh = [item for number, item in items.items() if number not in known]
            message = self._reader.message(fresh) if fresh else None
            return [] if message is None else [message]
        except (ValueError, LookupError, TypeError, AttributeError):
            # Our fault, not the sender's: going on without it beats a bot that is deaf for good.
            log.exception("update %d is skipped", jobs[0].update.update_id)
            return []


def _message(job: _Job) -> wire.Message:
    said = job.update.message or job.update.channel_post
    assert said is not None
    return said


def _settle(job: _Job, error: NotReady | None) -> None:
    if job.done.done():
        return
    if error is None:
        job.done.set_result(None)
    else:
        job.done.set_exception(error)
