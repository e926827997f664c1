"""Every extension point of Hermes: the contract between the core and its plugins.

A plugin implements a hook by a function (or an adapter method) of the same name, marked
``@hookimpl``, that takes any subset of the arguments by name. It may be plain or ``async def``
except for collect hooks, which are plain. Each entry says when the hook fires, what the arguments
are, what the result means, and since which version of the hook API it exists.

`HOOK_API` is the version of this file. New hooks and new arguments raise its second number; a
removal raises the first, after a period of deprecation. A plugin names the major version it was
written for in its metadata, by requiring ``hermes-gateway[hooks-1]``: see
``docs/decisions/0002-hook-api-version.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

from hermes_core import hookkinds
from hermes_core.hookkinds import Spec

if TYPE_CHECKING:
    from typing import BinaryIO

    from hermes_core.agents import AgentType
    from hermes_core.chat_commands import ChatCommand
    from hermes_core.checks import Check
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
    )
    from hermes_core.messages import Address, Attachment, Outbound, Receipt, Sender
    from hermes_core.platforms import Channel, Platform
    from hermes_core.profiles import ProfileScope
    from hermes_core.services import Description, Schema, Section, Service

HOOK_API = "1.0"

hookimpl = pluggy.HookimplMarker("hermes")
"""Marks a function, or a method of an adapter, as the implementation of the hook of its name."""

# ── collect ───────────────────────────────────────────────────────────────────────────────────────


@hookkinds.collect(since="1.0")
def platforms() -> list[Platform]:
    """Declare the chat networks that this plugin speaks.

    Called once at load. A name that another plugin has taken quarantines this one.
    """
    raise NotImplementedError


@hookkinds.collect(since="1.0")
def agents() -> list[AgentType]:
    """Declare the agents that this plugin brings. ``[agent] use = NAME`` chooses one.

    Called once at load. A name that another plugin has taken quarantines this one.
    """
    raise NotImplementedError


@hookkinds.collect(since="1.0")
def settings() -> list[Section]:
    """Declare the tables of the settings file that belong to this plugin, besides those of its
    platforms and agents.

    Called once at load. A table that another plugin or the core has taken quarantines this one. A
    service gets what its profile's file says by `ServiceContext.section` and `table_array`.
    """
    raise NotImplementedError


@hookkinds.collect(since="1.0")
def models() -> list[Schema]:
    """Declare the tables that this plugin keeps in the state database of every profile.

    Called once at load. They are made, or brought up to date, before the services start.
    """
    raise NotImplementedError


@hookkinds.collect(since="1.0")
def services() -> list[Service]:
    """Declare what runs beside the conversations. Each factory is called once for each profile.

    Called once at load. A name that another plugin has taken quarantines this one.
    """
    raise NotImplementedError


@hookkinds.collect(since="1.0")
def commands() -> list[ChatCommand]:
    """Declare commands that people type in a chat, such as ``/memory``.

    Called once at load. A name that the core or another plugin has taken quarantines this one.
    """
    raise NotImplementedError


@hookkinds.collect(since="1.0")
def describe(scope: ProfileScope) -> list[Description]:
    """Say what this plugin does with hooks in a profile, for ``hermes hooks list``.

    Called by commands, with the profile's settings and secrets; there need be no running gateway.
    """
    raise NotImplementedError


@hookkinds.collect(since="1.0")
def doctor_checks(scope: ProfileScope) -> list[Check]:
    """Name what `hermes doctor` is to look at for this plugin in a profile.

    Called by the command, with the profile's settings and secrets; there need be no running
    gateway. Not called while the settings are invalid. The checks are run one after the other.
    """
    raise NotImplementedError


# ── adapter ───────────────────────────────────────────────────────────────────────────────────────


@hookkinds.adapter(since="1.0")
def connect(is_reconnect: bool) -> str:
    """Log in and start to listen; return the account's own user id when it is live.

    The id is how the core recognises the account's own messages; "" where the network has no such
    thing. `is_reconnect` is True after a loss of connection in the same process: keep what the
    network has queued. Raise `AccountFailed` when it can never work, `RateLimited` to be called
    again no sooner than that, anything else to be called again with growing pauses. Required.
    """
    raise NotImplementedError


@hookkinds.adapter(since="1.0", limit=10.0)
def disconnect() -> None:
    """Stop listening and log out. Called once after a successful `connect`, also after a loss."""


@hookkinds.adapter(since="1.0", limit=60.0)
def send(message: Outbound) -> Receipt:
    """Send one message and return what the platform accepted.

    Raise a `SendError` to say what is known about a failure; any other exception, and a time-out,
    count as `OutcomeUnknown`. Required.
    """
    raise NotImplementedError


@hookkinds.adapter(since="1.0", limit=60.0)
def edit(message_id: str, message: Outbound) -> Receipt:
    """Replace the text of the earlier message `message_id` by `message.text`. "Not modified" is
    success.

    Needed when the platform declares ``edit=True``: previews are shown by it.
    """
    raise NotImplementedError


@hookkinds.adapter(since="1.0", limit=30.0)
def draft(message: Outbound) -> None:
    """Show the beginning of an answer as something that goes by itself, or with the next message.

    Called again with the same `message.id` as the answer grows, in the kinds of chat that the
    platform declares as ``drafts``. At most once; after a failure the answer is shown by edits.
    """
    raise NotImplementedError


@hookkinds.adapter(since="1.0", limit=60.0)
def reconcile(message: Outbound) -> Receipt | None:
    """Find out what became of an earlier `send` of this very message, whose outcome is unknown.

    Return its receipt when it arrived, None when it certainly did not; raise RateLimited or
    Unreachable to be asked again later, anything else when nobody can tell. Without an
    implementation the core sends it again, marked, unless the platform is idempotent.
    """
    raise NotImplementedError


@hookkinds.adapter(since="1.0", limit=10.0)
def quote(address: Address, message_id: str) -> str:
    """Return the text of an earlier message of this chat, as it reads now; "" for one of the
    account's own and for one that is gone.

    For networks whose messages name what they reply to without its text (`Message.quoted`). Called
    when a turn begins, for an admitted message that replies to one that the agent was not told of.
    """
    raise NotImplementedError


@hookkinds.adapter(since="1.0", limit=10.0)
def set_typing(address: Address, active: bool) -> None:
    """Show, or stop showing, that an answer is being written. At most once; never repeated on
    failure."""


@hookkinds.adapter(since="1.0", limit=None)
def attach(channel: Channel) -> None:
    """Serve a local client that asked for this account through the control socket, until it
    leaves."""


@hookkinds.adapter(since="1.0")
def normalize_user_id(user_id: str) -> str:
    """The one canonical form of a user id. Pure, plain, a ``@staticmethod``: it is called without
    an instance.

    Raise ValueError for what can never be an id on this network. Without an implementation ids are
    taken as they are. Applied to senders and to every list in the settings before they are
    compared.
    """
    raise NotImplementedError


@hookkinds.adapter(since="1.0")
def resolve_user_ids(names: tuple[str, ...]) -> dict[str, str]:
    """Find the stable user ids behind `names`, the entries of lists that begin with ``@``.

    Called when the account has connected, before anything is received, and when a list gets new
    names. Leave out a name that leads to no one, or to more than one. Without an implementation
    such entries are an error. The core takes ids for these names only, and none that differs from
    the one that a name led to before: names can change hands.
    """
    raise NotImplementedError


@hookkinds.adapter(since="1.0", limit=120.0)
def fetch_attachment(attachment: Attachment, target: BinaryIO, limit: int) -> None:
    """Write the content of `attachment` to `target`, which has `write` and nothing else.

    Called when the event was granted and committed; once more before its turn if that failed.
    Writing more than `limit` bytes raises ValueError. Raise anything when the file cannot be had:
    the agent is told.
    """


# ── decide ────────────────────────────────────────────────────────────────────────────────────────


@hookkinds.decide(since="1.0", closed=True)
def authorize(scope: ProfileScope, sender: Sender, address: Address) -> bool | None:
    """May this sender speak here? True grants, None abstains; anything else, and any failure, is a
    veto.

    `sender.id` is normalised. Asked when an event comes in and again when its turn starts, before
    anything is stored, fetched or answered. It speaks only for platforms of its own distribution,
    unless the operator lists the plugin under ``[authorization] authorizers``.
    """
    raise NotImplementedError


# ── notify ────────────────────────────────────────────────────────────────────────────────────────


@hookkinds.notify(since="1.0")
def on_gateway_start(gateway: GatewayInfo) -> None:
    """The gateway is ready: accounts are starting, turns may run."""


@hookkinds.notify(since="1.0")
def on_gateway_stop(gateway: GatewayInfo) -> None:
    """The gateway has drained and is about to exit."""


@hookkinds.notify(since="1.0")
def on_platform_connected(scope: ProfileScope, platform: PlatformInfo) -> None:
    """An account is live, for the first time or again."""


@hookkinds.notify(since="1.0")
def on_platform_disconnected(scope: ProfileScope, platform: PlatformInfo) -> None:
    """An account was lost or was closed; `platform.reason` says why."""


@hookkinds.notify(since="1.0")
def on_message_received(scope: ProfileScope, message: MessageInfo) -> None:
    """An event was granted and committed to the inbox."""


@hookkinds.notify(since="1.0")
def on_message_denied(scope: ProfileScope, denial: DenialInfo) -> None:
    """An event had no grant. There is no content in `denial`."""


@hookkinds.notify(since="1.0")
def on_message_refused(scope: ProfileScope, message: MessageInfo) -> None:
    """An event was granted but not taken; `message.reason` says why, and the sender was told."""


@hookkinds.notify(since="1.0")
def on_session_start(scope: ProfileScope, session: SessionInfo) -> None:
    """A session began: the first turn behind an address, or the first one after a reset."""


@hookkinds.notify(since="1.0")
def on_session_end(scope: ProfileScope, session: SessionInfo) -> None:
    """A session ended for good (reset, expiry). Not the end of a turn: see `on_turn_end`."""


@hookkinds.notify(since="1.0")
def on_turn_start(scope: ProfileScope, turn: TurnInfo) -> None:
    """An agent begins to run."""


@hookkinds.notify(since="1.0")
def on_turn_end(scope: ProfileScope, turn: TurnEnd) -> None:
    """A turn ended, whatever way: `turn.outcome` says which. Its answer is committed, not yet
    delivered."""


@hookkinds.notify(since="1.0")
def on_tool_call_end(scope: ProfileScope, call: ToolCallEnd) -> None:
    """An agent that reports its tools has ended using one."""


@hookkinds.notify(since="1.0")
def on_subagent_end(scope: ProfileScope, subagent: SubagentInfo) -> None:
    """A helper that an agent had started, and that it reports, has ended."""


@hookkinds.notify(since="1.0")
def on_delivered(scope: ProfileScope, delivery: DeliveryInfo) -> None:
    """A message of the outbox was accepted by its platform and the receipt is committed."""


@hookkinds.notify(since="1.0")
def on_delivery_failed(scope: ProfileScope, delivery: DeliveryInfo) -> None:
    """A message of the outbox ended without a receipt; `delivery.reason` says why."""


@hookkinds.notify(since="1.0")
def on_housekeeping(scope: ProfileScope, load: HousekeepingInfo) -> None:
    """About once a minute, for each profile, busy or idle: time for what can wait."""


ALL: dict[str, Spec[..., object]] = {
    value.name: value for value in list(globals().values()) if isinstance(value, Spec)
}
"""Every spec by name, in the order of this file."""

NOTIFY_HOOKS = {name: spec.function for name, spec in ALL.items() if spec.kind == "notify"}
"""The notify hooks by name, each as the function that declares it: for a plugin that observes
whatever there is."""
