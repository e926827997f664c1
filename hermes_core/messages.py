"""The values that cross the plugin boundary. All are frozen; all are platform-neutral.

An adapter builds an `Inbound` and hands it to `context.receive`, which answers with a `Received`.
An agent yields `AgentEvent` values. Delivery hands an `Outbound` to an adapter, which answers with
a `Receipt`. Times are UNIX seconds (UTC) as float; lengths are in the unit the platform declares.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

ChatKind: TypeAlias = Literal["dm", "group", "channel", "thread"]


class Address(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a message lives. Adapters make one with `context.address(...)`."""

    platform: str
    account: str = "default"
    chat_id: str
    thread_id: str | None = None
    kind: ChatKind = "dm"

    @property
    def account_key(self) -> str:
        """`telegram` for the default account, `telegram.ops` for another one."""
        return self.platform if self.account == "default" else f"{self.platform}.{self.account}"


class Sender(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who sent an event. `id` is the stable id of the network; `name` is for display only."""

    id: str
    name: str = ""
    is_bot: bool = False


class Attachment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that came with a message.

    `ref` is the adapter's own handle, given back to its `fetch_attachment`; `size` is in bytes as
    the network states it, None if it does not. The core fills in the rest: agents find the content
    at `path`, a file of the profile's, or a `problem` that says why it could not be had.
    """

    ref: str
    name: str = ""
    media_type: str = "application/octet-stream"
    size: int | None = None
    path: str = ""
    problem: str = ""


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """What every inbound event carries.

    `event_id` identifies the event itself on (account, chat) for ever: the network may offer it
    again and it is handled once. Leave it empty where the network has none; the core then makes
    one, and the event cannot be recognised as a repeat. `sent_at` is the network's time of it, if
    known.
    """

    address: Address
    sender: Sender
    event_id: str = ""
    sent_at: float | None = None


class Message(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="message"):
    """A person (or a bot) said something.

    `message_id` is what a reply or an edit refers to; empty means the same as `event_id`.
    `mentions_me` says that the account was addressed (mention, reply to its message, or a direct
    chat).
    """

    text: str
    message_id: str = ""
    attachments: tuple[Attachment, ...] = ()
    reply_to: str | None = None
    quoted: str = ""
    mentions_me: bool = False


class Edited(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="edited"):
    """An earlier message, `message_id`, now reads `text`. `mentions_me` is as for a message."""

    message_id: str
    text: str
    attachments: tuple[Attachment, ...] = ()
    mentions_me: bool = False


class Deleted(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="deleted"):
    """An earlier message, `message_id`, was withdrawn."""

    message_id: str


class Reaction(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="reaction"):
    """`emoji` was put on the message `message_id`, or taken off it."""

    message_id: str
    emoji: str
    removed: bool = False


class Action(_Event, frozen=True, kw_only=True, omit_defaults=True, tag="action"):
    """A button with the opaque `value` was pressed under the message `message_id`."""

    message_id: str
    value: str


Inbound: TypeAlias = Message | Edited | Deleted | Reaction | Action


class Accepted(msgspec.Struct, frozen=True, tag=True):
    """Committed to the inbox under `sequence`: it will be handled, also after a crash."""

    sequence: int


class Duplicate(msgspec.Struct, frozen=True, tag=True):
    """The same event was committed before, under `sequence`. Acknowledge it."""

    sequence: int


class Denied(msgspec.Struct, frozen=True, tag=True):
    """No grant. Acknowledge it and stay silent; no content was kept."""

    reason: str


class Refused(msgspec.Struct, frozen=True, tag=True):
    """Granted, but not taken, for a `reason` that may be shown to the sender. Acknowledge it."""

    reason: str


class Handled(msgspec.Struct, frozen=True, tag=True):
    """A command, stored under `sequence`. The core answers it by an `Outbound` like any other."""

    sequence: int
    command: str


Received: TypeAlias = Accepted | Duplicate | Denied | Refused | Handled

OutboundKind: TypeAlias = Literal["final", "notice", "error", "question", "commentary", "preview"]


class Button(msgspec.Struct, frozen=True, kw_only=True):
    """A button below a message. Pressing it is an `Action` with its `value`: at most 64 bytes (Bot
    API, InlineKeyboardButton.callback_data)."""

    label: str
    value: str


class OutboundAttachment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file to send. `path` is a private copy that nobody changes before it is sent."""

    path: str
    name: str
    media_type: str = "application/octet-stream"


class Outbound(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message to a platform, already within the platform's length.

    `id` and `created_at` are stable: the same row sent again carries the same values, so that
    network ids, nonces and signed events can be derived from them. `reply_to` is the message id to
    anchor to. `answers` are the event ids of the inbound events that this text answers, complete
    when `part == parts`. `repeated` says that an earlier attempt may have arrived; a visible mark
    is already in `text` where the platform needs one. `buttons` are there only if the platform
    declares that it shows them; an edit takes them away.
    """

    id: str
    created_at: float
    address: Address
    text: str
    kind: OutboundKind = "final"
    reply_to: str | None = None
    answers: tuple[str, ...] = ()
    part: int = 1
    parts: int = 1
    repeated: bool = False
    plain: bool = False
    attachments: tuple[OutboundAttachment, ...] = ()
    buttons: tuple[Button, ...] = ()


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the platform says it accepted. `message_id` is empty where the network gives none."""

    message_id: str = ""


class Text(msgspec.Struct, frozen=True, tag=True):
    """The next piece of the answer. Pieces add up to the final text unless a `Final` replaces
    it."""

    text: str


class Commentary(msgspec.Struct, frozen=True, tag=True):
    """A remark beside the answer ("looking that up"). Shown as progress, never part of the
    answer."""

    text: str


class ToolStart(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """The agent begins to use a tool. `call_id` is unique within the turn."""

    call_id: str
    name: str
    input: dict[str, object] = msgspec.field(default_factory=dict)


class ToolEnd(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A tool use ended. `error` is empty when it worked."""

    call_id: str
    name: str
    output: str = ""
    error: str = ""


class SubagentEnd(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """A helper agent that the agent had started has ended. `error` is empty when it worked."""

    id: str
    name: str = ""
    output: str = ""
    error: str = ""


class Attach(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Send the file at `path` along with the answer."""

    path: str
    name: str = ""
    media_type: str = "application/octet-stream"


class Consumed(msgspec.Struct, frozen=True, tag=True):
    """The agent took the steered message with this `token` into the running turn."""

    token: str


class Final(msgspec.Struct, frozen=True, tag=True):
    """The whole answer, instead of the pieces so far."""

    text: str


class Usage(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """What the turn cost so far, in tokens. Later values replace earlier ones."""

    input_tokens: int = 0
    output_tokens: int = 0
    model: str = ""


AgentEvent: TypeAlias = (
    Text | Commentary | ToolStart | ToolEnd | SubagentEnd | Attach | Consumed | Final | Usage
)

encode = msgspec.json.Encoder().encode
"""Any of these values as JSON, the form in which they are stored."""

_inbound = msgspec.json.Decoder(Inbound)


def decode_inbound(payload: bytes) -> Inbound | None:
    """The inverse of `encode` for an event; None when there is none in it: it was erased, or
    damaged."""
    try:
        return _inbound.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
