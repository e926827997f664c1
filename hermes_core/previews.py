"""What people see while a turn runs: the answer so far, what the agent does, that it is typing.

None of it is the record. Each call is made at most once, only when the platform's pace has room for
it, and may fail: the final text is sent all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine

import msgspec

from hermes_core.answers import Answer
from hermes_core.attempts import Link, look_for, may_have_arrived
from hermes_core.delivery import Reply
from hermes_core.errors import RateLimited
from hermes_core.ids import new_id
from hermes_core.messages import Address, AgentEvent, Commentary, Outbound
from hermes_core.parts import split
from hermes_core.store.outbox import Shown
from hermes_core.text import clean

log = logging.getLogger(__name__)

CLOSE_LIMIT = 5.0
"""Seconds that the last call may take before the final text is sent without its message."""
TYPING_INTERVAL = 4.0
"""Seconds between two signs of typing: networks show one for five (Telegram, sendChatAction)."""
DRAFT_REFRESH = 20.0
"""Seconds after which a draft is shown again: they go after thirty (Telegram,
sendMessageDraft)."""
MAX_REMARKS = 100
"""Remarks of a turn that wait to be shown at most."""


class Preview:
    """Shows one turn while it runs, by one message that is edited and by the sign of typing."""

    def __init__(
        self,
        link: Link,
        reply: Reply,
        answer: Answer,
        *,
        created_at: float,
        idle: Callable[[], bool],
        record: Callable[[Shown], Awaitable[None]],
    ) -> None:
        """`idle()` says whether nothing waits to be sent to this chat, so that a preview overtakes
        nothing; `record` commits what is shown, before and after the first call. What an earlier
        attempt of the turn left is taken over.
        """
        self._link = link
        self._reply = reply
        self._answer = answer
        self._created_at = created_at
        self._idle = idle
        self._record = record
        self._id = new_id("o")
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self._remarks: asyncio.Queue[str] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure = ""
        drafts = reply.address.kind in link.platform.drafts
        self._drafting = drafts and reply.shown == Shown()
        self.shown = reply.shown

    def hear(self, event: AgentEvent, *, changed: bool) -> None:
        """The agent said something; `changed` when the answer reads differently now."""
        if isinstance(event, Commentary) and event.text and self._link.progress == "full":
            if self._remarks.qsize() < MAX_REMARKS:
                self._remarks.put_nowait(event.text)
            self._once("remarks", self._remark_until_closed)
        shows_status = self._link.progress in {"status", "full"} and not self._answer.text
        if self._link.streams and (changed or shows_status):
            self._changed.set()
            self._once("preview", self._show_until_closed)

    async def close(self) -> Shown:
        """Stop showing. Returns what is shown, for the final text to complete. Doing it again does
        nothing more.

        A call in progress may end first, so that its message is known and completed, not doubled.
        """
        if not self._tasks:
            return self.shown
        self._closing.set()
        self._changed.set()
        self._remarks.put_nowait("")
        await asyncio.wait(self._tasks, timeout=CLOSE_LIMIT)
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        return self.shown

    def _once(self, name: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        if all(task.get_name() != name for task in self._tasks):
            self._spawn(work(), name)

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work, name=name))

    # ── the answer so far ────────────────────────────────────────────────────────────────────────

    async def _show_until_closed(self) -> None:
        shown = ""
        while True:
            try:
                async with asyncio.timeout(DRAFT_REFRESH if self._drafting else None):
                    await self._changed.wait()
            except TimeoutError:
                shown = ""
            if self._closing.is_set():
                return
            self._changed.clear()
            text = self._visible()
            if not text.strip() or text == shown:
                continue
            if not self._may_show():
                await self._pause(self._interval)
                self._changed.set()
                continue
            pause = self._interval
            try:
                await self._show(text)
                shown = text
            except RateLimited as error:
                self._changed.set()  # it was not shown
                pause = error.retry_after
            await self._pause(pause)

    def _visible(self) -> str:
        """What there is to show: the beginning of the answer, or else what the agent does."""
        status = self._answer.status if self._link.progress in {"status", "full"} else ""
        return self._first(self._answer.visible or status)

    def _first(self, text: str) -> str:
        platform = self._link.platform
        # No more than could be the first part is looked at, however long the answer grows.
        parts = split(text[: platform.max_length + 1], platform.max_length, platform.length)
        return parts[0] if parts else ""

    def _may_show(self) -> bool:
        now = asyncio.get_running_loop().time()
        chat_id = self._reply.address.chat_id
        return (
            self._link.connected
            and (self._drafting or bool(self.shown.message_id) or self._idle())
            and self._link.budget.has_room(chat_id, now)
        )

    async def _show(self, text: str) -> None:
        """One call of the adapter. Raises RateLimited; what else goes wrong is logged."""
        message = self._message(self._id, text)
        try:
            if self._drafting and await self._draft(message):
                return
            self.shown = await look_for(self.shown, self._link)
            if self.shown.message_id:
                await self._link.edit(self.shown.message_id, message)
            else:
                await self._send(message)
        except RateLimited:
            raise
        except Exception as error:
            self._failed(f"{error}")

    @property
    def _interval(self) -> float:
        """Seconds between two calls."""
        platform = self._link.platform
        shared = None if self._reply.address.kind == "dm" else platform.group_edit_interval
        return platform.edit_interval if shared is None else shared

    async def _draft(self, message: Outbound) -> bool:
        """Show a draft. False when that cannot be done here: not once, and not again."""
        try:
            await self._link.draft(message)
        except RateLimited:
            raise
        except Exception as error:
            log.debug("a draft was not shown: %s", error, extra={"turn": self._reply.turn_id})
            self._drafting = False
        return self._drafting

    async def _send(self, message: Outbound) -> None:
        """The first call. It is committed that it is made, so that a crash in it leaves a trace."""
        unsure = Shown(unsure=message)
        await self._record(unsure)
        self.shown = unsure
        try:
            receipt = await self._link.send(message)
        except Exception as error:
            if not may_have_arrived(error):
                self.shown = Shown()
            raise
        self.shown = Shown(receipt.message_id)
        await self._record(self.shown)

    def _failed(self, reason: str) -> None:
        """Note why a preview was not shown; the same reason once a turn."""
        if reason != self._failure:
            self._failure = reason
            log.info("a preview was not shown: %s", reason, extra={"turn": self._reply.turn_id})

    def _message(self, outbound_id: str, text: str) -> Outbound:
        return Outbound(
            id=outbound_id,
            created_at=self._created_at,
            address=self._reply.address,
            text=clean(text),
            kind="preview",
            reply_to=self._reply.reply_to,
        )

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return

    # ── beside the answer ────────────────────────────────────────────────────────────────────────

    async def _remark_until_closed(self) -> None:
        while text := await self._remarks.get():
            message = msgspec.structs.replace(
                self._message(new_id("o"), self._first(text)),
                kind="commentary",
            )
            if self._may_show():
                try:
                    await self._link.send(message)
                except Exception as error:
                    log.info("a remark was not shown: %s", error)


class Typing:
    """Shows that an answer is being written, as long as the context lasts."""

    def __init__(self, link: Link | None, address: Address) -> None:
        self._link = link
        self._address = address
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        link = self._link
        if link is not None and link.types and link.connected:
            self._task = asyncio.get_running_loop().create_task(self._type(link), name="typing")

    async def __aexit__(self, *exception: object) -> None:
        if self._task is not None:
            self._ended.set()
            await asyncio.wait({self._task})

    async def _type(self, link: Link) -> None:
        while not self._ended.is_set():
            await link.set_typing(self._address, active=True)
            try:
                async with asyncio.timeout(TYPING_INTERVAL):
                    await self._ended.wait()
            except TimeoutError:
                continue
        await link.set_typing(self._address, active=False)
