"""Turns: take what waits, ask the gate again, run the agent, write everything in one commit."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from hermes_core.agents import Agent, HistoryMessage, TurnMessage
from hermes_core.answers import Answer, TooMuch
from hermes_core.attempts import Link
from hermes_core.authorization import AccessList, Admitted, Gate
from hermes_core.delivery import Delivery, Reply
from hermes_core.errors import AgentError
from hermes_core.events import SessionInfo, TurnEnd, TurnInfo
from hermes_core.intake import turn_message
from hermes_core.lanes import SHUTDOWN, TIMED_OUT, Lane, Limits, Revoked, Run
from hermes_core.messages import (
    Address,
    AgentEvent,
    ChatKind,
    Consumed,
    Inbound,
    Message,
    SubagentEnd,
    ToolEnd,
    ToolStart,
    decode_inbound,
)
from hermes_core.observers import Durable, TurnWatch
from hermes_core.previews import Preview, Typing
from hermes_core.settings import Settings
from hermes_core.spool import NotTaken, Spool
from hermes_core.store import inbox, outbox, sessions, turns
from hermes_core.store.database import connection_of
from hermes_core.text import clean

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_core.attachments import Attachments
    from hermes_core.plugins import Hooks
    from hermes_core.profiles import ProfileScope
    from hermes_core.store import Store

log = logging.getLogger(__name__)

NO_ANSWER = "The agent gave no answer."
FAILED = "Something went wrong while answering. The log says what."
NO_AGENT = "No agent is configured for this chat."
TOO_LONG = "This took too long and was stopped."
SILENCE = frozenset({"[SILENT]", "NO_REPLY"})
"""An agent that says just this chose to say nothing. Nothing is sent."""


class Accounts(Protocol):
    """Finds the accounts of the profile by their keys, such as `telegram.ops`."""

    def link(self, name: str) -> Link | None: ...

    def access(self, name: str) -> AccessList | None: ...


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
        steering: asyncio.Queue[TurnMessage],
    ) -> None:
        self.id = taken.turn_id
        self.session_id = taken.session_id
        self.attempt = taken.attempt
        self.chat_kind: ChatKind = job.reply.address.kind
        self.hint = "" if job.link is None else job.link.platform.hint
        self.scope = scope
        self.steering = steering
        self.messages = tuple(
            turn_message(event, row.sequence, row.received_at)
            for event, row in zip(job.events, taken.rows, strict=True)
        )
        self._store = store

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


class Turns:
    """Runs the turns of one profile. `run_next` is what its lanes call."""

    def __init__(
        self,
        *,
        scope: ProfileScope,
        store: Store,
        gate: Gate,
        hooks: Hooks,
        durable: Durable,
        delivery: Delivery,
        spool: Spool,
        accounts: Accounts,
        attachments: Attachments,
        agent: Callable[[Address], Agent[Settings] | None],
        perform: Callable[[Admitted[Inbound], str, int], Awaitable[None]],
        freed: Callable[[int], None],
        coalesce: Callable[[str], bool],
        limits: Limits,
        wall: Callable[[], float],
    ) -> None:
        """`agent` finds the agent for an address, `perform` lets a command act whose place has
        come, `freed` is told how many rows do not wait any more, `coalesce` says whether the
        messages of a session key that wait together become one turn."""
        self._scope = scope
        self._store = store
        self._gate = gate
        self._hooks = hooks
        self._durable = durable
        self._delivery = delivery
        self._spool = spool
        self._accounts = accounts
        self._attachments = attachments
        self._agent = agent
        self._perform = perform
        self._freed = freed
        self._coalesce = coalesce
        self.limits = limits
        self._wall = wall
        self.counts: Counter[str] = Counter()

    async def run_next(self, lane: Lane) -> int | None:
        """Run the next turn of a lane. The highest sequence it ended, None when nothing waited."""
        now = self._wall()
        coalesce = self._coalesce(lane.session_key)
        taken = await self._store.write(
            lambda tx: turns.take(tx, lane.session_key, now, coalesce=coalesce), self._took
        )
        if taken is None:
            return None
        if isinstance(taken, turns.Barrier):
            await self._command(taken.row, lane.session_key)
            return taken.row.sequence - 1
        messages = await self._admit(taken)
        if messages:
            await self._run(lane, taken, messages)
        else:
            ending = turns.Ending("cancelled", "the grant is gone", self._wall(), (), (), False)
            await self._store.persist(lambda tx: turns.finish(tx, taken, ending))
        return taken.rows[-1].sequence

    def _took(self, taken: turns.Taken | turns.Barrier | None) -> None:
        if isinstance(taken, turns.Taken):
            self._freed(len(taken.rows))

    async def _command(self, row: turns.WaitingRow, key: str) -> None:
        admitted = await self._ask_again(decode_inbound(row.payload))
        if isinstance(admitted, str):
            self._lost_grant(admitted, key)
            now = self._wall()
            await self._store.write(
                lambda tx: inbox.end(tx, row.sequence, "the grant is gone", now)
            )
            self._freed(1)
            return
        await self._perform(admitted, key, row.sequence)

    async def _admit(self, taken: turns.Taken) -> list[Admitted[Message]]:
        """Ask the gate again: hours may have passed since the event came in."""
        admitted: list[Admitted[Message]] = []
        for row in taken.rows:
            decision = await self._ask_again(decode_inbound(row.payload))
            if isinstance(decision, str):
                self._lost_grant(decision, taken.session_key)
                return []
            admitted.append(cast("Admitted[Message]", decision))
        return admitted

    async def _ask_again(self, event: Inbound) -> Admitted[Inbound] | str:
        """The admitted event, or why it is not admitted any more."""
        access = self._accounts.access(event.address.account_key)
        if access is None:
            return "the account is gone"
        decision = await self._gate.check(event, access, arriving=False)
        return decision if isinstance(decision, Admitted) else decision.reason

    def _lost_grant(self, reason: str, key: str) -> None:
        log.warning("a waiting message lost its grant: %s", reason, extra={"session": key})

    async def _run(
        self, lane: Lane, taken: turns.Taken, messages: Sequence[Admitted[Message]]
    ) -> None:
        job = self._job(taken, [await self._attachments.of(admitted) for admitted in messages])
        watch = TurnWatch(self._hooks, self._durable, self._scope, job.info)
        watch.begin(_new_session(taken, job.info))
        started = asyncio.get_running_loop().time()
        run = Run(taken.turn_id, job.events[0].sender.id, self.limits)
        turn = AgentTurn(taken, job, scope=self._scope, store=self._store, steering=run.steering)
        answer = Answer()
        preview = self._preview(job, answer)
        typing = Typing(job.link, job.reply.address)
        typing.start()
        outcome = await self._outcome(lane, turn, job, run, Hearing(answer, preview, watch))
        edits = taken.preview if preview is None else await preview.close()
        duration = asyncio.get_running_loop().time() - started
        end = partial(_end, job.info, outcome, answer=answer, duration=duration)
        files, outcome = await self._files(job, answer, outcome)
        ending = self._ending(job, run, outcome, edits, files)
        ending = replace(
            ending,
            events=watch.rows_with(end(outcome.state)),
            cancelled=watch.rows_with(end("cancelled")),
        )
        state = await self._finish(taken, ending)
        await typing.stop()
        self.counts[state] += 1
        watch.ended(end(state))

    def _job(self, taken: turns.Taken, events: list[Message]) -> Job:
        first, last = events[0], events[-1]
        event_ids = tuple(row.event_id for row in taken.rows)
        info = TurnInfo(
            turn_id=taken.turn_id,
            session_id=taken.session_id,
            session_key=taken.session_key,
            address=first.address,
            attempt=taken.attempt,
            messages=tuple(event.text for event in events),
            event_ids=event_ids,
        )
        reply = Reply(
            first.address,
            taken.session_key,
            taken.turn_id,
            reply_to=last.message_id or last.event_id,
            answers=event_ids,
            edits=taken.preview,
        )
        return Job(events, info, reply, self._accounts.link(first.address.account_key))

    def _preview(self, job: Job, answer: Answer) -> Preview | None:
        link, reply = job.link, job.reply
        if link is None or not link.connected:
            return None
        return Preview(
            link,
            reply,
            answer,
            created_at=self._wall(),
            idle=lambda: self._delivery.idle(reply.address),
            shown=self._shown,
        )

    def _shown(self, turn_id: str, message_id: str) -> None:
        """A preview stands in the chat: an attempt after this one completes it instead of adding
        another."""
        self._store.write(lambda tx: turns.set_preview(tx, turn_id, message_id)).add_done_callback(
            _report
        )

    async def _outcome(
        self, lane: Lane, turn: AgentTurn, job: Job, run: Run, hear: Hearing
    ) -> Outcome:
        """Run the agent and translate every way it can end."""
        agent = self._agent(job.reply.address)
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
            return self._failed(turn, failure)
        return self._answered(turn, hear.answer)

    def _answered(self, turn: AgentTurn, answer: Answer) -> Outcome:
        text = clean(answer.text)
        if text.strip() in SILENCE:
            return Outcome("silent", reason="the agent chose to say nothing")
        if text.strip() or answer.attachments:
            return Outcome("answered", text=text)
        log.error("an agent gave no answer", extra={"turn": turn.id, "profile": self._scope.name})
        return Outcome("silent", error=NO_ANSWER)

    def _failed(self, turn: AgentTurn, error: BaseException) -> Outcome:
        expected = isinstance(error, AgentError)
        log.error(
            "an agent failed: %s",
            type(error).__name__,
            exc_info=None if expected else error,
            extra={"turn": turn.id, "profile": self._scope.name},
        )
        shown = error.what if isinstance(error, AgentError) else FAILED
        return Outcome("failed", error=clean(shown), reason=type(error).__name__)

    async def _files(
        self, job: Job, answer: Answer, outcome: Outcome
    ) -> tuple[tuple[OutboundAttachment, ...], Outcome]:
        """Copies of the files of an answer. What cannot be sent is said in its text."""
        if outcome.state != "answered" or not answer.attachments:
            return (), outcome
        limit = job.link.platform.max_attachment if job.link is not None else 0
        taken: list[OutboundAttachment] = []
        notes: list[str] = []
        for wanted in answer.attachments:
            try:
                if not limit:
                    raise NotTaken(f"{wanted.name or wanted.path}: no files can be sent here")
                taken.append(await asyncio.to_thread(self._spool.take, wanted, limit))
            except NotTaken as error:
                log.error("a file was not sent: %s", error, extra={"turn": job.info.turn_id})
                notes.append(f"[file not sent: {clean(str(error))}]")
        text = "\n\n".join(filter(None, (outcome.text.rstrip(), *notes)))
        return tuple(taken), replace(outcome, text=text if notes else outcome.text)

    def _ending(
        self,
        job: Job,
        run: Run,
        outcome: Outcome,
        edits: str,
        files: tuple[OutboundAttachment, ...],
    ) -> turns.Ending:
        steered = [run.offered[token] for token in run.consumed]
        answers = job.reply.answers + tuple(event.event_id for event in steered)
        reply = replace(job.reply, edits=edits, answers=answers)
        lines = [_line(event) for event in (*job.events, *steered)]
        rows: list[outbox.NewRow] = []
        if outcome.state == "answered":
            lines.append(sessions.Line("assistant", outcome.text))
            rows = self._delivery.compose(reply, outcome.text, "final", files)
        elif outcome.error:
            rows = self._delivery.compose(reply, outcome.error, "error")
        return turns.Ending(
            outcome.state,
            outcome.reason,
            self._wall(),
            lines,
            rows,
            claim_first=self._delivery.ready(reply.address),
            consumed=tuple(map(int, run.consumed)),
        )

    async def _finish(self, taken: turns.Taken, ending: turns.Ending) -> turns.TurnState:
        """Write the end, and say which it was: a turn that was cancelled first writes no answer."""
        if ending.state == "interrupted":
            cuts = await self._store.persist(lambda tx: turns.put_back(tx, taken, ending))
            self._freed(-len(cuts))
            return ending.state

        def committed(ended: turns.Ended) -> None:
            self._freed(len(ending.consumed) if ended.committed else 0)
            self._delivery.appended(ended.appended)

        ended = await self._store.persist(lambda tx: turns.finish(tx, taken, ending), committed)
        return ending.state if ended.committed else "cancelled"


def _new_session(taken: turns.Taken, info: TurnInfo) -> SessionInfo | None:
    if not taken.new_session:
        return None
    return SessionInfo(
        session_id=taken.session_id,
        session_key=taken.session_key,
        generation=taken.generation,
        address=info.address,
    )


def _end(
    info: TurnInfo, outcome: Outcome, state: turns.TurnState, *, answer: Answer, duration: float
) -> TurnEnd:
    """What observers are told. A turn that was cancelled has no text: nobody will see it."""
    return TurnEnd(
        turn=info,
        outcome=state,
        text=outcome.text if state == outcome.state else "",
        error=outcome.error or outcome.reason,
        duration=duration,
        input_tokens=answer.usage.input_tokens,
        output_tokens=answer.usage.output_tokens,
        model=answer.usage.model,
    )


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


def _report(write: asyncio.Future[None]) -> None:
    if not write.cancelled() and (error := write.exception()) is not None:
        log.error("could not store what a turn shows: %s", error)


def _line(event: Message) -> sessions.Line:
    return sessions.Line("user", event.text, event.sender.id, event.sender.name)
