"""What an agent author writes: an `Agent` with one method, declared by an `AgentType`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeVar

import msgspec

from hermes_core.messages import AgentEvent, Attachment, ChatKind
from hermes_core.settings import Settings

if TYPE_CHECKING:
    import asyncio

    from hermes_core.profiles import ProfileScope

SettingsT = TypeVar("SettingsT", bound=Settings)


class TurnMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message that a turn answers. `token` and `sender` are opaque; `sender_name` is for
    display."""

    token: str
    text: str
    sender: str
    sender_name: str
    received_at: float
    quoted: str = ""
    attachments: tuple[Attachment, ...] = ()


class HistoryMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the transcript before this turn."""

    role: Literal["user", "assistant"]
    text: str
    sender_name: str
    created_at: float


class Turn(Protocol):
    """One run of an agent for one or more waiting messages of one session."""

    @property
    def id(self) -> str: ...

    @property
    def session_id(self) -> str:
        """Names the agent's memory. Changes when the session is reset."""

    @property
    def attempt(self) -> int:
        """1 for the first run; more when a crash cut an earlier run of the same messages."""

    @property
    def messages(self) -> Sequence[TurnMessage]:
        """What to answer, oldest first. Never empty."""

    @property
    def chat_kind(self) -> ChatKind: ...

    @property
    def hint(self) -> str:
        """What the platform can show, in words for a model; may be empty."""

    @property
    def scope(self) -> ProfileScope:
        """The profile that the turn belongs to: settings, secrets, directories, child
        environment."""

    @property
    def steering(self) -> asyncio.Queue[TurnMessage]:
        """Messages that were handed to this turn while it runs. Yield `Consumed(token)` for each
        that you take into the answer; what is not consumed becomes a turn of its own afterwards."""

    async def ask(
        self, question: str, choices: Sequence[str], *, limit: float = 300.0
    ) -> str | None:
        """Let the person whose message this is, or an admin, choose. For approvals.

        One of `choices` (1 to 8 different lines of at most 40 characters); None when nobody chose
        within `limit` seconds, or the turn was cancelled. Waiting is silence: keep `limit` below
        `[sessions] inactivity`. Raises ValueError for what cannot be asked.
        """

    async def history(self, *, max_chars: int = 100_000) -> list[HistoryMessage]:
        """The latest part of the transcript that fits into `max_chars` characters, oldest first."""


class Agent(Generic[SettingsT]):
    """Answers turns. One instance serves all turns of one profile, many at once.

    `run` is an async generator that yields events. Raising `AgentError` shows its text to the
    person; any other exception shows a general notice and is logged. Cancellation arrives as
    `asyncio.CancelledError` at an await; let it pass.
    """

    def __init__(self, settings: SettingsT, scope: ProfileScope) -> None:
        self.settings = settings
        self.scope = scope

    def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        raise NotImplementedError


@dataclass(frozen=True, init=False)
class AgentType:
    """An agent as declared by the `agents` hook; `[agent] use = NAME` chooses it."""

    name: str
    agent: type[Agent[Settings]]
    settings: type[Settings]

    def __init__(self, name: str, agent: type[Agent[SettingsT]], settings: type[SettingsT]) -> None:
        values = {"name": name, "agent": agent, "settings": settings}
        for key, value in values.items():
            object.__setattr__(self, key, value)
