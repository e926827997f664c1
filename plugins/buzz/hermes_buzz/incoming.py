"""From events of a channel to what the core takes in."""

from __future__ import annotations

import logging
import mimetypes
import posixpath
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from hermes_buzz import bridge
from hermes_buzz.events import DELETIONS, ID, MAX_EMOJI, MESSAGES, OUTBOX_TAG, Event, Kind
from hermes_buzz.membership import Channel
from hermes_buzz.subscriptions import Filter
from hermes_buzz.threads import place_of
from hermes_buzz.trouble import ConnectionDown, RelayError, RequestClosed
from hermes_core import (
    Address,
    Attachment,
    Deleted,
    Edited,
    Inbound,
    Message,
    Reaction,
    Sender,
)

if TYPE_CHECKING:
    from hermes_buzz.settings import BuzzSettings
    from hermes_core import AdapterContext

Find = Callable[[Filter], Awaitable[list[Event]]]

log = logging.getLogger(__name__)

MAX_ATTACHMENTS = 4
MAX_NAME = 255
MAX_KNOWN = 4096
"""Messages whose author and place are remembered; others are looked up at the relay."""
MAX_TARGETS = 16
"""Events that one deletion may withdraw; each may have to be looked up."""
MAX_LOOKUPS = 3
"""Tries to look up what an event refers to, before the event is passed over."""
_SIZE = re.compile(r"[0-9]{1,15}", re.ASCII)
_TYPE = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}", re.ASCII)
_TYPES = mimetypes.MimeTypes()


class Known(NamedTuple):
    """What has to be known of an event that others refer to."""

    channel: str
    author: str
    root: str
    addressed: bool
    reaction_to: str = ""
    emoji: str = ""


class Translator:
    """Makes `Inbound` values of authentic events. Remembers what events refer to."""

    def __init__(
        self,
        settings: BuzzSettings,
        context: AdapterContext,
        me: str,
    ) -> None:
        self._settings = settings
        self._context = context
        self._me = me
        self._known: OrderedDict[str, Known] = OrderedDict()

    async def translate(
        self,
        event: Event,
        channel: Channel,
        name: str,
        find: Find,
    ) -> list[Inbound]:
        """What the core should hear of this event; often nothing. `name` is the author's, `find`
        looks up events of the same channel. Raises ConnectionDown when it cannot: the event is to
        be read again by the next connection."""
        if event.pubkey == self._me:
            self._remember(event, channel)
            return []
        sender = Sender(id=event.pubkey, name=name, is_bot=_is_agent(event, channel))
        if event.kind in MESSAGES:
            return self._first_message(event, channel, sender)
        if event.kind == Kind.EDIT:
            return await self._edit(event, channel, sender, find)
        if event.kind == Kind.REACTION:
            return await self._reaction(event, channel, sender, find)
        if event.kind in DELETIONS:
            return await self._deletion(event, channel, sender, find)
        return []

    async def root_of(self, message_id: str, channel: Channel, find: Find) -> str:
        """The root of the thread that a message is in: itself at the top level, "" when there is no
        such message. Raises RelayError when it cannot be looked up."""
        if message_id not in self._known:
            for event in await find({"ids": [message_id]}):
                self._remember(event, channel)
        known = self._known.get(message_id)
        return "" if known is None else known.root

    # ── one kind of event each ───────────────────────────────────────────────────────────────────

    def _first_message(self, event: Event, channel: Channel, sender: Sender) -> list[Inbound]:
        known = self._remember(event, channel)
        return self._message(event, channel, sender, event.id, known.root)

    def _message(
        self, event: Event, channel: Channel, sender: Sender, message_id: str, root: str
    ) -> list[Inbound]:
        return [
            Message(
                address=self._address(channel, root),
                sender=sender,
                event_id=event.id,
                message_id=message_id,
                sent_at=float(event.created_at),
                text=event.content,
                attachments=attachments_of(event, self._settings.http_url),
                reply_to=place_of(event).parent or None,
                mentions_me=channel.kind == "dm" or self._me in event.values("p"),
            )
        ]

    async def _edit(
        self,
        event: Event,
        channel: Channel,
        sender: Sender,
        find: Find,
    ) -> list[Inbound]:
        target = event.value("e")
        known = (await self._lookup([target], channel, find)).get(target)
        if known is None or known.author != event.pubkey:
            return []
        mentions_me = known.addressed or self._me in event.values("p")
        if mentions_me and not known.addressed:
            # Only now it is for this account: the mention was added, or the text was streamed.
            self._keep(target, known._replace(addressed=True))
            if not await self._was_addressed_before(event, target, find):
                return self._message(event, channel, sender, target, known.root)
        return [
            Edited(
                address=self._address(channel, known.root),
                sender=sender,
                event_id=event.id,
                sent_at=float(event.created_at),
                message_id=target,
                text=event.content,
                attachments=attachments_of(event, self._settings.http_url),
                mentions_me=mentions_me,
            )
        ]

    async def _was_addressed_before(self, edit: Event, target: str, find: Find) -> bool:
        """Whether an earlier edit had the mention already, which an earlier connection has seen."""
        edits = await self._found({"kinds": [Kind.EDIT], "#e": [target]}, find)
        return any(
            found.pubkey == edit.pubkey
            and found.created_at < edit.created_at
            and self._me in found.values("p")
            for found in edits
        )

    async def _reaction(
        self,
        event: Event,
        channel: Channel,
        sender: Sender,
        find: Find,
    ) -> list[Inbound]:
        target = _reacts_to(event)
        known = (await self._lookup([target], channel, find)).get(target)
        mine = known is not None and known.author == self._me
        if known is None or known.reaction_to or not (known.addressed or mine):
            return []
        emoji = event.content[:MAX_EMOJI]
        self._keep(event.id, Known(channel.id, event.pubkey, known.root, True, target, emoji))
        return [
            Reaction(
                address=self._address(channel, known.root),
                sender=sender,
                event_id=event.id,
                sent_at=float(event.created_at),
                message_id=target,
                emoji=emoji,
            )
        ]

    async def _deletion(
        self,
        event: Event,
        channel: Channel,
        sender: Sender,
        find: Find,
    ) -> list[Inbound]:
        """Everybody may withdraw what is theirs; a moderator, as the relay allows, what is not."""
        targets = list(dict.fromkeys(event.values("e")))[:MAX_TARGETS]
        known = await self._lookup(targets, channel, find)
        return [
            self._withdrawn(event, target, known[target], channel, sender)
            for target in targets
            if target in known
            and (event.kind != Kind.DELETION or known[target].author == event.pubkey)
        ]

    def _withdrawn(
        self, event: Event, target: str, known: Known, channel: Channel, sender: Sender
    ) -> Inbound:
        address = self._address(channel, known.root)
        event_id = f"{event.id}:{target[:16]}"
        sent_at = float(event.created_at)
        if not known.reaction_to:
            return Deleted(
                address=address,
                sender=sender,
                event_id=event_id,
                sent_at=sent_at,
                message_id=target,
            )
        return Reaction(
            address=address,
            sender=sender,
            event_id=event_id,
            sent_at=sent_at,
            message_id=known.reaction_to,
            emoji=known.emoji,
            removed=True,
        )

    # ── what is known ────────────────────────────────────────────────────────────────────────────

    def _address(self, channel: Channel, root: str) -> Address:
        """Answers open a thread below a message of the top level; in a direct chat, and where
        answers refer to nothing, the chat is one conversation."""
        if channel.kind == "dm":
            return self._context.address(channel.id, kind="dm")
        if not self._settings.threaded:
            return self._context.address(channel.id, kind="channel")
        return self._context.address(channel.id, kind="thread", thread_id=root)

    def _remember(self, event: Event, channel: Channel) -> Known:
        addressed = channel.kind == "dm" or self._me in event.values("p")
        root = place_of(event).root or event.id
        target, emoji = "", ""
        if event.kind == Kind.REACTION:
            target, emoji = _reacts_to(event), event.content[:MAX_EMOJI]
        known = Known(channel.id, event.pubkey, root, addressed, target, emoji)
        self._keep(event.id, known)
        return known

    def _keep(self, event_id: str, known: Known) -> None:
        self._known[event_id] = known
        self._known.move_to_end(event_id)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    async def _lookup(
        self, event_ids: Sequence[str], channel: Channel, find: Find
    ) -> dict[str, Known]:
        """What is known of events of the channel, asking the relay once for those that are new."""
        ids = [event_id for event_id in event_ids if ID.fullmatch(event_id)]
        new = [event_id for event_id in ids if event_id not in self._known]
        if new:
            for event in await self._found({"ids": new}, find):
                self._remember(event, channel)
        known = {event_id: self._known[event_id] for event_id in ids if event_id in self._known}
        return {event_id: one for event_id, one in known.items() if one.channel == channel.id}

    async def _found(self, query: Filter, find: Find) -> list[Event]:
        for _ in range(MAX_LOOKUPS):
            try:
                return await find(query)
            except ConnectionDown:
                raise
            except RelayError as error:
                log.info("what an event refers to cannot be looked up: %s", error)
                if isinstance(error, RequestClosed) and error.is_final:
                    break
        return []


