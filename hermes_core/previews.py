"""Previews: the answer while it is being written. Never the record, at most once, allowed to
fail."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from hermes_core.attempts import Link
from hermes_core.delivery import Reply
from hermes_core.errors import RateLimited, SendError
from hermes_core.ids import new_id
from hermes_core.messages import Outbound
from hermes_core.text import split

log = logging.getLogger(__name__)

CLOSE_LIMIT = 5.0
"""Seconds that the last preview call may take before the final text is sent without it."""


class Preview:
    """Shows a growing text by one message that is edited, not more often than the platform
    wants."""

    def __init__(
        self,
        link: Link,
        reply: Reply,
        current: Callable[[], str],
        created_at: float,
        shown: Callable[[str, str], None],
    ) -> None:
        """`current` gives the text so far; `shown(turn_id, message_id)` is told when the message
        exists.

        A message that an earlier attempt left is taken over.
        """
        self._link = link
        self._reply = reply
        self._current = current
        self._created_at = created_at
        self._id = new_id("o")
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._shown = shown
        self.message_id = reply.edits

    def changed(self) -> None:
        """There is more to show."""
        self._changed.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._show_until_closed(), name=f"preview {self._reply.turn_id}"
            )

    async def close(self) -> str:
        """Stop showing. Returns the platform's id of the preview message, "" when there is none.

        A call in progress may end first, so that its message is known and completed, not doubled.
        """
        if self._task is None:
            return self.message_id
        self._closing.set()
        self._changed.set()
        await asyncio.wait({self._task}, timeout=CLOSE_LIMIT)
        self._task.cancel()
        await asyncio.wait({self._task})
        return self.message_id

    async def _show_until_closed(self) -> None:
        shown = ""
        while True:
            await self._changed.wait()
            if self._closing.is_set():
                return
            self._changed.clear()
            text = self._visible(self._current())
            if not text.strip() or text == shown:
                continue
            pause = await self._show(text)
            shown = text
            await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._closing.wait()
        except TimeoutError:
            return

    def _visible(self, text: str) -> str:
        platform = self._link.platform
        parts = split(text, platform.max_length, platform.length)
        return parts[0] if parts else ""

    async def _show(self, text: str) -> float:
        """One call of the adapter; returns the pause until the next one in seconds."""
        message = Outbound(
            id=self._id,
            created_at=self._created_at,
            address=self._reply.address,
            text=text,
            kind="preview",
            reply_to=self._reply.reply_to,
        )
        try:
            if self.message_id:
                await self._link.edit(self.message_id, message)
            else:
                self.message_id = (await self._link.send(message)).message_id
                self._shown(self._reply.turn_id or "", self.message_id)
        except RateLimited as error:
            return error.retry_after
        except SendError as error:
            log.info("a preview was not shown: %s", error)
        return self._link.platform.edit_interval
