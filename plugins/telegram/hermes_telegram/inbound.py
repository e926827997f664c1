"""Updates to events of the contract. Pure: no call, no state."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hermes_core import (
    Action,
    Address,
    Attachment,
    ChatKind,
    Edited,
    Message,
    Reaction,
    Sender,
)
from hermes_telegram import wire

Event: TypeAlias = Message | Edited | Reaction | Action
"""What Telegram tells us of: it keeps deletions to itself."""

MakeAddress = Callable[[str, ChatKind, str | None], Address]
"""chat id, kind, thread id."""

GENERAL = 1
"""The id of a forum's General topic, should it be named: it is the group itself."""
_COMMAND_FOR = re.compile(r"/[A-Za-z0-9_]+@([A-Za-z0-9_]+)(?!\S)", re.ASCII)
"""A command that names its bot; a path such as ``/home/ann@host.example`` is none."""

_KINDS: dict[str, ChatKind] = {
    "private": "dm",
    "group": "group",
    "supergroup": "group",
    "channel": "channel",
}
_FILES = (
    ("document", "document", "application/octet-stream"),
    ("audio", "audio", "audio/mpeg"),
    ("video", "video.mp4", "video/mp4"),
    ("voice", "voice.ogg", "audio/ogg"),
    ("video_note", "video-note.mp4", "video/mp4"),
    ("animation", "animation.mp4", "video/mp4"),
)
"""Field of a message, name of a file without one, media type of a file that states none."""


