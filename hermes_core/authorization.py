"""The gate: default deny, and the only place that makes an `Admitted`.

The checks, in order, all before any side effect; `docs/authorization.md` has them as a table:

1. The sender's id is brought into its one form; what can be no id is denied.
2. What the account said itself is ignored.
3. Other bots are denied unless the settings let them speak.
4. In a group whose rule wants a mention, what is not addressed to the account is ignored.
5. Every `authorize` hook that may speak for the platform is asked. A literal True grants, None
   abstains, anything else (a truthy value too), an exception or a time-out is a veto.
6. The profile's lists grant, and so does a pairing.
7. A sender is admitted when at least one of them granted and none vetoed. Otherwise denied.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, Protocol, TypeVar, final

import msgspec

from hermes_core import hookspecs as specs
from hermes_core.errors import PluginError
from hermes_core.messages import Inbound, Message
from hermes_core.policy import AccessList

if TYPE_CHECKING:
    from hermes_core.plugins import Hooks, Plugin
    from hermes_core.profiles import ProfileScope

__all__ = ["NOBODY_GRANTED", "AccessList", "Admitted", "Check", "Gate", "NotAdmitted"]

log = logging.getLogger(__name__)
EventT = TypeVar("EventT", bound=Inbound)
Outcome = Literal["passes", "grants", "abstains", "denies"]
NOBODY_GRANTED = "nobody granted"
_SEAL = object()


@final
class Admitted(Generic[EventT]):
    """An event whose sender holds a grant. Only the gate makes one; everything behind it asks for
    it."""

    __slots__ = ("access", "event", "grant")

    def __init__(self, event: EventT, grant: str, access: AccessList, *, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("only the gate admits an event")
        self.event = event
        self.grant = grant
        self.access = access

    @property
    def admin(self) -> bool:
        """Whether the sender is one of the account's admins."""
        return self.event.sender.id in self.access.admins

    @property
    def addressed(self) -> bool:
        """Whether the event is meant for the account, by what its chat requires."""
        return self.access.addressed(self.event)

    def may_call(self, command: str, *, for_admins: bool) -> bool:
        """Whether the sender may call a command of that name where the event came from."""
        event = self.event
        return self.access.may_call(command, event.sender.id, event.address, for_admins=for_admins)


@dataclass(frozen=True)
class NotAdmitted:
    """Why an event has no grant. With `ignored` it is none of the account's business: nobody tried
    to get in, and no note is taken."""

    reason: str
    ignored: bool = False


class Check(NamedTuple):
    """One step of the gate, as ``hermes auth explain`` shows it."""

    name: str
    outcome: Outcome
    detail: str = ""


class Pairings(Protocol):
    """Knows who was approved by a code."""

    def has(self, account: str, sender_id: str) -> bool: ...


class Gate:
    """Decides who may speak, for one profile."""

    def __init__(self, hooks: Hooks, scope: ProfileScope, pairings: Pairings) -> None:
        self._hooks = hooks
        self._scope = scope
        self._pairings = pairings

    async def check(
        self,
        event: EventT,
        access: AccessList,
        own_id: str = "",
        *,
        arriving: bool = True,
        checks: list[Check] | None = None,
    ) -> Admitted[EventT] | NotAdmitted:
        """Ask every source for a grant. The admitted event carries the normalised sender id.

        `own_id` is the account's own user id. Not `arriving`, an event that was taken in before is
        asked about again: it need not be addressed once more. `checks` gets every step.
        """
        steps: list[Check] = [] if checks is None else checks
        try:
            user_id = access.normalize(event.sender.id)
        except (ValueError, PluginError) as error:
            steps.append(Check("sender id", "denies", str(error)))
            return NotAdmitted("the sender's id is not valid on this platform")
        if not user_id:
            steps.append(Check("sender id", "denies", "empty"))
            return NotAdmitted("the sender has no id")
        if user_id != event.sender.id:
            sender = msgspec.structs.replace(event.sender, id=user_id)
            event = msgspec.structs.replace(event, sender=sender)
        steps.append(Check("sender id", "passes", user_id))
        refusal = _screen(event, access, own_id, arriving, steps)
        if refusal is not None:
            return refusal
        votes = None
        if self._hooks.has(specs.authorize):
            votes = await self._votes(event, access, steps)
        if isinstance(votes, NotAdmitted):
            return votes
        granted = self._lists(event, access, steps) or votes
        if granted is None:
            return NotAdmitted(NOBODY_GRANTED)
        return Admitted(event, granted, access, seal=_SEAL)

    def _lists(self, event: Inbound, access: AccessList, steps: list[Check]) -> str | None:
        granted = access.grants(event.sender.id, event.address)
        steps.append(Check("lists", "grants" if granted else "abstains", granted or "on no list"))
        paired = self._pairings.has(access.account, event.sender.id)
        counts = paired and access.pairing and access.rule(event.address).users is None
        detail = "approved" if paired else "not approved"
        if paired and not counts:
            detail += ", which does not count here"
        steps.append(Check("pairing", "grants" if counts else "abstains", detail))
        return granted or ("pairing" if counts else None)

    async def _votes(
        self, event: Inbound, access: AccessList, steps: list[Check]
    ) -> str | NotAdmitted | None:
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
        denied: NotAdmitted | None = None
        for answer in answers:
            name = f"plugin {answer.plugin.name}"
            if answer.error is not None:
                problem = type(answer.error).__name__
                steps.append(Check(name, "denies", f"it failed: {problem}"))
                denied = denied or NotAdmitted(f"{name} failed to answer")
            elif answer.value is True:
                steps.append(Check(name, "grants"))
                granted = granted or name
            elif answer.value is None:
                steps.append(Check(name, "abstains"))
            else:
                steps.append(Check(name, "denies", f"it answered {type(answer.value).__name__}"))
                denied = denied or NotAdmitted(f"{name} vetoed")
        return denied or granted


def _screen(
    event: Inbound, access: AccessList, own_id: str, arriving: bool, steps: list[Check]
) -> NotAdmitted | None:
    """What is decided without asking anybody; None to go on."""
    if own_id and event.sender.id == own_id:
        steps.append(Check("own message", "denies"))
        return NotAdmitted("own message", ignored=True)
    steps.append(Check("own message", "passes"))
    rule, addressed = access.rule(event.address), access.addressed(event)
    if event.sender.is_bot:
        if rule.bots == "off":
            steps.append(Check("bots", "denies", 'bots = "off"'))
            return NotAdmitted("other bots may not speak here")
        mentioned = event.address.kind == "dm" or getattr(event, "mentions_me", False)
        if arriving and rule.bots == "mentions" and not mentioned:
            steps.append(Check("bots", "denies", 'bots = "mentions", and it is not mentioned'))
            return NotAdmitted("not addressed", ignored=True)
        steps.append(Check("bots", "passes", f'bots = "{rule.bots}"'))
    if arriving and isinstance(event, Message) and not addressed:
        steps.append(Check("mention", "denies", "the group wants a mention"))
        return NotAdmitted("not addressed", ignored=True)
    steps.append(Check("mention", "passes"))
    return None
