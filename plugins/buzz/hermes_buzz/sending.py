"""What the core sends: messages, edits, reactions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_buzz.events import Draft, Event, Kind
from hermes_buzz.outgoing import Composer, MissingTarget, Publisher, as_send_error, dates
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
MAX_EMOJI = 64


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
        try:
            event = await self._publisher.publish(drafts[-1][0])
        except MissingTarget:
            # What it answers was deleted: better said at the top level than not at all.
            event = await self._publish(drafts[-1][1])
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
        tags = (("h", address.chat_id), ("e", message_id))
        now = int(self._wall())
        draft = Draft(kind=Kind.REACTION, created_at=now, tags=tags, content=emoji[:MAX_EMOJI])
        return Receipt(message_id=(await self._publish(draft)).id)

    # ── what an event is made of ─────────────────────────────────────────────────────────────────

    async def _drafts(self, message: Outbound) -> list[tuple[Draft, Draft]]:
        """For each date that the row has had: the event, and the one that refers to nothing."""
        root = await self._root(message)
        mentions = await self._mentions(message)
        files = [await self._upload(file.path, file.media_type) for file in message.attachments]
        return [
            (
                self._composer.chat(message, date, root, mentions, files),
                self._composer.chat(message, date, "", mentions, files),
            )
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
                lambda event_id: self._reader.find(address.chat_id, event_id),
            )
        except RelayError as error:
            raise as_send_error(error) from error

    async def _mentions(self, message: Outbound) -> list[str]:
        mentions = self._composer.mentions(message, self._reader.directory.keys_by_name)
        await self._store.save()
        return mentions

    async def _upload(self, path: str, media_type: str) -> Blob:
        content = await asyncio.to_thread(_read, Path(path))
        return await self._bridge.upload(content, media_type)

    # ── the relay ────────────────────────────────────────────────────────────────────────────────

    async def _stored(self, message: Outbound, drafts: Sequence[tuple[Draft, Draft]]) -> str:
        every = [draft for pair in drafts for draft in pair]
        try:
            return await self._publisher.stored(message, every)
        except RelayError as error:
            raise as_send_error(error) from error

    async def _publish(self, draft: Draft) -> Event:
        try:
            return await self._publisher.publish(draft)
        except MissingTarget as error:
            reason = f"the relay does not know what it refers to: {error}"
            raise SendRejected(reason, kind="not_found") from None

    def _sent(self, message: Outbound, message_id: str) -> Receipt:
        self._store.sent(message.id)
        return Receipt(message_id=message_id)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAX_UPLOAD + 1)
    if len(content) > MAX_UPLOAD:
        raise SendRejected(f"more than {MAX_UPLOAD} bytes", kind="too_long", where=path.name)
    return content