@dataclass
class Reader:
    """Reads updates as the bot `own_id`, whose name is `username`. The name may be changed."""

    own_id: int
    username: str
    address: MakeAddress

    def events(self, update: wire.Update) -> list[Event]:
        """What an update says to us: nothing, or one event, or several reactions.

        The id of a message's event is the message's own: should Telegram tell of it in two updates,
        it is one event. Every other event has the update's id, or the callback's.
        """
        said = update.message or update.channel_post
        if said is not None:
            message = self.message([said])
            return [] if message is None else [message]
        edited = update.edited_message or update.edited_channel_post
        if edited is not None:
            return self._edited(update.update_id, edited)
        if update.callback_query is not None:
            return self._action(update.callback_query)
        if update.message_reaction is not None:
            return self._reactions(update.update_id, update.message_reaction)
        return []

    def message(self, items: Sequence[wire.Message]) -> Message | None:
        """One message, or the items of an album as one. None when it is not for us."""
        items = sorted(items, key=lambda item: item.message_id)
        first = items[0]
        sender = _sender(first)
        text = "\n".join(filter(None, map(self._text, items)))
        attachments = tuple(file for item in items for file in _attachments(item))
        if sender is None or not (text or attachments):
            return None
        text = _forwarded(first, text)
        if self._is_for_another(first, text):
            return None
        answered = _answered(first)
        return Message(
            address=self._address(first),
            sender=sender,
            event_id=_event_id(items),
            message_id=str(first.message_id),
            sent_at=float(first.date) or None,
            text=self._without_own_name(text),
            attachments=attachments,
            reply_to=None if answered is None else str(answered.message_id),
            quoted=_quoted(first, answered),
            mentions_me=any(self._is_meant(item, sender) for item in items),
        )

    # ── the other kinds ──────────────────────────────────────────────────────────────────────────

    def _edited(self, update_id: int, edited: wire.Message) -> list[Event]:
        sender = _sender(edited)
        text = self._text(edited)
        attachments = tuple(_attachments(edited))
        if sender is None or edited.location or not (text or attachments):
            return []  # a live location is edited every few seconds
        if self._is_for_another(edited, text):
            return []
        return [
            Edited(
                address=self._address(edited),
                sender=sender,
                event_id=f"u{update_id}",
                sent_at=float(edited.edit_date or edited.date) or None,
                message_id=str(edited.message_id),
                text=self._without_own_name(text),
                attachments=attachments,
                mentions_me=self._is_meant(edited, sender),
            )
        ]

    def _action(self, pressed: wire.Callback) -> list[Event]:
        if pressed.message is None or not pressed.data:
            return []  # a game, or a button under an inline result of another chat
        return [
            Action(
                address=self._address(pressed.message),
                sender=_person(pressed.sender),
                event_id=f"c{pressed.id}",
                message_id=str(pressed.message.message_id),
                value=pressed.data,
            )
        ]

    def _reactions(self, update_id: int, change: wire.ReactionChange) -> list[Event]:
        if change.user is not None:
            sender = _person(change.user)
        elif change.actor_chat is not None:
            sender = _chat_as_sender(change.actor_chat)
        else:
            return []
        before = [_emoji(reaction) for reaction in change.old_reaction]
        after = [_emoji(reaction) for reaction in change.new_reaction]
        changes = [(emoji, True) for emoji in before if emoji not in after]
        changes += [(emoji, False) for emoji in after if emoji not in before]
        address = self.address(str(change.chat.id), _kind(change.chat), None)
        return [
            Reaction(
                address=address,
                sender=sender,
                event_id=f"u{update_id}.{number}",
                sent_at=float(change.date) or None,
                message_id=str(change.message_id),
                emoji=emoji,
                removed=removed,
            )
            for number, (emoji, removed) in enumerate(changes)
        ]

    # ── who is meant ─────────────────────────────────────────────────────────────────────────────

    def _address(self, message: wire.Message) -> Address:
        thread = None
        if message.is_topic_message and message.message_thread_id not in {None, GENERAL}:
            thread = str(message.message_thread_id)
        return self.address(str(message.chat.id), _kind(message.chat), thread)

    def _text(self, message: wire.Message) -> str:
        return message.text or message.caption or _described(message)

    def _is_meant(self, message: wire.Message, sender: Sender) -> bool:
        """That a bot answers us is no mention: two bots would never stop."""
        if message.chat.type == "private" or self._mentioned(message):
            return True
        return not sender.is_bot and self._is_answer_to_me(_answered(message))

    def _mentioned(self, message: wire.Message) -> bool:
        text = message.text or message.caption
        entities = message.entities or message.caption_entities
        if not entities:
            return False
        units = text.encode("utf-16-le", "surrogatepass")
        return any(self._names_me(entity, units) for entity in entities)

    def _names_me(self, entity: wire.Entity, units: bytes) -> bool:
        if entity.type == "text_mention":
            return entity.user is not None and entity.user.id == self.own_id
        if entity.type not in {"mention", "bot_command"} or not self.username:
            return False
        part = units[2 * entity.offset : 2 * (entity.offset + entity.length)]
        _, at, name = part.decode("utf-16-le", "replace").partition("@")
        return bool(at) and name.casefold() == self.username.casefold()

    def _is_answer_to_me(self, answered: wire.Message | None) -> bool:
        return (
            answered is not None
            and answered.sender is not None
            and answered.sender.id == self.own_id
        )

    def _is_for_another(self, message: wire.Message, text: str) -> bool:
        """A command for another bot of the group: ``/status@other_bot``."""
        name = _addressee(text)
        return message.chat.type != "private" and bool(name) and not self._is_me(name)

    def _is_me(self, name: str) -> bool:
        return name.casefold() == self.username.casefold()

    def _without_own_name(self, text: str) -> str:
        """``/stop@this_bot now`` as ``/stop now``."""
        name = _addressee(text)
        return text.replace(f"@{name}", "", 1) if name and self._is_me(name) else text


def migration(update: wire.Update) -> tuple[str, str] | None:
    """The old and the new id of a group that has become a supergroup. Telegram says so in both
    chats, by service messages that nobody else can write."""
    said = update.message
    if said is None:
        return None
    if said.migrate_to_chat_id is not None:
        return str(said.chat.id), str(said.migrate_to_chat_id)
    if said.migrate_from_chat_id is not None:
        return str(said.migrate_from_chat_id), str(said.chat.id)
    return None


def album_id(update: wire.Update) -> str | None:
    """The album that a new message belongs to."""
    said = update.message or update.channel_post
    return None if said is None else said.media_group_id


def chat_id(update: wire.Update) -> int:
    """The chat that an update is about, 0 for one that is about none."""
    said = (
        update.message
        or update.channel_post
        or update.edited_message
        or update.edited_channel_post
        or (update.callback_query and update.callback_query.message)
        or update.message_reaction
    )
    return said.chat.id if said else 0


