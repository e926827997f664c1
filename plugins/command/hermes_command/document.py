"""What the program reads on its stdin: one turn, as one JSON document. `docs/turn.schema.json`.

Within version 1 fields may be added and none is removed or changes its meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from hermes_core import HistoryMessage, Turn, TurnMessage

Seconds = Annotated[float, msgspec.Meta(description="UNIX time in seconds, UTC")]


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file that came with a message."""

    name: str
    media_type: str
    size: Annotated[int | None, msgspec.Meta(description="In bytes; null if it is not known")]
    path: Annotated[str, msgspec.Meta(description="Where its content is; empty if it is not there")]
    problem: Annotated[str, msgspec.Meta(description="Why it is not there; else empty")]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message to answer."""

    text: str
    sender: Annotated[
        str, msgspec.Meta(description="The same for all messages of a person; opaque")
    ]
    sender_name: Annotated[
        str, msgspec.Meta(description="For display; people can change it at will")
    ]
    received_at: Seconds
    quoted: Annotated[str, msgspec.Meta(description="The text that it replies to; may be empty")]
    attachments: tuple[File, ...]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the conversation before this turn."""

    role: Literal["user", "assistant"]
    text: str
    sender_name: str
    created_at: Seconds


class TurnDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One turn: what to answer, and what was said before. There are no addresses in it."""

    version: Literal[1]
    turn_id: str
    session_id: Annotated[
        str,
        msgspec.Meta(description="Names the memory of the conversation; another one after a reset"),
    ]
    attempt: Annotated[
        int,
        msgspec.Meta(
            ge=1, description="More than 1 when a crash of the gateway cut an earlier run short"
        ),
    ]
    profile: str
    chat_kind: Literal["dm", "group", "channel", "thread"]
    hint: Annotated[
        str, msgspec.Meta(description="What the chat can show, in words for a model; may be empty")
    ]
    messages: Annotated[
        tuple[Message, ...], msgspec.Meta(min_length=1, description="Oldest first; often just one")
    ]
    history: Annotated[
        tuple[Line, ...],
        msgspec.Meta(description="Oldest first, within the budget of the settings"),
    ]


def turn_document(turn: Turn, history: Sequence[HistoryMessage]) -> TurnDocument:
    """The document of a turn."""
    return TurnDocument(
        version=1,
        turn_id=turn.id,
        session_id=turn.session_id,
        attempt=turn.attempt,
        profile=turn.scope.name,
        chat_kind=turn.chat_kind,
        hint=turn.hint,
        messages=tuple(map(_message, turn.messages)),
        history=tuple(map(_line, history)),
    )


def turn_text(turn: Turn) -> str:
    """Just the texts of the messages, for programs that read plain text."""
    return "\n\n".join(message.text for message in turn.messages)


def _message(message: TurnMessage) -> Message:
    files = [
        File(
            name=item.name,
            media_type=item.media_type,
            size=item.size,
            path=item.path,
            problem=item.problem,
        )
        for item in message.attachments
    ]
    return Message(
        text=message.text,
        sender=message.sender,
        sender_name=message.sender_name,
        received_at=message.received_at,
        quoted=message.quoted,
        attachments=tuple(files),
    )


def _line(line: HistoryMessage) -> Line:
    return Line(
        role=line.role,
        text=line.text,
        sender_name=line.sender_name,
        created_at=line.created_at,
    )
