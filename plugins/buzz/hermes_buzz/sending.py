"""What the core sends: messages, edits, reactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_buzz.events import Draft, Event
from hermes_buzz.outgoing import (
    Composer,
    MissingTarget,
    Publisher,
    anchors,
    as_send_error,
    dates,
)
from hermes_buzz.trouble import RelayError
from hermes_core import Receipt, SendRejected

if TYPE_CHECKING:
    from hermes_buzz.bridge import Blob, Bridge
    from hermes_buzz.cursors import CursorStore
    from hermes_buzz.incoming import Translator
    from hermes_buzz.reading import Reader
    from hermes_buzz.settings import BuzzSettings
    from hermes_core import Address, Outbound

MAX_UPLOAD = 50 << 20
"""Bytes of a file that is sent: what the relay takes of an image."""


class Sender:
    """Sends by one connection. Everything raises SendError."""

    def __init__(
        self,
        settings: BuzzSettings,
        *,
        composer: Composer,
        publisher: Publisher,
        bridge: Bridge,
        reader: Reader,
        translator: Translator,
        store: CursorStore,
        wall: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._composer = composer
        self._publisher = publisher
        self._bridge = bridge
        self._reader = reader
        self._translator = translator
        self._store = store
        self._wall = wall

    async def send(self, message: Outbound) -> Receipt:
        """Publish a row."""
        drafts = await self._drafts(message)
        if len(drafts) > 1 and (known := await self._stored(message, drafts[:-1])):
            return self._sent(message, known)
        event = await self._publish(*drafts[-1])
        return self._sent(message, event.id)

    async def edit(self, message_id: str, message: Outbound) -> Receipt:
        """Give an earlier message a new text.

        The newest edit counts, and dates have no fractions: a preview is dated now, and the final
        text a second after the row was made, when the last preview had been shown.
        """
        now = self._wall()
        date = int(now) if message.kind == "preview" else dates(message, now)[-1] + 1
        mentions = await self._mentions(message)
        await self._publish(self._composer.edit(message, date, message_id, mentions))
        return self._sent(message, message_id)

    async def reconcile(self, message: Outbound) -> Receipt | None:
        """The receipt of a row that may have been sent; None when the relay does not have it."""
        known = await self._stored(message, await self._drafts(message))
        return self._sent(message, known) if known else None

    async def react(self, address: Address, message_id: str, emoji: str) -> Receipt:
        """Put an emoji on a message."""
        draft = self._composer.reaction(address, int(self._wall()), message_id, emoji)
        return Receipt(message_id=(await self._publish(draft)).id)

    # ── what an event is made of ─────────────────────────────────────────────────────────────────

    async def _drafts(self, message: Outbound) -> list[list[Draft]]:
        """For each date that the row has had: the event, and those for when the relay does not have
        what it refers to."""
        found = anchors(message, await self._root(message), self._settings)
        mentions = await self._mentions(message)
        files = [await self._upload(file.path, file.media_type) for file in message.attachments]
        return [
            [self._composer.chat(message, date, anchor, mentions, files) for anchor in found]
            for date in dates(message, self._wall())
        ]

    async def _root(self, message: Outbound) -> str:
        """The thread to answer in. In a direct chat the relay knows where the message stood."""
        address = message.address
        if address.thread_id is not None:
            return address.thread_id
        if message.reply_to is None or not self._settings.threaded:
            return ""
        try:
            return await self._translator.root_of(
                message.reply_to,
                self._reader.channel(address.chat_id),
                lambda query: self._reader.find(address.chat_id, query),
            )
        except RelayError as error:
            raise as_send_error(error) from error

    async def _mentions(self, message: Outbound) -> list[str]:
        names = self._reader.directory.keys_by_name
        mentions = self._composer.mentions(message, lambda: names(message.address.chat_id))
        await self._store.save()
        return mentions

    async def _upload(self, path: str, media_type: str) -> Blob:
        content = await asyncio.to_thread(_read, Path(path))
        return await self._bridge.upload(content, media_type)

    # ── the relay ────────────────────────────────────────────────────────────────────────────────

    async def _stored(self, message: Outbound, drafts: Sequence[Sequence[Draft]]) -> str:
        every = [draft for variants in drafts for draft in variants]
        try:
            return await self._publisher.stored(message, every)
        except RelayError as error:
            raise as_send_error(error) from error

    async def _publish(self, *drafts: Draft) -> Event:
        """The first of `drafts` that the relay takes; the others refer to less."""
        reason = ""
        for draft in drafts:
            try:
                return await self._publisher.publish(draft)
            except MissingTarget as error:
                reason = f"the relay does not know what it refers to: {error}"
        raise SendRejected(reason, kind="not_found")

    def _sent(self, message: Outbound, message_id: str) -> Receipt:
        self._store.sent(message.id)
        return Receipt(message_id=message_id)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAX_UPLOAD + 1)
    if len(content) > MAX_UPLOAD:
        raise SendRejected(f"more than {MAX_UPLOAD} bytes", kind="too_long", where=path.name)
    return content
