"""The gate: default deny, and the only place that makes an `Admitted`.

Order of the checks, all before any side effect:

1. Every `authorize` hook that may speak for the platform is asked. A literal True grants, None
   abstains, anything else (a truthy value too), an exception or a time-out is a veto.
2. The profile's lists for the account grant: ``allow_all = true`` everybody, `allowed_users` and
   `admins` the senders they name, `allowed_groups` everybody who speaks in one of those chats.
3. A sender is admitted when at least one of them granted and none vetoed. Otherwise denied.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, final

import msgspec

from hermes_core import hookspecs as specs
from hermes_core.errors import PluginError
from hermes_core.messages import Inbound

if TYPE_CHECKING:
    from hermes_core.plugins import Hooks, Plugin
    from hermes_core.profiles import ProfileScope

log = logging.getLogger(__name__)
EventT = TypeVar("EventT", bound=Inbound)
_SEAL = object()


@final
class Admitted(Generic[EventT]):
    """An event whose sender holds a grant. Only the gate makes one; everything behind it asks for
    it."""

    __slots__ = ("admin", "event", "grant")

    def __init__(self, event: EventT, grant: str, *, admin: bool, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("only the gate admits an event")
        self.event = event
        self.grant = grant
        self.admin = admin


@dataclass(frozen=True)
class NotAdmitted:
    """Why an event has no grant."""

    reason: str


@dataclass(frozen=True)
class AccessList:
    """Who may speak on one account, by canonical id."""

    platform: str
    distribution: str
    normalize: Callable[[str], str]
    users: frozenset[str] = frozenset()
    admins: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    allow_all: bool = False

    @classmethod
    def build(
        cls,
        platform: str,
        distribution: str,
        normalize: Callable[[str], str],
        users: Iterable[str],
        *,
        admins: Iterable[str] = (),
        groups: Iterable[str] = (),
        allow_all: bool,
    ) -> AccessList:
        """Normalise the configured ids. Raises ValueError, naming the entry, for one that can be no
        id."""
        return cls(
            platform,
            distribution,
            normalize,
            users=frozenset(map(normalize, users)),
            admins=frozenset(map(normalize, admins)),
            groups=frozenset(groups),
            allow_all=allow_all,
        )

    def grants(self, event: Inbound) -> str | None:
        """The list that admits the sender of an event, whose id is normalised; None when none
        does."""
        sender_id, address = event.sender.id, event.address
        if self.allow_all:
            return "allow_all"
        if sender_id in self.users:
            return "allowed_users"
        if sender_id in self.admins:
            return "admins"
        if address.kind != "dm" and address.chat_id in self.groups:
            return "allowed_groups"
        return None


class Gate:
    """Decides who may speak, for one profile."""

    def __init__(self, hooks: Hooks, scope: ProfileScope) -> None:
        self._hooks = hooks
        self._scope = scope

    async def check(self, event: EventT, access: AccessList) -> Admitted[EventT] | NotAdmitted:
        """Ask every source for a grant. The admitted event carries the normalised sender id."""
        try:
            user_id = access.normalize(event.sender.id)
        except (ValueError, PluginError):
            return NotAdmitted("the sender's id is not valid on this platform")
        if not user_id:
            return NotAdmitted("the sender has no id")
        if user_id != event.sender.id:
            sender = msgspec.structs.replace(event.sender, id=user_id)
            event = msgspec.structs.replace(event, sender=sender)
        votes = await self._votes(event, access) if self._hooks.has(specs.authorize) else None
        if isinstance(votes, NotAdmitted):
            return votes
        granted = access.grants(event) or votes
        if granted is None:
            return NotAdmitted("nobody granted")
        return Admitted(event, granted, admin=event.sender.id in access.admins, seal=_SEAL)

    async def _votes(self, event: Inbound, access: AccessList) -> str | NotAdmitted | None:
        authorizers = self._scope.settings.authorization.authorizers

        def may_speak(plugin: Plugin) -> bool:
            return plugin.distribution == access.distribution or plugin.named_in(authorizers)

        answers = await self._hooks.decide(
            specs.authorize,
            may_speak,
            scope=self._scope,
            sender=event.sender,
            address=event.address,
        )
        granted: str | None = None
        for answer in answers:
            if answer.error is not None:
                return NotAdmitted(f"plugin {answer.plugin.name} failed to answer")
            if answer.value is True:
                granted = f"plugin {answer.plugin.name}"
            elif answer.value is not None:
                return NotAdmitted(f"plugin {answer.plugin.name} vetoed")
        return granted
