"""Commands spoken in a chat: what one is, and how a message becomes a call of one.

A command is stored before it acts, and acts at most once. There are four kinds, by what it brings:

- `transact` acts inside the transaction that stores it, beside whatever runs; with `in_order` it
  takes its place in the lane instead and acts when its turn comes.
- `run` acts after the commit, beside whatever runs.
- `rewrite` makes an ordinary message of it, with a busy mode of its own.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from hermes_core.errors import ConfigError
from hermes_core.messages import Inbound, Message
from hermes_core.names import did_you_mean
from hermes_core.store.sessions import EndedSession

if TYPE_CHECKING:
    from hermes_core.authorization import Admitted
    from hermes_core.config import AccountSettings
    from hermes_core.store import Tx

FLOOR = frozenset({"help", "whoami"})
"""What everybody may use who may speak."""
_CALL = re.compile(r"/(\S+)(.*)", re.DOTALL)
"""What follows the word is for the command, on the same line or on others."""
Busy = Literal["queue", "coalesce", "interrupt", "steer"]


def require_known_commands(settings: AccountSettings, known: Collection[str]) -> None:
    """Raises ConfigError for a list about a command that does not exist: it closes nothing."""
    for table in (settings.commands, *(group.commands for group in settings.groups.values())):
        for name in table:
            if name not in known:
                raise ConfigError(
                    f"there is no command /{name}",
                    where=f"[platforms.{settings.name}] commands",
                    remedy=did_you_mean(name, known),
                )


@dataclass(frozen=True)
class Call:
    """One use of a command by an admitted sender.

    `sequence` is its row in the inbox, `now` the wall time of it, `acted` whether the turn that ran
    at that moment had done anything yet (None when none ran).
    """

    command: Command
    arguments: str
    event: Message
    admitted: Admitted[Inbound]
    session_key: str
    now: float
    sequence: int = 0
    acted: bool | None = None

    @property
    def admin(self) -> bool:
        return self.admitted.admin

    @property
    def grant(self) -> str:
        return self.admitted.grant

    @property
    def refusal(self) -> str:
        """Why its sender may not use the command here, "" when they may."""
        return "" if self.may(self.command) else f"/{self.command.name} is not for you."

    def may(self, command: Command) -> bool:
        """Whether the sender may use `command` in this chat."""
        floor = command.name in FLOOR
        return floor or self.admitted.may_call(command.name, for_admins=command.admin)


@dataclass(frozen=True)
class Effect:
    """What a transaction did, to be told once it is committed.

    `reply` is sent to the chat; `cancelled` is a turn to be stopped; `ended` are sessions that
    ended; `freed` is how many rows do not wait any more; `again` says that the command's own row
    waits now as a message.
    """

    reply: str = ""
    cancelled: str | None = None
    ended: tuple[EndedSession, ...] = ()
    freed: int = 0
    again: bool = False


@dataclass(frozen=True)
class Command:
    """What a person can type after a slash. Exactly one of `transact`, `run` and `rewrite` is
    given."""

    name: str
    help: str
    transact: Callable[[Tx, Call], Effect] | None = None
    in_order: bool = False
    run: Callable[[Call], Awaitable[str]] | None = None
    rewrite: Busy | None = None
    admin: bool = False


@dataclass
class Commands:
    """The commands of one profile. An unknown word after a slash is ordinary text."""

    by_name: dict[str, Command] = field(default_factory=dict)

    def add(self, commands: Iterable[Command]) -> None:
        """Add commands. Raises ValueError for a name that is taken."""
        for command in commands:
            if command.name in self.by_name:
                raise ValueError(f"the command /{command.name} exists already")
            self.by_name[command.name] = command

    @property
    def all(self) -> list[Command]:
        return sorted(self.by_name.values(), key=lambda command: command.name)

    def parse(self, event: Inbound) -> tuple[Command, str] | None:
        """The command that a message calls and its arguments, None when it is text."""
        found = _CALL.match(event.text) if isinstance(event, Message) else None
        command = None if found is None else self.by_name.get(found[1].lower())
        return None if found is None or command is None else (command, found[2].strip())

    def acts_beside(self, event: Inbound) -> bool:
        """Whether an event is a command that acts at once, beside whatever runs and waits."""
        parsed = self.parse(event)
        return parsed is not None and not (parsed[0].in_order or parsed[0].rewrite)

    def call(
        self, admitted: Admitted[Inbound], session_key: str, now: float, acted: bool | None
    ) -> Call | None:
        """The call that an admitted event makes, None when it makes none."""
        event = admitted.event
        parsed = self.parse(event)
        if parsed is None or not isinstance(event, Message):
            return None
        command, arguments = parsed
        return Call(command, arguments, event, admitted, session_key, now, acted=acted)
