"""Turns: take what waits, ask the gate again, run the agent, write everything in one commit."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, cast

from hermes_core.agents import Agent
from hermes_core.answers import Answer
from hermes_core.attempts import Link
from hermes_core.authorization import AccessList, Admitted, Gate
from hermes_core.delivery import Delivery, Reply
from hermes_core.errors import StoreError
from hermes_core.events import SessionInfo, TurnEnd, TurnInfo
from hermes_core.lanes import Lane, Limits, Run
from hermes_core.messages import (
    Address,
    Inbound,
    Message,
    OutboundAttachment,
)
from hermes_core.observers import Durable, TurnWatch
from hermes_core.previews import Preview, Typing
from hermes_core.runs import FAILED, AgentTurn, Hearing, Job, Outcome, run_agent
from hermes_core.settings import Settings
from hermes_core.spool import NotTaken, Spool
from hermes_core.store import inbox, outbox, sessions, turns
from hermes_core.store.events import NewEvent
from hermes_core.text import clean
from hermes_core.threads import in_thread

if TYPE_CHECKING:
    from hermes_core.attachments import Attachments
    from hermes_core.plugins import Hooks
    from hermes_core.profiles import ProfileScope
    from hermes_core.questions import Questions
    from hermes_core.quotes import Quotes
    from hermes_core.store import Store

log = logging.getLogger(__name__)

A_FAULT = "a fault of the gateway"
GIVEN_UP = (
    "The gateway was stopped each time while it worked on this message, so it is not answered."
    " Send it again if you still want it."
)


class Accounts(Protocol):
    """Finds the accounts of the profile by their keys, such as `telegram.ops`."""

    def link(self, name: str) -> Link | None: ...

    def access(self, name: str) -> AccessList | None: ...


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
        quotes: Quotes,
        questions: Questions,
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
        self._quotes = quotes
        self._questions = questions
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
        if isinstance(taken, turns.Unreadable):
            self._log_given_up(lane, taken.sequence, outbox.UNREADABLE)
            return taken.sequence
        if isinstance(taken, turns.Barrier):
            await self._command(lane, taken.row)
            return taken.row.sequence - 1
        try:
            await self._perform_turn(lane, taken)
        except Exception as error:
            await self._break(taken, error)
        return taken.rows[-1].sequence

    async def _perform_turn(self, lane: Lane, taken: turns.Taken) -> None:
        messages = await self._admit(taken)
        if messages:
            await self._run(lane, taken, messages)
        else:
            await self._end_unanswered(taken, Outcome("cancelled", reason="the grant is gone"))

    async def _break(
        self, taken: turns.Taken, error: Exception, watch: TurnWatch | None = None
    ) -> Outcome:
        """End a turn by a fault of the gateway itself, and tell the person. How it has ended."""
        log.error("a turn broke", extra={"session": taken.session_key}, exc_info=error)
        rows: list[outbox.NewRow] = []
        try:
            rows = self._notice(taken)
        except Exception:  # the platform cannot measure a text
            log.exception("nobody can be told", extra={"session": taken.session_key})
        failed, stopped = Outcome("failed", reason=A_FAULT), Outcome("cancelled")
        committed = await self._end_unanswered(taken, failed, rows, watch)
        return failed if committed else stopped

    async def _end_unanswered(
        self,
        taken: turns.Taken,
        outcome: Outcome,
        rows: Sequence[outbox.NewRow] = (),
        watch: TurnWatch | None = None,
    ) -> bool:
        """End a turn that no agent answered. False when it was over already."""
        events: Sequence[NewEvent] = ()
        if watch is not None:
            end = partial(_end, watch.info, outcome, answer=Answer(), duration=0.0)
            events = watch.rows_with(end, outcome.state)
        ending = turns.Ending(
            outcome.state, outcome.reason, self._wall(), (), rows, claim_first=False, events=events
        )

        def ended(end: turns.Ended) -> None:
            self.counts[outcome.state] += int(end.committed)
            self._delivery.appended(end.appended)

        write = self._store.persist(lambda tx: turns.finish(tx, taken, ending), ended)
        return (await write).committed

    def _notice(self, taken: turns.Taken) -> list[outbox.NewRow]:
        event = taken.rows[0].event
        answers = tuple(row.event_id for row in taken.rows)
        reply = Reply(event.address, taken.session_key, taken.turn_id, answers=answers)
        return self._delivery.compose(reply, FAILED, "error")

    def _took(self, taken: turns.Taken | turns.Barrier | turns.Unreadable | None) -> None:
        if isinstance(taken, turns.Taken):
            self._freed(len(taken.rows))
        elif isinstance(taken, turns.Unreadable):
            self._freed(1)

    async def _give_up(self, lane: Lane, sequence: int, reason: str) -> None:
        now = self._wall()
        await self._store.persist(
            lambda tx: inbox.give_up(tx, sequence, reason, now), lambda _: self._freed(1)
        )
        self._log_given_up(lane, sequence, reason)

    @staticmethod
    def _log_given_up(lane: Lane, sequence: int, reason: str) -> None:
        log.error("inbox:%d is given up: %s", sequence, reason, extra={"session": lane.session_key})

    async def _command(self, lane: Lane, row: turns.WaitingRow) -> None:
        try:
            await self._act(row, lane.session_key)
        except StoreError:
            raise
        except Exception:
            log.exception("a command broke", extra={"session": lane.session_key})
            await self._give_up(lane, row.sequence, A_FAULT)

    async def _act(self, row: turns.WaitingRow, key: str) -> None:
        admitted = await self._ask_again(row.event)
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
            decision = await self._ask_again(row.event)
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
        job = self._job(taken, [await self._whole(taken, admitted) for admitted in messages])
        watch = TurnWatch(self._hooks, self._durable, self._scope, job.info)
        outcome = Outcome("interrupted", reason="the gateway stopped")
        watch.begin(_new_session(taken, job.info))
        try:
            await self._show_and_answer(lane, taken, job, watch)
        except Exception as error:
            outcome = await self._break(taken, error, watch)
        finally:  # what the answer told already stands
            end = partial(_end, job.info, outcome, answer=Answer(), duration=0.0)
            watch.ended(end, outcome.state)

    async def _show_and_answer(
        self, lane: Lane, taken: turns.Taken, job: Job, watch: TurnWatch
    ) -> None:
        answer = Answer()
        preview = self._preview(job, answer)
        async with Typing(job.link, job.reply.address):
            try:
                await self._answer(lane, taken, job, Hearing(answer, preview, watch))
            finally:
                if preview is not None:
                    await preview.close()

    async def _whole(self, taken: turns.Taken, admitted: Admitted[Message]) -> Message:
        """The message with what it refers to: files, and the text that it replies to."""
        event = await self._attachments.of(admitted)
        return await self._quotes.of(event, taken.session_key, taken.generation)

    async def _answer(self, lane: Lane, taken: turns.Taken, job: Job, hear: Hearing) -> None:
        """Let the agent run, write the end, and tell the observers."""
        started = asyncio.get_running_loop().time()
        run = Run(taken.turn_id, job.events[0].sender.id, self.limits)
        turn = AgentTurn(
            taken, job, scope=self._scope, store=self._store, run=run, questions=self._questions
        )
        outcome = await run_agent(self._agent(job.reply.address), lane, turn, run, hear)
        shown = taken.shown if hear.preview is None else await hear.preview.close()
        duration = asyncio.get_running_loop().time() - started
        end = partial(_end, job.info, outcome, answer=hear.answer, duration=duration)
        files, outcome = await self._files(job, hear.answer, outcome)
        ending = self._ending(
            job,
            run,
            outcome,
            self._rows(self._reply(job, run, shown), outcome, files),
            events=hear.watch.rows_with(end, outcome.state),
            cancelled=hear.watch.rows_with(end, "cancelled"),
        )
        state = await self._finish(taken, ending, job.reply)
        self.counts[state] += 1
        hear.watch.ended(end, state)

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
            shown=taken.shown,
        )
        return Job(events, info, reply, self._accounts.link(first.address.account_key))

    def _preview(self, job: Job, answer: Answer) -> Preview | None:
        link, reply = job.link, job.reply
        if link is None or not link.connected:
            return None
        if not link.streams and link.progress != "full":
            return None
        return Preview(
            link,
            reply,
            answer,
            created_at=self._wall(),
            idle=lambda: self._delivery.idle(reply.address),
            record=partial(self._record, reply, job.info.turn_id),
        )

    async def _record(self, reply: Reply, turn_id: str, shown: outbox.Shown) -> None:
        """An attempt after this one completes what this one shows instead of adding another. It
        cannot where the chat has moved meanwhile."""
        here = self._delivery.where_it_is(replace(reply, shown=shown)).shown
        await self._store.write(lambda tx: turns.set_shown(tx, turn_id, here))

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
                taken.append(await in_thread(self._spool.take, wanted, limit))
            except NotTaken as error:
                log.error("a file was not sent: %s", error, extra={"turn": job.info.turn_id})
                notes.append(f"[file not sent: {clean(str(error))}]")
        text = "\n\n".join(filter(None, (outcome.text.rstrip(), *notes)))
        return tuple(taken), replace(outcome, text=text if notes else outcome.text)

    @staticmethod
    def _reply(job: Job, run: Run, shown: outbox.Shown) -> Reply:
        """Where the answer goes: it completes the preview, and answers what was steered in too."""
        if not run.consumed and shown == job.reply.shown:
            return job.reply
        steered = tuple(run.offered[token].event_id for token in run.consumed)
        return replace(job.reply, shown=shown, answers=job.reply.answers + steered)

    def _ending(
        self,
        job: Job,
        run: Run,
        outcome: Outcome,
        rows: list[outbox.NewRow],
        **events: Sequence[NewEvent],
    ) -> turns.Ending:
        steered = [run.offered[token] for token in run.consumed]
        lines = [_line(event) for event in (*job.events, *steered)]
        if outcome.state == "answered":
            lines.append(sessions.Line("assistant", outcome.text))
        return turns.Ending(
            outcome.state,
            outcome.reason,
            self._wall(),
            lines,
            rows,
            claim_first=self._delivery.ready(job.reply.address),
            consumed=tuple(map(int, run.consumed)),
            **events,
        )

    def _rows(
        self, reply: Reply, outcome: Outcome, files: tuple[OutboundAttachment, ...]
    ) -> list[outbox.NewRow]:
        if outcome.state == "answered":
            return self._delivery.compose(reply, outcome.text, "final", files)
        return self._delivery.compose(reply, outcome.error, "error") if outcome.error else []

    async def _finish(
        self, taken: turns.Taken, ending: turns.Ending, reply: Reply
    ) -> turns.TurnState:
        """Write the end, and say which it was: a turn that was cancelled first writes no answer."""
        if ending.state == "interrupted":
            cuts = await self._store.persist(lambda tx: turns.put_back(tx, taken, ending))
            kept = [cut for cut in cuts if not cut.given_up]
            self._freed(-len(kept))
            if len(kept) < len(cuts):
                self._delivery.tell(reply, GIVEN_UP, "error")
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
    """What observers are told. A turn that was cancelled has no text: nobody will see it. An agent
    that chose to say nothing has made no error."""
    reason = "" if state == "silent" else outcome.reason
    return TurnEnd(
        turn=info,
        outcome=state,
        text=outcome.text if state == outcome.state else "",
        error=outcome.error or reason,
        duration=duration,
        input_tokens=answer.usage.input_tokens,
        output_tokens=answer.usage.output_tokens,
        model=answer.usage.model,
    )


def _line(event: Message) -> sessions.Line:
    return sessions.Line("user", event.text, event.sender.id, event.sender.name)
