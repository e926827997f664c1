"""Turns: take what waits, ask the gate again, run the agent, write everything in one commit."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from hermes_core import hookspecs as specs
from hermes_core.agents import Agent, HistoryMessage, TurnMessage
from hermes_core.answers import Answer, TooMuch
from hermes_core.authorization import AccessList, Admitted, Gate
from hermes_core.delivery import Delivery, Link, Reply
from hermes_core.errors import AgentError
from hermes_core.events import SessionInfo, TurnEnd, TurnInfo
from hermes_core.lanes import SHUTDOWN, Lane, Revoked, Run
from hermes_core.messages import Address, AgentEvent, ChatKind, Message, decode_inbound
from hermes_core.previews import Preview
from hermes_core.settings import Settings
from hermes_core.store import outbox, turns
from hermes_core.store.database import connection_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hermes_core.plugins import Hooks
    from hermes_core.profiles import ProfileScope
    from hermes_core.store import Store

log = logging.getLogger(__name__)

NO_ANSWER = "The agent gave no answer."
FAILED = "Something went wrong while answering. The log says what."
NO_AGENT = "No agent is configured for this chat."


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `error` is shown to the person; `text` is the answer."""

    state: turns.TurnState
    text: str = ""
    error: str = ""
    reason: str = ""


class AgentTurn:
    """What the agent sees of its turn (`agents.Turn`): texts, tokens, the scope. No address."""

    def __init__(
        self,
        taken: turns.Taken,
        messages: Sequence[Admitted[Message]],
        *,
        scope: ProfileScope,
        store: Store,
        hint: str,
    ) -> None:
        self.id = taken.turn_id
        self.session_id = taken.session_id
        self.attempt = taken.attempt
        self.chat_kind: ChatKind = messages[0].event.address.kind
        self.hint = hint
        self.scope = scope
        self.messages = tuple(
            _turn_message(admitted.event, row)
            for admitted, row in zip(messages, taken.rows, strict=True)
        )
        self._store = store

    async def history(self, *, max_chars: int = 100_000) -> list[HistoryMessage]:
        lines = await self._store.read(
            lambda database: turns.history(
                connection_of(database), self.session_id, max_chars
            )
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


class Turns:
    """Runs the turns of one profile. `run_next` is what its lanes call."""

    def __init__(
        self,
        *,
        scope: ProfileScope,
        store: Store,
        gate: Gate,
        hooks: Hooks,
        delivery: Delivery,
        access: Callable[[str], AccessList | None],
        link: Callable[[str], Link | None],
        agent: Callable[[Address], Agent[Settings] | None],
        wall: Callable[[], float],
    ) -> None:
        """`access` and `link` find an account by its key, `agent` the agent for an address."""
        self._scope = scope
        self._store = store
        self._gate = gate
        self._hooks = hooks
        self._delivery = delivery
        self._access = access
        self._link = link
        self._agent = agent
        self._wall = wall
        self.counts: Counter[str] = Counter()

    async def run_next(self, lane: Lane) -> int | None:
        """Run the next turn of a lane. The highest sequence it ended, None when nothing waited."""
        now = self._wall()
        taken = await self._store.write(lambda tx: turns.take(tx, lane.session_key, now))
        if taken is None:
            return None
        highest = taken.rows[-1].sequence
        messages = await self._admit(taken)
        if messages:
            await self._run(lane, taken, messages)
        else:
            ending = turns.Ending("cancelled", "the grant is gone", self._wall(), (), (), False)
            await self._store.write(lambda tx: turns.finish(tx, taken, ending))
        return highest

    async def _admit(self, taken: turns.Taken) -> list[Admitted[Message]]:
        """Ask the gate again: hours may have passed since the event came in."""
        admitted: list[Admitted[Message]] = []
        for row in taken.rows:
            event = decode_inbound(row.payload)
            access = self._access(event.address.account_key)
            decision = None if access is None else await self._gate.check(event, access)
            if not isinstance(decision, Admitted):
                reason = "the account is gone" if decision is None else decision.reason
                log.warning(
                    "a waiting message lost its grant: %s",
                    reason,
                    extra={"session": taken.session_key, "turn": taken.turn_id},
                )
                return []
            admitted.append(cast("Admitted[Message]", decision))
        return admitted

    async def _run(
        self, lane: Lane, taken: turns.Taken, messages: Sequence[Admitted[Message]]
    ) -> None:
        first = messages[0].event
        link = self._link(first.address.account_key)
        info = TurnInfo(
            turn_id=taken.turn_id,
            session_id=taken.session_id,
            session_key=taken.session_key,
            address=first.address,
            attempt=taken.attempt,
            messages=tuple(admitted.event.text for admitted in messages),
            event_ids=tuple(row.event_id for row in taken.rows),
        )
        self._announce(taken, info)
        started = asyncio.get_running_loop().time()
        reply = Reply(
            first.address,
            taken.session_key,
            taken.turn_id,
            reply_to=messages[-1].event.message_id or messages[-1].event.event_id,
            answers=tuple(row.event_id for row in taken.rows),
        )
        answer = Answer()
        preview = self._preview(link, reply, answer)
        hint = link.platform.hint if link is not None else ""
        turn = AgentTurn(taken, messages, scope=self._scope, store=self._store, hint=hint)
        outcome = await self._outcome(lane, turn, first, answer, preview)
        edits = await preview.close() if preview is not None else ""
        ended = await self._finish(taken, messages, outcome, _completing(reply, edits))
        state = outcome.state if ended else "cancelled"
        self.counts[state] += 1
        if self._hooks.has(specs.on_turn_end):
            end = TurnEnd(
                turn=info,
                outcome=state,
                text=outcome.text if ended else "",
                error=outcome.error or outcome.reason,
                duration=asyncio.get_running_loop().time() - started,
                input_tokens=answer.usage.input_tokens,
                output_tokens=answer.usage.output_tokens,
                model=answer.usage.model,
            )
            self._hooks.notify(specs.on_turn_end, scope=self._scope, turn=end)

    def _announce(self, taken: turns.Taken, info: TurnInfo) -> None:
        if taken.new_session and self._hooks.has(specs.on_session_start):
            session = SessionInfo(
                session_id=taken.session_id,
                session_key=taken.session_key,
                generation=taken.generation,
                address=info.address,
            )
            self._hooks.notify(specs.on_session_start, scope=self._scope, session=session)
        if self._hooks.has(specs.on_turn_start):
            self._hooks.notify(specs.on_turn_start, scope=self._scope, turn=info)

    def _preview(self, link: Link | None, reply: Reply, answer: Answer) -> Preview | None:
        if link is None or not link.platform.edit or not link.connected:
            return None
        if not self._delivery.idle(reply.address):
            return None
        return Preview(link, reply, lambda: answer.text, self._wall())

    async def _outcome(
        self, lane: Lane, turn: AgentTurn, event: Message, answer: Answer, preview: Preview | None
    ) -> Outcome:
        """Run the agent and translate every way it can end."""
        agent = self._agent(event.address)
        if agent is None:
            return Outcome("failed", error=NO_AGENT)
        run = Run(turn.id, event.sender.id)
        try:
            failure = await lane.supervise(run, _listen(agent, turn, run, answer, preview))
        except Revoked:
            return _cancelled(run)
        except asyncio.CancelledError:
            if not run.cancelled:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                return self._failed(turn, "CancelledError", FAILED)
            return _cancelled(run)
        if failure is not None:
            if run.cancelled:
                return _cancelled(run)
            shown = failure.what if isinstance(failure, AgentError) else FAILED
            return self._failed(turn, type(failure).__name__, shown, failure)
        if answer.text.strip():
            return Outcome("answered", text=answer.text)
        log.error("an agent gave no answer", extra={"turn": turn.id})
        return Outcome("silent", error=NO_ANSWER)

    def _failed(
        self, turn: AgentTurn, name: str, shown: str, error: BaseException | None = None
    ) -> Outcome:
        known = isinstance(error, AgentError)
        log.error(
            "an agent failed: %s",
            name,
            exc_info=None if known else error,
            extra={"turn": turn.id, "profile": self._scope.name},
        )
        return Outcome("failed", error=shown, reason=name)

    async def _finish(
        self,
        taken: turns.Taken,
        messages: Sequence[Admitted[Message]],
        outcome: Outcome,
        reply: Reply,
    ) -> bool:
        """Write the end. False when the turn was cancelled first, and nothing was written."""
        if outcome.state == "interrupted":
            now = self._wall()
            await self._store.write(
                lambda tx: turns.interrupt(tx, now, outcome.reason, taken.turn_id)
            )
            return True
        lines = [_line(admitted.event) for admitted in messages]
        rows: list[outbox.NewRow] = []
        if outcome.state == "answered":
            lines.append(turns.Line("assistant", outcome.text))
            rows = self._delivery.compose(reply, outcome.text, "final")
        elif outcome.error:
            rows = self._delivery.compose(reply, outcome.error, "error")
        ending = turns.Ending(
            outcome.state,
            outcome.reason,
            self._wall(),
            lines,
            rows,
            claim_first=self._delivery.ready(reply.address),
        )
        ended = await self._store.write(
            lambda tx: turns.finish(tx, taken, ending),
            lambda result: self._delivery.appended(result.appended),
        )
        return ended.committed


def _cancelled(run: Run) -> Outcome:
    if run.cancelled == SHUTDOWN:
        return Outcome("interrupted", reason="the gateway stopped")
    return Outcome("cancelled", reason=run.cancelled)


async def _listen(
    agent: Agent[Settings], turn: AgentTurn, run: Run, answer: Answer, preview: Preview | None
) -> BaseException | None:
    """Take in what the agent yields, as long as the run may act. Returns what the agent raised.

    SystemExit and KeyboardInterrupt from agent code must not reach the event loop, which they would end.
    """
    try:
        events = cast("AsyncGenerator[AgentEvent, None]", agent.run(turn))
        async with aclosing(events):
            async for event in events:
                if not run.live:
                    run.dropped += 1
                elif answer.apply(event) and preview is not None:
                    preview.changed()
    except asyncio.CancelledError:
        raise
    except TooMuch:
        return AgentError("The answer was too long and was cut off.")
    except BaseException as error:  # noqa: BLE001 - the one place where agent code is contained
        return error
    return None


def _completing(reply: Reply, edits: str) -> Reply:
    """The same reply, completing the preview message `edits`."""
    return Reply(
        reply.address, reply.session_key, reply.turn_id, reply.reply_to, reply.answers, edits
    )


def _turn_message(event: Message, row: turns.WaitingRow) -> TurnMessage:
    return TurnMessage(
        token=str(row.sequence),
        text=event.text,
        sender=event.sender.id,
        sender_name=event.sender.name,
        received_at=row.received_at,
        quoted=event.quoted,
        attachments=event.attachments,
    )


def _line(event: Message) -> turns.Line:
    return turns.Line("user", event.text, event.sender.id, event.sender.name)
