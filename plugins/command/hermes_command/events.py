"""What a line of JSON on the program's stdout can say. `docs/event.schema.json`."""

from __future__ import annotations

import json
import mimetypes
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from hermes_core import (
    AgentEvent,
    Attach,
    Commentary,
    Final,
    Text,
    ToolEnd,
    ToolStart,
    Usage,
)

Count = Annotated[int, msgspec.Meta(ge=0)]
NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class TextLine(msgspec.Struct, frozen=True, tag="text"):
    """The next piece of the answer. The pieces add up to it."""

    text: str


class CommentaryLine(msgspec.Struct, frozen=True, tag="commentary"):
    """A remark beside the answer, shown as progress."""

    text: str


class ToolStartLine(msgspec.Struct, frozen=True, tag="tool_start"):
    """A tool is used. `call_id` is unique within the turn."""

    call_id: str
    name: str
    input: dict[str, Any] = msgspec.field(default_factory=dict)


class ToolEndLine(msgspec.Struct, frozen=True, tag="tool_end"):
    """The use of a tool has ended. `error` is empty when it worked."""

    call_id: str
    name: str
    output: str = ""
    error: str = ""


class AttachLine(msgspec.Struct, frozen=True, tag="attach"):
    """Send a file along with the answer. A relative `path` begins at the working directory."""

    path: NonEmpty
    name: str = ""
    media_type: str = ""


class FinalLine(msgspec.Struct, frozen=True, tag="final"):
    """The whole answer, instead of the pieces so far."""

    text: str


class UsageLine(msgspec.Struct, frozen=True, tag="usage"):
    """What the turn has cost so far, in tokens. Later lines replace earlier ones."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    model: str = ""


Choice = Annotated[str, msgspec.Meta(min_length=1, max_length=40)]


class AskLine(msgspec.Struct, frozen=True, tag="ask"):
    """Let the person choose, and wait up to `limit` seconds. The answer is a line on stdin, which
    the setting `dialogue` keeps open: a JSON object with `choice`, null when nobody chose. The
    question goes when the program ends."""

    text: NonEmpty
    choices: Annotated[tuple[Choice, ...], msgspec.Meta(min_length=1, max_length=8)]
    limit: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 300.0


_ChatLine: TypeAlias = (
    TextLine | CommentaryLine | ToolStartLine | ToolEndLine | AttachLine | FinalLine | UsageLine
)
EventLine: TypeAlias = _ChatLine | AskLine
Said: TypeAlias = AgentEvent | AskLine
"""What a program says: to the chat, or to the gateway for an answer."""


class NoEvent(ValueError):
    """A line that says nothing that is known. The text says why and quotes nothing but its type."""


def parse(line: str, cwd: Path) -> Said:
    """The event on a line. Raises NoEvent."""
    try:
        # Not msgspec's parser: it refuses halves of characters, which JavaScript's JSON can hold.
        said = msgspec.convert(json.loads(line), EventLine)
        return said if isinstance(said, AskLine) else _event(said, cwd)
    except msgspec.ValidationError as error:
        raise NoEvent(str(error)) from None
    except (ValueError, RecursionError):
        raise NoEvent("not JSON") from None


def _event(line: _ChatLine, cwd: Path) -> AgentEvent:
    match line:
        case TextLine(text):
            return Text(_whole(text))
        case FinalLine(text):
            return Final(_whole(text))
        case CommentaryLine(text):
            return Commentary(_whole(text))
        case ToolStartLine():
            return ToolStart(call_id=line.call_id, name=_whole(line.name), input=line.input)
        case ToolEndLine():
            output, error = _whole(line.output), _whole(line.error)
            return ToolEnd(call_id=line.call_id, name=_whole(line.name), output=output, error=error)
        case UsageLine():
            return Usage(
                input_tokens=line.input_tokens,
                output_tokens=line.output_tokens,
                model=_whole(line.model),
            )
        case AttachLine():
            path = cwd / line.path
            kind = line.media_type or mimetypes.guess_type(path.name)[0]
            return Attach(
                path=str(path),
                name=_whole(line.name or path.name),
                media_type=_whole(kind or "application/octet-stream"),
            )


def _whole(text: str) -> str:
    """`text` without halves of characters, which no chat can show."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
