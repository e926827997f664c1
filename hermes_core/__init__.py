"""Hermes core: receives messages, decides who may speak, gives each session one turn at a time,
and delivers every answer.

`__all__` is the public API: what a plugin may import; nothing else is promised to stay. It is
loaded when one of its names is first asked for, so that a command that needs none starts sooner.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_core.agents import Agent, AgentType, HistoryMessage, Turn, TurnMessage
    from hermes_core.chat_commands import ChatCommand, CommandCall
    from hermes_core.checks import Check, Finding
    from hermes_core.errors import (
        AccountFailed,
        AgentError,
        ConfigError,
        HermesError,
        NotReady,
        OutcomeUnknown,
        PluginError,
        RateLimited,
        SendError,
        SendFailed,
        SendRejected,
        Unreachable,
    )
    from hermes_core.events import (
        DeliveryInfo,
        DenialInfo,
        GatewayInfo,
        HousekeepingInfo,
        MessageInfo,
        PlatformInfo,
        SessionInfo,
        SubagentInfo,
        ToolCallEnd,
        TurnEnd,
        TurnInfo,
        TurnOutcome,
    )
    from hermes_core.hookspecs import (
        HOOK_API,
        NOTIFY_HOOKS,
        hookimpl,
    )
    from hermes_core.messages import (
        Accepted,
        Action,
        Address,
        AgentEvent,
        Attach,
        Attachment,
        Button,
        ChatKind,
        Commentary,
        Consumed,
        Deleted,
        Denied,
        Duplicate,
        Edited,
        Final,
        Handled,
        Inbound,
        Message,
        Outbound,
        OutboundAttachment,
        OutboundKind,
        Reaction,
        Receipt,
        Received,
        Refused,
        Sender,
        SubagentEnd,
        Text,
        ToolEnd,
        ToolStart,
        Usage,
        encode,
    )
    from hermes_core.offline import profile_scope
    from hermes_core.plain import jsonable
    from hermes_core.platforms import Adapter, AdapterContext, Channel, Platform, utf16_length
    from hermes_core.profiles import ProfileScope
    from hermes_core.secrets import UnresolvedSecret
    from hermes_core.services import (
        DURABLE_HOOKS,
        AnsweringService,
        Description,
        DurableEvent,
        EventCursor,
        KeyValues,
        RunningService,
        Schema,
        Section,
        Service,
        ServiceContext,
        Tables,
    )
    from hermes_core.settings import (
        Bounds,
        Duration,
        PositiveDuration,
        Secret,
        SecretText,
        Settings,
        TableArray,
    )
    from hermes_core.supervision.children import ChildTree, end_leftovers

__all__ = [
    "DURABLE_HOOKS",
    "HOOK_API",
    "NOTIFY_HOOKS",
    "Accepted",
    "AccountFailed",
    "Action",
    "Adapter",
    "AdapterContext",
    "Address",
    "Agent",
    "AgentError",
    "AgentEvent",
    "AgentType",
    "AnsweringService",
    "Attach",
    "Attachment",
    "Bounds",
    "Button",
    "Channel",
    "ChatCommand",
    "ChatKind",
    "Check",
    "ChildTree",
    "CommandCall",
    "Commentary",
    "ConfigError",
    "Consumed",
    "Deleted",
    "DeliveryInfo",
    "DenialInfo",
    "Denied",
    "Description",
    "Duplicate",
    "DurableEvent",
    "Duration",
    "Edited",
    "EventCursor",
    "Final",
    "Finding",
    "GatewayInfo",
    "Handled",
    "HermesError",
    "HistoryMessage",
    "HousekeepingInfo",
    "Inbound",
    "KeyValues",
    "Message",
    "MessageInfo",
    "NotReady",
    "Outbound",
    "OutboundAttachment",
    "OutboundKind",
    "OutcomeUnknown",
    "Platform",
    "PlatformInfo",
    "PluginError",
    "PositiveDuration",
    "ProfileScope",
    "RateLimited",
    "Reaction",
    "Receipt",
    "Received",
    "Refused",
    "RunningService",
    "Schema",
    "Secret",
    "SecretText",
    "Section",
    "SendError",
    "SendFailed",
    "SendRejected",
    "Sender",
    "Service",
    "ServiceContext",
    "SessionInfo",
    "Settings",
    "SubagentEnd",
    "SubagentInfo",
    "TableArray",
    "Tables",
    "Text",
    "ToolCallEnd",
    "ToolEnd",
    "ToolStart",
    "Turn",
    "TurnEnd",
    "TurnInfo",
    "TurnMessage",
    "TurnOutcome",
    "Unreachable",
    "UnresolvedSecret",
    "Usage",
    "encode",
    "end_leftovers",
    "hookimpl",
    "jsonable",
    "profile_scope",
    "utf16_length",
]

_MODULES = (
    "hermes_core.agents",
    "hermes_core.chat_commands",
    "hermes_core.checks",
    "hermes_core.errors",
    "hermes_core.events",
    "hermes_core.hookspecs",
    "hermes_core.messages",
    "hermes_core.offline",
    "hermes_core.plain",
    "hermes_core.platforms",
    "hermes_core.profiles",
    "hermes_core.secrets",
    "hermes_core.services",
    "hermes_core.settings",
    "hermes_core.supervision.children",
)


def __getattr__(name: str) -> object:
    if name in __all__:
        for module in map(importlib.import_module, _MODULES):
            if hasattr(module, name):
                value: object = getattr(module, name)
                globals()[name] = value
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
