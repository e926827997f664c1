"""One run of an agent: what it sees of its turn, what is heard of it, and how it ended."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from hermes_core.agents import Agent, HistoryMessage, TurnMessage
from hermes_core.answers import SILENCE, Answer, TooMuch
from hermes_core.attempts import Link
from hermes_core.delivery import Reply
from hermes_core.errors import AgentError
from hermes_core.events import TurnInfo
from hermes_core.intake import turn_message
from hermes_core.lanes import SHUTDOWN, TIMED_OUT, Lane, Revoked, Run
from hermes_core.messages import (
    AgentEvent,
    ChatKind,
    Consumed,
    Message,
    SubagentEnd,
    ToolEnd,
    ToolStart,
)
from hermes_core.observers import TurnWatch
from hermes_core.previews import Preview
from hermes_core.questions import Questions
from hermes_core.settings import Settings
from hermes_core.store import sessions, turns
from hermes_core.store.database import connection_of
from hermes_core.text import clean

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from hermes_core.profiles import ProfileScope
    from hermes_core.store import Store

log = logging.getLogger(__name__)

NO_ANSWER = "The agent gave no answer."
FAILED = "Something went wrong while answering. The log says what."
NO_AGENT = "No agent is configured for this chat."
TOO_LONG = "This took too long and was stopped."


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `error` is shown to the person; `text` is the answer."""

    state: turns.TurnState
    text: str = ""
    error: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Job:
    """What a turn is about: the events it answers, where the answer goes, and by which account."""

    events: list[Message]
    info: TurnInfo
    reply: Reply
    link: Link | None


class AgentTurn:
    """What the agent sees of its turn (`agents.Turn`): texts, tokens, the scope. No address."""

    def __init__(
        self,
        taken: turns.Taken,
        job: Job,
        *,
        scope: ProfileScope,
        store: Store,
        run: Run,
        questions: Questions,
    ) -> None:
        self.id = taken.turn_id
        self.session_id = taken.session_id
        self.attempt = taken.attempt
        self.chat_kind: ChatKind = job.reply.address.kind
        self.hint = "" if job.link is None else job.link.platform.hint
        self.scope = scope
        self._run = run
        self.messages = tuple(
            turn_message(event, row.sequence, row.received_at)
            for event, row in zip(job.events, taken.rows, strict=True)
        )
        self._store = store
        self._questions = questions
        self._reply = job.reply

    @property
    def steering(self) -> asyncio.Queue[TurnMessage]:
        return self._run.steering

    async def ask(
        self, question: str, choices: Sequence[str], *, limit: float = 300.0
    ) -> str | None:
        return await self._questions.ask(
            self._run, self._reply, clean(question), [clean(label) for label in choices], limit
        )

    async def history(self, *, max_chars: int = 100_000) -> list[HistoryMessage]:
        lines = await self._store.read(
            lambda database: sessions.history(connection_of(database), self.session_id, max_chars)
        )
        return [
            HistoryMessage(
                role="user" if role == "user" else "assistant",
                text=text,
                sender_name=sender_name,
                created_at=created_at,
            )
            for role, text, sender_name, created_at in lines
        ]


@dataclass(frozen=True)
class Hearing:
    """Takes in what an agent says: into the answer, and on to the preview and the observers."""

    answer: Answer
    preview: Preview | None
    watch: TurnWatch

    def __call__(self, event: AgentEvent) -> None:
        changed = self.answer.apply(event)
        if isinstance(event, ToolStart | ToolEnd):
            self.watch.tool(event)
        elif isinstance(event, SubagentEnd):
            self.watch.subagent(event)
        if self.preview is not None:
            self.preview.hear(event, changed=changed)


async def run_agent(
    agent: Agent[Settings] | None, lane: Lane, turn: AgentTurn, run: Run, hear: Hearing
) -> Outcome:
    """Let the agent run in its lane, and translate every way it can end."""
    if agent is None:
        return Outcome("failed", error=NO_AGENT)
    try:
        failure = await lane.supervise(run, _listen(agent, turn, run, hear))
    except Revoked:
        return _cancelled(run)
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            raise
        failure = error
    if run.cancelled:
        return _cancelled(run)
    if failure is not None:
        return _failed(turn, hear, failure)
    return _answered(turn, hear)


def _answered(turn: AgentTurn, hear: Hearing) -> Outcome:
    text = clean(hear.answer.text)
    if text.strip() in SILENCE:
        return Outcome("silent", reason="the agent chose to say nothing")
    if text.strip() or hear.answer.attachments:
        return Outcome("answered", text=text)
    log.error("an agent gave no answer", extra=_place(turn, hear))
    return Outcome("silent", error=NO_ANSWER)


def _failed(turn: AgentTurn, hear: Hearing, error: BaseException) -> Outcome:
    name = type(error).__name__
    expected = isinstance(error, AgentError)
    shown = clean(error.what) if isinstance(error, AgentError) else FAILED
    log.error(
        "an agent failed: %s",
        f"{name}: {shown}" if expected else name,
        exc_info=None if expected else error,
        extra=_place(turn, hear),
    )
    return Outcome("failed", error=shown, reason=name)


def _place(turn: AgentTurn, hear: Hearing) -> dict[str, str]:
    """Where an event of a turn belongs, for the log."""
    session = hear.watch.info.session_key
    return {"turn": turn.id, "session": session, "profile": turn.scope.name}


def _cancelled(run: Run) -> Outcome:
    if run.cancelled == SHUTDOWN:
        return Outcome("interrupted", reason="the gateway stopped")
    if run.cancelled == TIMED_OUT:
        return Outcome("timed_out", error=TOO_LONG, reason=TIMED_OUT)
    return Outcome("cancelled", reason=run.cancelled)


async def _listen(
    agent: Agent[Settings], turn: AgentTurn, run: Run, hear: Hearing
) -> BaseException | None:
    """Take in what the agent yields, as long as the run may act. Returns what the agent raised.

    SystemExit and KeyboardInterrupt from agent code must not reach the event loop, which they would
    end.
    """
    loop = asyncio.get_running_loop()
    try:
        events = cast("AsyncGenerator[AgentEvent, None]", agent.run(turn))
        async with aclosing(events):
            async for event in events:
                if not run.live:
                    run.dropped += 1
                    continue
                run.heard = loop.time()
                run.events += 1
                if isinstance(event, Consumed) and event.token in run.offered:
                    if event.token not in run.consumed:
                        run.consumed.append(event.token)
                else:
                    hear(event)
    except asyncio.CancelledError:
        raise
    except TooMuch:
        return AgentError("The answer was too long and was cut off.")
    except BaseException as error:
        return error
    return None
