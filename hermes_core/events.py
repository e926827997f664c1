"""What notify hooks are told. Facts only: no live object of the core travels in them."""

from __future__ import annotations

from typing import Literal

import msgspec

from hermes_core.messages import Address, Outbound, Sender


class GatewayInfo(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    pid: int
    profiles: tuple[str, ...]


class PlatformInfo(msgspec.Struct, frozen=True, kw_only=True):
    platform: str
    account: str
    is_reconnect: bool = False
    reason: str = ""


class MessageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An event of type `type` that was taken in (`sequence` set) or refused (`reason` set)."""

    type: str
    address: Address
    sender: Sender
    event_id: str
    sequence: int | None = None
    session_key: str = ""
    reason: str = ""


class DenialInfo(msgspec.Struct, frozen=True, kw_only=True):
    address: Address
    sender_id: str
    reason: str


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    session_id: str
    session_key: str
    generation: int
    address: Address
    reason: str = ""


class TurnInfo(msgspec.Struct, frozen=True, kw_only=True):
    turn_id: str
    session_id: str
    session_key: str
    address: Address
    attempt: int
    messages: tuple[str, ...]
    """The texts that the turn answers."""
    event_ids: tuple[str, ...] = ()
    """The ids of the events that brought them, in the same order."""


TurnOutcome = Literal["answered", "silent", "failed", "cancelled", "timed_out", "interrupted"]


class TurnEnd(msgspec.Struct, frozen=True, kw_only=True):
    turn: TurnInfo
    outcome: TurnOutcome
    text: str = ""
    """The whole answer, empty without one."""
    error: str = ""
    """Why there is no answer. Empty with one, and for an agent that chose to say nothing."""
    duration: float = 0.0
    """Seconds, monotonic."""
    input_tokens: int = 0
    output_tokens: int = 0
    model: str = ""


class ToolCallEnd(msgspec.Struct, frozen=True, kw_only=True):
    """A use of a tool that ended. `error` is empty when it worked."""

    turn_id: str
    session_id: str
    session_key: str
    address: Address
    call_id: str
    name: str
    input: dict[str, object] = msgspec.field(default_factory=dict)
    output: str = ""
    error: str = ""
    duration: float = 0.0
    """Seconds, monotonic, from when the agent said that it began."""


class SubagentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A helper of an agent that ended. `error` is empty when it worked."""

    turn_id: str
    session_id: str
    session_key: str
    address: Address
    id: str
    name: str = ""
    output: str = ""
    error: str = ""


class HousekeepingInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile is busy with at this moment."""

    running_turns: int = 0
    waiting: int = 0
    """Messages that wait for a turn."""


class DeliveryInfo(msgspec.Struct, frozen=True, kw_only=True):
    message: Outbound
    session_key: str
    turn_id: str | None
    message_id: str = ""
    """The platform's id of it, when delivered."""
    attempts: int = 1
    reason: str = ""
