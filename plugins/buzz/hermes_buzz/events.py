"""Nostr events (NIP-01): read, check, make. Kinds and tags as Buzz uses them."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Annotated, TypeAlias

import msgspec

from hermes_buzz.keys import Signer, verify

Tag: TypeAlias = Sequence[str]
Key = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
Signature = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{128}$")]


class Kind(enum.IntEnum):
    """The kinds that this plugin reads or writes."""

    PROFILE = 0
    DELETION = 5
    REACTION = 7
    CHAT = 9
    MODERATION_DELETION = 9005
    PRESENCE = 20001
    TYPING = 20002
    CLIENT_AUTH = 22242
    UPLOAD_AUTH = 24242
    HTTP_AUTH = 27235
    CHANNEL = 39000
    CHANNEL_MEMBERS = 39002
    MESSAGE_V2 = 40002
    EDIT = 40003
    MEMBER_ADDED = 44100
    MEMBER_REMOVED = 44101
    FORUM_POST = 45001
    FORUM_COMMENT = 45003


ID = re.compile(r"[0-9a-f]{64}", re.ASCII)
"""An event id, or a key."""
MESSAGES = frozenset({Kind.CHAT, Kind.MESSAGE_V2, Kind.FORUM_POST, Kind.FORUM_COMMENT})
DELETIONS = frozenset({Kind.DELETION, Kind.MODERATION_DELETION})
PLACED_BY_TARGET = frozenset({Kind.REACTION, Kind.DELETION})
"""Kinds that need not name their channel: it is that of the event they refer to."""
CHANNEL_KINDS = [
    Kind.CHAT,
    Kind.MESSAGE_V2,
    Kind.EDIT,
    Kind.FORUM_POST,
    Kind.FORUM_COMMENT,
    Kind.DELETION,
    Kind.MODERATION_DELETION,
    Kind.REACTION,
]
"""What is asked for in each channel."""
MAX_EMOJI = 64
"""Characters that the relay takes as a reaction."""
OUTBOX_TAG = "hermes"
"""Names the outbox row behind an event, so that equal texts of the same second are two events. It
also tells other agents that an agent speaks."""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """A signed event. Decoding checks the form only; `is_authentic` checks the rest."""

    id: Key
    pubkey: Key
    created_at: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    kind: Annotated[int, msgspec.Meta(ge=0, le=65535)]
    tags: tuple[tuple[str, ...], ...]
    content: str
    sig: Signature

    @property
    def is_authentic(self) -> bool:
        """The id is that of the content, and the signature that of the author."""
        digest = digest_of(self.pubkey, self.created_at, self.kind, self.tags, self.content)
        return digest.hex() == self.id and verify(self.pubkey, digest, self.sig)

    def values(self, name: str) -> Iterator[str]:
        """The values of all tags of that name, in order."""
        return (tag[1] for tag in self.tags if len(tag) > 1 and tag[0] == name)

    def value(self, name: str) -> str:
        """The value of the first tag of that name, "" when there is none."""
        return next(self.values(name), "")

    def has(self, name: str) -> bool:
        """Whether there is a tag of that name."""
        return any(tag and tag[0] == name for tag in self.tags)

    def is_in(self, channel_id: str) -> bool:
        """Whether the event belongs to the channel in which the relay gave it."""
        named = list(self.values("h"))
        return named == [channel_id] or (not named and self.kind in PLACED_BY_TARGET)

    def as_json(self) -> str:
        """The event as relays take it."""
        return msgspec.json.encode(self).decode()


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An event before it is signed."""

    kind: int
    created_at: int
    tags: tuple[tuple[str, ...], ...] = ()
    content: str = ""

    def id_for(self, public_key: str) -> str:
        """The id that the event will have once this key has signed it."""
        return digest_of(public_key, self.created_at, self.kind, self.tags, self.content).hex()

    def signed(self, signer: Signer) -> Event:
        """The event. Its id depends on the draft and the key alone."""
        author = signer.public_key
        digest = digest_of(author, self.created_at, self.kind, self.tags, self.content)
        return Event(
            id=digest.hex(),
            pubkey=author,
            created_at=self.created_at,
            kind=self.kind,
            tags=self.tags,
            content=self.content,
            sig=signer.sign(digest),
        )


def digest_of(public_key: str, created_at: int, kind: int, tags: Iterable[Tag], text: str) -> bytes:
    """The SHA-256 that is the id. The encoder escapes exactly what NIP-01 wants escaped.

    Raises UnicodeEncodeError for a lone surrogate, which no event can hold.
    """
    form = [0, public_key, created_at, int(kind), tags, text]
    return sha256(msgspec.json.encode(form)).digest()


class EventReader:
    """Decodes events, one decoder for all."""

    _decode = msgspec.json.Decoder(Event).decode

    def read(self, data: bytes | str | msgspec.Raw) -> Event | None:
        """The event in `data` if it is one and is authentic, else None."""
        try:
            event = self._decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return event if event.is_authentic else None


read_event = EventReader().read
