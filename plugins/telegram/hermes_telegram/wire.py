"""What the Bot API sends, as far as we read it.

Updates are decoded here and not by the client library, which fails a whole batch when one update in
it has an unexpected shape: one odd message would keep the bot deaf. Unknown fields are skipped.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias

import msgspec

log = logging.getLogger(__name__)

UPDATE_KINDS = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "callback_query",
    "message_reaction",
)
"""What is asked for. Reactions are sent only to bots that name them."""


Number: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Every number of the Bot API: of 52 bits at most. JSON itself has no limit."""


class User(msgspec.Struct, frozen=True):
    id: Number
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""


class Chat(msgspec.Struct, frozen=True):
    id: Number
    type: str = ""
    title: str = ""


class Entity(msgspec.Struct, frozen=True):
    """`offset` and `length` are UTF-16 code units."""

    type: str
    offset: Number
    length: Number
    user: User | None = None


class File(msgspec.Struct, frozen=True):
    """A document, video, voice message and so on. `file_size` is in bytes."""

    file_id: str
    file_name: str = ""
    mime_type: str = ""
    file_size: Number | None = None
    width: Number = 0
    height: Number = 0
    emoji: str = ""


class Quote(msgspec.Struct, frozen=True):
    text: str = ""


class Location(msgspec.Struct, frozen=True):
    latitude: float
    longitude: float


class Contact(msgspec.Struct, frozen=True):
    phone_number: str
    first_name: str = ""
    last_name: str = ""


class Poll(msgspec.Struct, frozen=True):
    question: str = ""


class Origin(msgspec.Struct, frozen=True):
    """Who wrote what was forwarded: a person, one who hides behind a name, or a chat."""

    sender_user: User | None = None
    sender_user_name: str = ""
    sender_chat: Chat | None = None
    chat: Chat | None = None


class Message(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    """A message of any kind. Times are UNIX seconds."""

    message_id: Number
    chat: Chat
    date: Number = 0
    edit_date: Number | None = None
    sender: User | None = None
    sender_chat: Chat | None = None
    message_thread_id: Number | None = None
    is_topic_message: bool = False
    media_group_id: str | None = None
    reply_to_message: Message | None = None
    quote: Quote | None = None
    forward_origin: Origin | None = None
    is_automatic_forward: bool = False
    text: str = ""
    entities: tuple[Entity, ...] = ()
    caption: str = ""
    caption_entities: tuple[Entity, ...] = ()
    photo: tuple[File, ...] = ()
    document: File | None = None
    audio: File | None = None
    video: File | None = None
    voice: File | None = None
    video_note: File | None = None
    animation: File | None = None
    sticker: File | None = None
    location: Location | None = None
    contact: Contact | None = None
    poll: Poll | None = None
    migrate_to_chat_id: Number | None = None
    migrate_from_chat_id: Number | None = None


class Callback(msgspec.Struct, frozen=True, rename={"sender": "from"}):
    id: str
    sender: User
    message: Message | None = None
    data: str = ""


class ReactionType(msgspec.Struct, frozen=True):
    type: str
    emoji: str = ""
    custom_emoji_id: str = ""


class ReactionChange(msgspec.Struct, frozen=True):
    chat: Chat
    message_id: Number
    date: Number = 0
    user: User | None = None
    actor_chat: Chat | None = None
    old_reaction: tuple[ReactionType, ...] = ()
    new_reaction: tuple[ReactionType, ...] = ()


class Update(msgspec.Struct, frozen=True):
    """One thing that happened; at most one of the optional fields is there."""

    update_id: Number
    message: Message | None = None
    edited_message: Message | None = None
    channel_post: Message | None = None
    edited_channel_post: Message | None = None
    callback_query: Callback | None = None
    message_reaction: ReactionChange | None = None


class _Identified(msgspec.Struct, frozen=True):
    update_id: Number


class _Answer(msgspec.Struct, frozen=True):
    ok: Literal[True]
    result: tuple[msgspec.Raw, ...]


_answers = msgspec.json.Decoder(_Answer)
_updates = msgspec.json.Decoder(Update)
_identified = msgspec.json.Decoder(_Identified)
_BEGINNING = re.compile(rb'\s*\{\s*"update_id"\s*:\s*([0-9]{1,18})\s*[,}]')
_RESULT = re.compile(rb'\s*\{\s*"ok"\s*:\s*true\s*,\s*"result"\s*:\s*\[')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)


def decode_update(payload: bytes | msgspec.Raw) -> Update:
    """One update. One of a shape that we cannot read is empty apart from its id, and is logged.

    Raises ValueError when not even the id can be read.
    """
    try:
        return _updates.decode(payload)
    except (ValueError, RecursionError):
        pass  # once more, by a reader that takes halves of characters
    try:
        return msgspec.convert(json.loads(bytes(payload).decode("utf-8", "replace")), Update)
    except (ValueError, RecursionError) as error:
        update_id = _update_id(bytes(payload))
        log.error("update %d cannot be read and is skipped: %.300s", update_id, error)
        return Update(update_id)


def decode_answer(payload: bytes) -> Sequence[Update]:
    """The updates in the body of an answer to ``getUpdates``.

    One without an id is left out: whatever comes behind it confirms it.

    Raises ValueError if it is no answer, or one with nothing but such updates.
    """
    try:
        found: Sequence[bytes | msgspec.Raw] = _answers.decode(payload).result
    except (ValueError, RecursionError):
        if _RESULT.match(payload) is None:
            raise ValueError("not an answer") from None
        found = _apart(payload)
    updates: list[Update] = []
    for raw in found:
        try:
            updates.append(decode_update(raw))
        except ValueError as error:
            log.error("an update without an id is skipped: %.300s", error)
    if found and not updates:
        raise ValueError("no update has an id")
    return updates


def _update_id(payload: bytes) -> int:
    """The id alone, of an update that is too odd for a parser. Telegram writes it first."""
    found = _BEGINNING.match(payload)
    if found is not None:
        return int(found[1])
    try:
        return _identified.decode(payload).update_id
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _apart(payload: bytes) -> list[bytes]:
    """The objects in the one list of an answer, each as it was written, however deep they are."""
    depth = 0
    edges: list[int] = []
    for token in _TOKEN.finditer(payload):
        if token[0] in b"[{":
            depth += 1
            if depth == 3:  # noqa: PLR2004 - the answer, its list, an update
                edges.append(token.start())
        elif token[0] in b"]}":
            if depth == 3:  # noqa: PLR2004
                edges.append(token.end())
            depth -= 1
    return [payload[start:end] for start, end in list(pairwise(edges))[::2]]
