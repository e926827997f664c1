"""What a plugin author writes to add a command that people type in a chat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_core.messages import ChatKind, Sender

if TYPE_CHECKING:
    from hermes_core.profiles import ProfileScope

RESERVED = frozenset(
    {
        "choose",
        "help",
        "new",
        "queue",
        "restart",
        "resume",
        "retry",
        "sessions",
        "status",
        "steer",
        "stop",
        "undo",
        "whoami",
    }
)
"""The commands of the core."""


@dataclass(frozen=True)
class CommandCall:
    """One use of a command, by a sender who may use it. `session` names the conversation,
    opaquely."""

    arguments: str
    sender: Sender
    admin: bool
    chat_kind: ChatKind
    session: str
    scope: ProfileScope


@dataclass(frozen=True)
class ChatCommand:
    """A command, declared by the `commands` hook.

    `run` gets the call and returns the answer. It runs once the call is stored, beside whatever
    runs, at most once, for a minute at most. What it raises is logged, and the person is told that
    it failed. With `admin` it is for the account's admins, unless the settings say otherwise.
    """

    name: str
    help: str
    run: Callable[[CommandCall], Awaitable[str]]
    admin: bool = False