def attachments_of(event: Event, origin: str) -> tuple[Attachment, ...]:
    """The files of the relay at `origin` that an event describes by imeta tags, or shows in its
    text, fetched by nobody yet. Others are left to the text."""
    found: dict[str, Attachment | None] = {}
    for tag in event.tags:
        if tag[:1] == ("imeta",):
            facts = dict(item.split(" ", 1) for item in reversed(tag[1:]) if " " in item)
            found[facts.get("url", "")] = _described(facts, origin)
    for url in bridge.media_in(event.content, origin):
        found.setdefault(url, _described({"url": url}, origin))
    return tuple(file for file in found.values() if file is not None)[:MAX_ATTACHMENTS]


def _described(facts: Mapping[str, str], origin: str) -> Attachment | None:
    url, size = facts.get("url", ""), facts.get("size", "")
    digest = bridge.media_hash(url, origin)
    length = int(size) if _SIZE.fullmatch(size) else None
    if not digest or facts.get("x", digest) != digest or (length or 0) > bridge.MAX_FILE:
        return None
    name = facts.get("filename") or unquote(posixpath.basename(urlsplit(url).path))
    stated = facts.get("m", "")
    guessed = _TYPES.guess_type(url)[0] or "application/octet-stream"
    media_type = stated if _TYPE.fullmatch(stated) else guessed
    return Attachment(ref=url, name=name[:MAX_NAME], media_type=media_type, size=length)


def _reacts_to(event: Event) -> str:
    """What a reaction is on: the last one named, as the relay sees it."""
    return (list(event.values("e")) or [""])[-1]


def _is_agent(event: Event, channel: Channel) -> bool:
    return event.has("auth") or event.has(OUTBOX_TAG) or event.pubkey in channel.bots