def _addressee(text: str) -> str:
    """The bot that a command names, "" for a text that is none or names nobody."""
    found = _COMMAND_FOR.match(text)
    return "" if found is None else found[1]


def _event_id(items: Sequence[wire.Message]) -> str:
    """An album's id tells how many of its items were there. One more is another event: better said
    twice than lost."""
    first = items[0].message_id
    return f"m{first}" if len(items) == 1 else f"m{first}+{len(items) - 1}"


def _kind(chat: wire.Chat) -> ChatKind:
    return _KINDS.get(chat.type, "group")


def _sender(message: wire.Message) -> Sender | None:
    """Who said it. What is said in the name of a chat has the chat's id: the account that Telegram
    puts in its place stands for every anonymous administrator there is."""
    if message.sender_chat is not None:
        return _chat_as_sender(message.sender_chat)
    if message.sender is not None:
        return _person(message.sender)
    return _chat_as_sender(message.chat) if message.chat.type == "channel" else None


def _person(user: wire.User) -> Sender:
    name = f"{user.first_name} {user.last_name}".strip() or user.username
    return Sender(id=str(user.id), name=name, is_bot=user.is_bot)


def _chat_as_sender(chat: wire.Chat) -> Sender:
    return Sender(id=str(chat.id), name=chat.title)


def _emoji(reaction: wire.ReactionType) -> str:
    if reaction.type == "emoji":
        return reaction.emoji
    return f"custom:{reaction.custom_emoji_id}" if reaction.custom_emoji_id else reaction.type


def _answered(message: wire.Message) -> wire.Message | None:
    """The message that this one replies to. In a topic every message "replies" to its beginning."""
    answered = message.reply_to_message
    if answered is None:
        return None
    starts_topic = message.is_topic_message and answered.message_id == message.message_thread_id
    return None if starts_topic else answered


def _quoted(message: wire.Message, answered: wire.Message | None) -> str:
    if message.quote is not None:
        return message.quote.text
    if answered is None:
        return ""
    return answered.text or answered.caption or _described(answered) or _kind_of_file(answered)


def _kind_of_file(message: wire.Message) -> str:
    """Words for a file that is only spoken of."""
    if message.photo:
        return "[photo]"
    found = [field for field, _, _ in _FILES if getattr(message, field) is not None]
    return f"[{found[-1].replace('_', ' ')}]" if found else ""


def _forwarded(message: wire.Message, text: str) -> str:
    """`text` with whose words they are, if a person forwarded them: they command nothing."""
    origin = message.forward_origin
    if origin is None or message.is_automatic_forward:
        return text
    chat = origin.sender_chat or origin.chat
    name = origin.sender_user_name or (chat.title if chat else "")
    if origin.sender_user is not None:
        name = _person(origin.sender_user).name
    return f"[forwarded from {name or 'somebody'}]\n{text}".strip()


def _described(message: wire.Message) -> str:
    """Words for what is neither text nor a file; "" for a service message."""
    if message.location is not None:
        return f"[location {message.location.latitude}, {message.location.longitude}]"
    if message.contact is not None:
        contact = message.contact
        name = f"{contact.first_name} {contact.last_name}".strip()
        return f"[contact {name} {contact.phone_number}]"
    if message.poll is not None:
        return f"[poll: {message.poll.question}]"
    if message.sticker is not None:
        return f"[sticker {message.sticker.emoji}]"
    return ""


def _attachments(message: wire.Message) -> list[Attachment]:
    found = []
    if message.photo:
        largest = max(message.photo, key=lambda size: size.width * size.height)
        found.append(
            Attachment(
                ref=largest.file_id,
                name=f"photo-{message.message_id}.jpg",
                media_type="image/jpeg",
                size=largest.file_size,
            )
        )
    for field, name, media_type in _FILES:
        file: wire.File | None = getattr(message, field)
        # An animation comes as a document too, for clients from before there were any.
        if file is None or (field == "document" and message.animation is not None):
            continue
        found.append(
            Attachment(
                ref=file.file_id,
                name=file.file_name or name,
                media_type=file.mime_type or media_type,
                size=file.file_size,
            )
        )
    return found
