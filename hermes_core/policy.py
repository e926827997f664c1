"""What the settings of an account say about who may speak where, in canonical ids.

Everything here is pure: it is asked for every event, and by commands with nothing connected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hermes_core.messages import Action, Address, Edited, Inbound, Message
from hermes_core.names import is_user_name

if TYPE_CHECKING:
    from hermes_core.config import AccountSettings
    from hermes_core.config.sections import Bots

Normalize = Callable[[str], str]


@dataclass(frozen=True)
class Rule:
    """How one kind of place is used: a direct chat, the groups, one group in particular.

    `users` is the list that counts instead of the account's lists, None without one. `commands`
    are the users that may call a command besides the admins, by the name of the command; a command
    that is not in it is open, unless it is for admins.
    """

    users: frozenset[str] | None = None
    require_mention: bool = False
    bots: Bots = "off"
    commands: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class AccessList:
    """Who may speak on one account, by canonical id.

    `unresolved` are the entries that are names, and lead to no id at present: they match nobody.
    """

    account: str
    platform: str
    distribution: str
    normalize: Normalize
    users: frozenset[str] = frozenset()
    admins: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    allow_all: bool = False
    pairing: bool = False
    direct: Rule = Rule()
    group: Rule = Rule()
    named: Mapping[str, Rule] = field(default_factory=dict)
    bot_turns: int = 10
    bot_window: float = 600.0
    unresolved: frozenset[str] = frozenset()

    @classmethod
    def build(
        cls,
        settings: AccountSettings,
        distribution: str,
        normalize: Normalize,
        resolved: Mapping[str, str] | None = None,
    ) -> AccessList:
        """The lists of an account. `resolved` are the ids behind names, by entry.

        Raises ValueError, naming the entry, for one that can be no id and is no name.
        """
        ids = _Ids(normalize, resolved or {})
        commands = {name: ids(users) for name, users in settings.commands.items()}
        direct = Rule(bots=settings.bots, commands=commands)
        group = Rule(None, settings.require_mention, settings.bots, commands)
        named = {
            chat_id: Rule(
                None if own.allowed_users is None else ids(own.allowed_users),
                group.require_mention if own.require_mention is None else own.require_mention,
                own.bots or group.bots,
                {**commands, **{name: ids(users) for name, users in own.commands.items()}},
            )
            for chat_id, own in settings.groups.items()
        }
        return cls(
            account=settings.name,
            platform=settings.platform,
            distribution=distribution,
            normalize=normalize,
            users=ids(settings.allowed_users),
            admins=ids(settings.admins),
            groups=frozenset(settings.allowed_groups),
            allow_all=settings.allow_all,
            pairing=settings.pairing,
            direct=direct,
            group=group,
            named=named,
            bot_turns=settings.bot_turns,
            bot_window=float(settings.bot_window),
            unresolved=frozenset(ids.unresolved),
        )

    def following(self, moves: Mapping[str, str]) -> AccessList:
        """The same lists, with the new id of a chat that has moved (by its old one) beside the old
        one. What the settings say about the new id themselves counts before that."""
        groups, named = set(self.groups), dict(self.named)
        for old, new in moves.items():
            if old in self.groups:
                groups.add(new)
            if old in self.named:
                named.setdefault(new, self.named[old])
        return replace(self, groups=frozenset(groups), named=named)

    def rule(self, address: Address) -> Rule:
        """What holds at an address. A thread belongs to its chat."""
        if address.kind == "dm":
            return self.direct
        return self.named.get(address.chat_id, self.group)

    def grants(self, sender_id: str, address: Address) -> str:
        """The list that admits a sender, whose id is normalised; "" when none does."""
        users = self.rule(address).users
        if sender_id in self.admins:
            return "admins"
        if users is not None:
            return f"groups.{address.chat_id}.allowed_users" if sender_id in users else ""
        if self.allow_all:
            return "allow_all"
        if sender_id in self.users:
            return "allowed_users"
        if address.kind != "dm" and address.chat_id in self.groups:
            return "allowed_groups"
        return ""

    def addressed(self, event: Inbound) -> bool:
        """Whether an event is meant for the account, by what its chat requires."""
        if event.address.kind == "dm" or not self.rule(event.address).require_mention:
            return True
        return isinstance(event, Action) or (
            isinstance(event, (Message, Edited)) and event.mentions_me
        )

    def may_call(self, command: str, sender_id: str, address: Address, *, for_admins: bool) -> bool:
        """Whether a sender may call a command at an address. Admins may call everything."""
        if sender_id in self.admins:
            return True
        listed = self.rule(address).commands.get(command)
        return not for_admins if listed is None else sender_id in listed

    @property
    def commands(self) -> frozenset[str]:
        """The names of the commands that the settings speak of."""
        rules = (self.group, *self.named.values())
        return frozenset(name for rule in rules for name in rule.commands)


class _Ids:
    """Canonical ids of entries; remembers the names that lead to none."""

    def __init__(self, normalize: Normalize, resolved: Mapping[str, str]) -> None:
        self._normalize = normalize
        self._resolved = resolved
        self.unresolved: set[str] = set()

    def __call__(self, entries: Iterable[str]) -> frozenset[str]:
        return frozenset(found for entry in entries if (found := self._one(entry)))

    def _one(self, entry: str) -> str:
        try:
            return self._normalize(entry)
        except ValueError:
            if not is_user_name(entry):
                raise
        found = self._resolved.get(entry)
        if found is None:
            self.unresolved.add(entry)
            return ""
        return self._normalize(found)
