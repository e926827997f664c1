"""Messages of the contract to calls of the Bot API."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec
from telegram import (
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    LinkPreviewOptions,
    MessageEntity,
    ReplyParameters,
)
from telegram import Message as Sent
from telegram.constants import ChatAction, FileSizeLimit, MessageLimit
from telegram.error import ChatMigrated, TelegramError

from hermes_core import (
    Address,
    HermesError,
    Outbound,
    OutboundAttachment,
    Receipt,
    SendRejected,
    utf16_length,
)
from hermes_telegram.client import Client
from hermes_telegram.failures import (
    is_bad_format,
    is_thread_gone,
    is_unchanged,
    is_unfit,
    translate,
)
from hermes_telegram.render import Rendered, render

log = logging.getLogger(__name__)

T = TypeVar("T")
Call = Callable[["Target"], Awaitable[T]]
Migrated = Callable[[str, str], Awaitable[None]]
_KINDS = {
    "audio/mpeg": "audio",
    "audio/mp4": "audio",
    "audio/ogg": "voice",
    "video/mp4": "video",
}
MAX_MOVED = 1000
"""Groups whose new id is remembered."""


MAX_BEGUN = 1000
"""Messages with files of which it is remembered what has arrived."""
MAX_ENTITIES = 100
"""Of one message; Telegram shows no more."""
_NUMBER = re.compile(r"-?[1-9][0-9]{0,18}", re.ASCII)
GENERAL = "1"
"""The id that the General topic has, and by which nothing can be sent to it."""


class Target(msgspec.Struct, frozen=True):
    """Where a call goes, and what it replies to there."""

    chat_id: int
    thread_id: int | None = None
    reply: ReplyParameters | None = None


@dataclass
class _Begun:
    """What of a message with files has arrived: its text, the first `files` of them, and the
    receipt of whatever came first."""

    text: bool = False
    files: int = 0
    receipt: Receipt | None = None


class Sender:
    """Sends and edits for one bot. Every method raises a SendError, and nothing else."""

    def __init__(self, client: Client, *, link_previews: bool, migrated: Migrated) -> None:
        """`migrated(old, new)` is told of groups that have become supergroups."""
        self._bot = client.bot
        self._migrated = migrated
        self._previews = None if link_previews else LinkPreviewOptions(is_disabled=True)
        self._moved: OrderedDict[int, int] = OrderedDict()
        self._begun: OrderedDict[str, _Begun] = OrderedDict()

    async def send(self, message: Outbound) -> Receipt:
        """A text, with files or buttons or neither."""
        target = self._target(message.address, message.reply_to)
        if message.attachments:
            return await self._send_files(message, target)
        return await self._send_text(message, target)

    async def edit(self, message_id: str, message: Outbound) -> Receipt:
        """A new text for an earlier message. That it reads so already is success."""
        number = _message_number(message_id)

        async def call(target: Target, text: Rendered) -> None:
            await self._bot.edit_message_text(
                text=text.text,
                chat_id=target.chat_id,
                message_id=number,
                entities=_entities(text),
                link_preview_options=self._previews,
            )

        try:
            await self._formatted(message, self._target(message.address), call)
        except SendRejected as error:
            if error.__cause__ is None or not is_unchanged(_cause(error)):
                raise
        return Receipt(message_id=message_id)

    async def draft(self, message: Outbound) -> None:
        """The beginning of an answer, in a private chat: it goes after half a minute, or with the
        answer. Drafts of one answer have one number (Bot API, sendMessageDraft)."""
        number = int.from_bytes(sha256(message.id.encode()).digest()[:4]) >> 1 or 1

        async def call(target: Target, text: Rendered) -> None:
            await self._bot.send_message_draft(
                target.chat_id,
                number,
                text.text,
                entities=_entities(text),
                message_thread_id=target.thread_id,
            )

        await self._formatted(message, self._target(message.address), call)

    async def typing(self, address: Address) -> None:
        """Show for some seconds that an answer is being written; nowhere else than there."""
        target = self._target(address)
        try:
            await self._bot.send_chat_action(
                target.chat_id, ChatAction.TYPING, message_thread_id=target.thread_id
            )
        except TelegramError as error:
            raise translate(error) from error

    async def delete(self, address: Address, message_id: str) -> None:
        """Take an own message back."""
        number = _message_number(message_id)

        async def call(target: Target) -> None:
            await self._bot.delete_message(target.chat_id, number)

        await self._reach(self._target(address), call)

    async def react(self, address: Address, message_id: str, emoji: str) -> None:
        """Put a reaction on a message; "" takes it off."""
        number = _message_number(message_id)

        async def call(target: Target) -> None:
            await self._bot.set_message_reaction(target.chat_id, number, emoji or None)

        await self._reach(self._target(address), call)

    # ── text ─────────────────────────────────────────────────────────────────────────────────────

    async def _send_text(self, message: Outbound, target: Target) -> Receipt:
        async def call(to: Target, rendered: Rendered) -> Sent:
            return await self._bot.send_message(
                to.chat_id,
                rendered.text,
                entities=_entities(rendered),
                message_thread_id=to.thread_id,
                reply_parameters=to.reply,
                link_preview_options=self._previews,
                reply_markup=_keyboard(message),
            )

        return _receipt(await self._formatted(message, target, call))

    async def _formatted(
        self, message: Outbound, target: Target, call: Callable[[Target, Rendered], Awaitable[T]]
    ) -> T:
        """With formatting, and should that be what is refused, once without."""
        text = _sendable(message.text)
        if not message.plain:
            try:
                return await self._reach(target, lambda to: call(to, render(text)))
            except SendRejected as error:
                if not is_bad_format(_cause(error)):
                    raise
            log.warning("Telegram refused the formatting of a message: it is sent as plain text")
        try:
            return await self._reach(target, lambda to: call(to, Rendered(text)))
        except SendRejected as error:
            if error.kind != "bad_format":
                raise
            raise SendRejected(error.what) from _cause(error)  # there is none to leave out

    # ── files ────────────────────────────────────────────────────────────────────────────────────

    async def _send_files(self, message: Outbound, target: Target) -> Receipt:
        """A short text is the caption of the first file, a longer one goes before it.

        If that breaks off, another attempt goes on from there: people see nothing twice.
        """
        begun = self._begun.pop(message.id, None) or _Begun()
        fits = utf16_length(message.text) <= MessageLimit.CAPTION_LENGTH
        begun.text = begun.text or not message.text.strip()
        try:
            if not (begun.text or fits):
                begun.receipt = await self._send_text(message, target)
                begun.text = True
            for file in message.attachments[begun.files :]:
                text = "" if begun.text else message.text
                part = msgspec.structs.replace(message, text=text, buttons=())
                sent = await self._send_file(file, part, target)
                begun = _Begun(text=True, files=begun.files + 1, receipt=begun.receipt or sent)
        except BaseException:
            self._remember(message.id, begun)
            raise
        return begun.receipt or Receipt()

    def _remember(self, message_id: str, begun: _Begun) -> None:
        if begun.receipt is not None:
            self._begun[message_id] = begun
        while len(self._begun) > MAX_BEGUN:
            self._begun.popitem(last=False)

    async def _send_file(
        self, file: OutboundAttachment, message: Outbound, target: Target
    ) -> Receipt:
        """A file with the text of `message`; should the file be refused, that is said instead."""
        try:
            content = await asyncio.to_thread(_read, file)
            return await self._send_content(file, content, message, target)
        except SendRejected as error:
            log.warning("a file was not sent: %s", error)
            note = f"[file not sent: {file.name:.100}: {error.what:.300}]"
            text = f"{message.text}\n{note}" if message.text else note
            return await self._send_text(msgspec.structs.replace(message, text=text), target)

    async def _send_content(
        self, file: OutboundAttachment, content: bytes, message: Outbound, target: Target
    ) -> Receipt:
        """As what it is, or as a document if Telegram does not take it as that."""
        kind = _kind(file.media_type, len(content))
        try:
            return await self._upload(kind, file.name, content, message, target)
        except SendRejected as error:
            if kind == "document" or not is_unfit(_cause(error)):
                raise
        return await self._upload("document", file.name, content, message, target)

    async def _upload(
        self, kind: str, name: str, content: bytes, message: Outbound, target: Target
    ) -> Receipt:
        send: Callable[..., Awaitable[Sent]] = getattr(self._bot, f"send_{kind}")

        async def call(to: Target, caption: Rendered) -> Sent:
            return await send(
                to.chat_id,
                content,
                filename=name,
                caption=caption.text or None,
                caption_entities=_entities(caption),
                message_thread_id=to.thread_id,
                reply_parameters=to.reply,
            )

        return _receipt(await self._formatted(message, target, call))

    # ── where to ─────────────────────────────────────────────────────────────────────────────────

    def _target(self, address: Address, reply_to: str | None = None) -> Target:
        thread = None if address.thread_id in {None, GENERAL} else address.thread_id
        if not _NUMBER.fullmatch(address.chat_id) or not _NUMBER.fullmatch(thread or "1"):
            raise SendRejected("this is no Telegram chat", kind="not_found")
        chat_id = int(address.chat_id)
        thread_id = None if thread is None else int(thread)
        if chat_id in self._moved:
            return Target(self._moved[chat_id], thread_id)
        return Target(chat_id, thread_id, _reply(reply_to))

    async def _reach(self, target: Target, call: Call[T]) -> T:
        """Call, following a group that has moved, and out of a topic that is gone. Each once.

        A group that has moved counts its messages anew: nothing there is what was replied to.
        """
        try:
            return await call(target)
        except ChatMigrated as error:
            await self._follow(target.chat_id, error.new_chat_id)
            target = Target(error.new_chat_id, target.thread_id)
        except TelegramError as error:
            if target.thread_id is None or not is_thread_gone(error):
                raise translate(error) from error
            log.warning("a topic is gone: its message goes to the chat itself")
            target = Target(target.chat_id, reply=target.reply)
        try:
            return await call(target)
        except TelegramError as error:
            raise translate(error) from error

    async def _follow(self, old: int, new: int) -> None:
        """Tell of a move that an answer ran into. The answer does not depend on it: the notice in
        the chats themselves says it again."""
        try:
            await self.moved(str(old), str(new))
        except HermesError as error:
            log.warning("the move of the group %d was not taken in: %s", old, error)

    async def moved(self, old: str, new: str) -> None:
        """Send to its new id what is for a group that has moved. Raises NotReady when the core has
        not taken that in."""
        self._moved[int(old)] = int(new)
        while len(self._moved) > MAX_MOVED:
            self._moved.popitem(last=False)
        await self._migrated(old, new)


def _cause(error: Exception) -> Exception:
    return error.__cause__ if isinstance(error.__cause__, Exception) else error


def _receipt(sent: Sent) -> Receipt:
    return Receipt(message_id=str(sent.message_id))


def _reply(message_id: str | None) -> ReplyParameters | None:
    """An anchor that may be gone: the answer matters more than what it hangs on."""
    if message_id is None or not _NUMBER.fullmatch(message_id):
        return None
    return ReplyParameters(int(message_id), allow_sending_without_reply=True)


def _keyboard(message: Outbound) -> InlineKeyboardMarkup | None:
    """The buttons of a message, one below the other, so that their labels are readable."""
    if not message.buttons:
        return None
    return InlineKeyboardMarkup(
        [
            [InlineKeyboardButton(button.label, callback_data=button.value)]
            for button in message.buttons
        ]
    )


def _message_number(message_id: str) -> int:
    if not _NUMBER.fullmatch(message_id):
        raise SendRejected("this is no Telegram message", kind="not_found")
    return int(message_id)


def _entities(rendered: Rendered) -> list[MessageEntity] | None:
    return [
        MessageEntity(span.kind, span.offset, span.length, url=span.url, language=span.language)
        for span in rendered.spans[:MAX_ENTITIES]
    ] or None


def _sendable(text: str) -> str:
    """`text` without what cannot be encoded: lone halves of surrogate pairs."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _kind(media_type: str, size: int) -> str:
    """What a file is sent as. What Telegram does not show or play is a document."""
    if media_type in {"image/jpeg", "image/png", "image/webp"}:
        return "photo" if size <= FileSizeLimit.PHOTOSIZE_UPLOAD else "document"
    return _KINDS.get(media_type, "document")


def _read(file: OutboundAttachment) -> bytes:
    """The whole file: a second attempt sends it from the beginning. Raises SendRejected."""
    limit = FileSizeLimit.FILESIZE_UPLOAD
    try:
        with Path(file.path).open("rb") as stream:
            content = stream.read(limit + 1)
    except OSError as error:
        raise SendRejected(f"cannot read {file.name}: {error.strerror}") from error
    if len(content) > limit:
        raise SendRejected(f"{file.name} is larger than {limit // 1_000_000} MB")
    return content
