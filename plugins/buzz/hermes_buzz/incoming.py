"""From events of a channel to what the core takes in."""

from __future__ import annotations

import logging
import posixpath
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from hermes_buzz import bridge
from hermes_buzz.events import DELETIONS, MESSAGES, OUTBOX_TAG, Event, Kind
from hermes_buzz.membership import Channel
from hermes_buzz.threads import place_of
from hermes_buzz.trouble import RelayError
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

Find = Callable[[str], Awaitable[Event | None]]

log = logging.getLogger(__name__)

MAX_ATTACHMENTS = 4
MAX_KNOWN = 4096
"""Messages whose author and place are remembered; others are looked up at the relay."""


class Known(NamedTuple):
    """What has to be known of an event that others refer to."""

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
        looks up an event of the same channel by its id."""
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
        if message_id in self._known:
            return self._known[message_id].root
        event = await find(message_id)
        return "" if event is None else self._remember(event, channel).root

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
        known = await self._lookup(target, channel, find)
        if known is None or known.author != event.pubkey:
            return []
        mentions_me = known.addressed or self._me in event.values("p")
        if mentions_me and not known.addressed:
            # Only now it is for this account: the mention was added, or the text was streamed.
            self._keep(target, known._replace(addressed=True))
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

    async def _reaction(
        self,
        event: Event,
        channel: Channel,
        sender: Sender,
        find: Find,
    ) -> list[Inbound]:
        target = (list(event.values("e")) or [""])[-1]  # the relay goes by the last one, too
        known = await self._lookup(target, channel, find)
        mine = known is not None and known.author == self._me
        if known is None or known.reaction_to or not (known.addressed or mine):
            return []
        self._keep(event.id, Known(event.pubkey, known.root, True, target, event.content))
        return [
            Reaction(
                address=self._address(channel, known.root),
                sender=sender,
                event_id=event.id,
                sent_at=float(event.created_at),
                message_id=target,
                emoji=event.content,
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
        found: list[Inbound] = []
        for target in dict.fromkeys(event.values("e")):
            known = await self._lookup(target, channel, find)
            if known is None:
                continue
            if event.kind == Kind.DELETION and known.author != event.pubkey:
                continue
            found.append(self._withdrawn(event, target, known, channel, sender))
        return found

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
            target, emoji = (list(event.values("e")) or [""])[-1], event.content
        known = Known(event.pubkey, root, addressed, target, emoji)
        self._keep(event.id, known)
        return known

    def _keep(self, event_id: str, known: Known) -> None:
        self._known[event_id] = known
        self._known.move_to_end(event_id)
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)

    async def _lookup(self, event_id: str, channel: Channel, find: Find) -> Known | None:
        if event_id in self._known or not event_id:
            return self._known.get(event_id)
        try:
            event = await find(event_id)
        except RelayError as error:
            log.info("what an event refers to cannot be looked up: %s", error)
            return None
        return None if event is None else self._remember(event, channel)


def attachments_of(event: Event, origin: str) -> tuple[Attachment, ...]:
    """The files of the relay at `origin` that an event describes by imeta tags, fetched by nobody
    yet. Others are left to the text."""
    found: dict[str, Attachment] = {}
    for tag in event.tags:
        if tag[:1] != ("imeta",):
            continue
        facts = dict(item.split(" ", 1) for item in reversed(tag[1:]) if " " in item)
        url = facts.get("url", "")
        digest = bridge.media_hash(url, origin)
        size = (
            int(facts["size"])
            if facts.get("size", "").isascii() and facts.get("size", "").isdecimal()
            else None
        )
        if not digest or facts.get("x", digest) != digest or (size or 0) > bridge.MAX_FILE:
            continue
        found[url] = Attachment(
            ref=url,
            name=facts.get("filename") or unquote(posixpath.basename(urlsplit(url).path)),
            media_type=facts.get("m", "application/octet-stream"),
            size=size,
        )
    return tuple(found.values())[:MAX_ATTACHMENTS]


def _is_agent(event: Event, channel: Channel) -> bool:
    return event.has("auth") or event.has(OUTBOX_TAG) or event.pubkey in channel.bots
