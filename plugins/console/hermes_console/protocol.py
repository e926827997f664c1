"""What an attached client and the adapter say to each other: JSON objects, told apart by `type`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

MAX_TEXT = 1_000_000
"""Longest text of one message, as `frame_length` measures it. A frame has 1,048,576 bytes, the rest
of it is for ids: those of a thousand answered messages fit."""
MAX_ID = 100


def frame_length(text: str) -> int:
    """Bytes that `text` takes in a frame."""
    return len(json.dumps(text))


class Say(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """Client: a message. `id` is made by the client; offered again, it is the same message."""

    id: str
    text: str


class Cancel(msgspec.Struct, frozen=True, tag_field="type", tag="cancel"):
    """Client: stop the turn that runs."""

    id: str


class Attached(msgspec.Struct, frozen=True, tag_field="type", tag="attached"):
    """Adapter: from here on the client is sent what is written to the chat."""

    chat: str


Outcome: TypeAlias = Literal["accepted", "duplicate", "denied", "refused", "handled", "later"]


class Taken(msgspec.Struct, frozen=True, tag_field="type", tag="received", omit_defaults=True):
    """Adapter: the fate of the message `id`. `later` means not taken in; offer it again."""

    id: str
    outcome: Outcome
    reason: str = ""


class Write(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message", omit_defaults=True
):
    """Adapter: show this text, instead of what was shown as the message `replaces` if that is set.

    The same frame may come twice. `answers` are the ids of the client messages that this answers,
    in `parts` parts. `stray` says that no attached client asked for it: whoever did has left.
    """

    id: str
    text: str
    kind: str
    part: int = 1
    parts: int = 1
    answers: tuple[str, ...] = ()
    stray: bool = False
    replaces: str = ""


class Cancelled(msgspec.Struct, frozen=True, tag_field="type", tag="cancelled"):
    """Adapter: the turn that was to answer these client messages was cancelled."""

    answers: tuple[str, ...]


class Silent(msgspec.Struct, frozen=True, tag_field="type", tag="silent"):
    """Adapter: the agent chose to say nothing to these client messages."""

    answers: tuple[str, ...]


FromClient: TypeAlias = Say | Cancel
FromAdapter: TypeAlias = Attached | Taken | Write | Cancelled | Silent


def pack(value: FromClient | FromAdapter) -> dict[str, object]:
    """The object to be sent."""
    frame: dict[str, object] = msgspec.to_builtins(value)
    return frame


def from_client(frame: Mapping[str, Any]) -> FromClient:
    """Raises ValueError for what no client of this version says."""
    value: FromClient = msgspec.convert(frame, FromClient)
    if not 0 < len(value.id) <= MAX_ID:
        raise ValueError(f"expected an id of 1 to {MAX_ID} characters")
    return value


def from_adapter(frame: Mapping[str, Any]) -> FromAdapter:
    """Raises ValueError for what no adapter of this version says."""
    value: FromAdapter = msgspec.convert(frame, FromAdapter)
    return value
