"""Intake: what one admitted event writes, in one transaction, and what follows from the commit.

A message waits in its lane. A command acts inside the same transaction, or waits for its turn. An
edit or a deletion reaches a message that still waits. In the modes `interrupt` and `steer` a
message also touches the turn that runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import msgspec

from hermes_core import hookspecs as specs
from hermes_core.agents import TurnMessage
from hermes_core.commands import Busy, Call, Commands, Effect
from hermes_core.delivery import Delivery, Reply
from hermes_core.events import SessionInfo
from hermes_core.lanes import Lanes
from hermes_core.messages import Action, Address, Deleted, Edited, Inbound, Message
from hermes_core.plugins.model import containing
from hermes_core.store import Store, Tx, inbox, outbox, sessions, turns
from hermes_core.text import encode_clean

if TYPE_CHECKING:
    from hermes_core.attachments import Attachments
    from hermes_core.authorization import Admitted
    from hermes_core.plugins import Hooks
    from hermes_core.profiles import ProfileScope
    from hermes_core.questions import Questions

log = logging.getLogger(__name__)

Edits = Literal["ignore", "note", "new_turn"]
COMMAND_LIMIT = 60.0
"""Seconds that a command may take which runs beside the conversation."""
STOP_GRACE = 2.0
"""Seconds that commands get to end when the gateway stops, and again once they are cancelled."""
EXPIRED_AT_ONCE = 100
"""Sessions that end by their age in one transaction, so that nobody waits for it."""
INTERRUPTED = "Interrupted: your new message is answered instead."


@dataclass(frozen=True)
class IntakePolicy:
    """What the settings say about waiting, busy sessions, edits and the age of sessions.

    `idle_since(now)` gives the time since when a session must have been idle to be over, and the
    reason to note; None when sessions do not age.
    """

    max_waiting: int
    max_waiting_total: int
    busy: Callable[[Address], Busy]
    edits: Edits
    idle_since: Callable[[float], tuple[float, str] | None]


@dataclass(frozen=True)
class Result:
    """What was committed. `command` is the name of a command that was handled, else ""; `waits`
    says that the row has its place in the lane."""

    stored: inbox.Stored
    command: str = ""
    effect: Effect | None = None
    appended: outbox.Appended | None = None
    ended: sessions.EndedSession | None = None
    waits: bool = False


@dataclass(frozen=True)
class _Plan:
    """What is to be written for one event."""

    event: Inbound
    admin: bool
    arrival: inbox.Arrival
    call: Call | None
    busy: Busy


class Intake:
    """Turns admitted events of one profile into rows, effects and work for the lanes."""

    def __init__(
        self,
        *,
        scope: ProfileScope,
        store: Store,
        hooks: Hooks,
        policy: IntakePolicy,
        commands: Commands,
        lanes: Lanes,
        delivery: Delivery,
        attachments: Attachments,
        questions: Questions,
        wall: Callable[[], float],
    ) -> None:
        self._scope = scope
        self._store = store
        self._hooks = hooks
        self.policy = policy
        self._commands = commands
        self._lanes = lanes
        self._delivery = delivery
        self._attachments = attachments
        self._questions = questions
        self._wall = wall
        self._tasks: set[asyncio.Task[None]] = set()
        self._told: set[outbox.Chat] = set()
        self._draining = ""

    def overflow(self, event: Inbound) -> str:
        """Why an event cannot wait in this profile, "" when it can, or has no need to."""
        full = self._lanes.waiting >= self.policy.max_waiting_total
        if full and isinstance(event, Message | Edited) and not self._commands.acts_beside(event):
            return "too many messages are waiting already"
        return ""

    def drain(self, notice: str) -> None:
        """From now on what comes in waits, and each chat is told so once; "" ends that."""
        self._draining = notice
        self._told.clear()

    def submit(
        self, admitted: Admitted[Inbound], key: str, payload: bytes
    ) -> asyncio.Future[Result]:
        """Submit the write of an event. The order of calls is the order of the commits."""
        plan = self._plan(admitted, key, payload)
        return self._store.write(
            lambda tx: self._write(tx, plan), lambda result: self._committed(plan, result, admitted)
        )

    def tell(self, event: Inbound, key: str, text: str) -> None:
        """Send a text of the core about an event to where it came from."""
        self._delivery.tell(_reply(event, key), text)

    async def perform(self, admitted: Admitted[Inbound], key: str, sequence: int) -> None:
        """Let a command act whose place in the lane has come."""
        call = self._commands.call(admitted, key, self._wall(), None)
        if call is None or call.command.transact is None:
            now = self._wall()
            await self._store.write(
                lambda tx: inbox.end(tx, sequence, "there is no such command any more", now),
                lambda _: self._lanes.freed(1),
            )
            return
        call = replace(call, sequence=sequence)

        def op(tx: Tx) -> tuple[Effect, outbox.Appended | None]:
            effect = _transact(tx, call)
            if not effect.again:
                inbox.end(tx, sequence, f"command {call.command.name}", call.now)
            return effect, self._answer(tx, call, effect)

        def committed(result: tuple[Effect, outbox.Appended | None]) -> None:
            self._act(key, call.event, result[0])
            self._lanes.freed(0 if result[0].again else 1)
            self._delivery.appended(result[1])

        await self._store.write(op, committed)

    async def stop(self) -> None:
        """Wait for the commands that run, and cancel those that do not end soon."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_GRACE)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=STOP_GRACE)

    # ── before the commit ────────────────────────────────────────────────────────────────────────

    def _plan(self, admitted: Admitted[Inbound], key: str, payload: bytes) -> _Plan:
        event = admitted.event
        now = self._wall()
        run = self._lanes.run_of(key)
        acted = None if run is None else run.events > 0
        call = self._commands.call(admitted, key, now, acted)
        busy = self.policy.busy(event.address)
        if call is not None and call.command.rewrite is not None and not call.refusal:
            busy = call.command.rewrite
            event = msgspec.structs.replace(call.event, text=call.arguments)
            payload = encode_clean(event)
            call = None
        anew = isinstance(event, Edited) and self.policy.edits == "new_turn" and admitted.addressed
        if isinstance(event, Edited) and anew:
            payload = encode_clean(_as_message(event))
        arrival = inbox.Arrival(
            account=event.address.account_key,
            chat_id=event.address.chat_id,
            event_id=event.event_id,
            message_id=event.message_id or event.event_id,
            sender_id=event.sender.id,
            type=_type(event, call, anew=anew),
            session_key=key,
            payload=payload,
            received_at=now,
            max_waiting=self.policy.max_waiting,
            ended="" if anew else _ended(event, call),
        )
        return _Plan(event, admitted.admin, arrival, call, busy)

    def _write(self, tx: Tx, plan: _Plan) -> Result:
        arrival, call = plan.arrival, plan.call
        if isinstance(plan.event, Edited) and inbox.edit(tx, arrival.session_key, plan.event):
            arrival = replace(arrival, ended="changed a waiting message")
        ended = None if arrival.ended else self._expire(tx, arrival)
        stored = inbox.insert(tx, arrival)
        if stored.outcome != "accepted":
            return Result(stored)
        if call is not None:
            name = call.command.name
            if call.command.transact is None or call.command.in_order:
                return Result(stored, name, ended=ended, waits=call.command.in_order)
            call = replace(call, sequence=stored.sequence)
            effect = _transact(tx, call)
            return Result(stored, name, effect, self._answer(tx, call, effect), ended)
        touched, appended = self._touch(tx, plan)
        return Result(stored, "", touched, appended, ended, waits=not arrival.ended)

    def _touch(self, tx: Tx, plan: _Plan) -> tuple[Effect | None, outbox.Appended | None]:
        """What an event that is no command does to what is there already."""
        event, arrival = plan.event, plan.arrival
        if isinstance(event, Deleted):
            withdrawn = inbox.withdraw(
                tx, arrival.session_key, event.message_id, event.sender.id, arrival.received_at
            )
            return Effect(freed=int(withdrawn)), None
        if isinstance(event, Edited) and arrival.ended and self.policy.edits == "note":
            _note(tx, arrival.session_key, event, arrival.received_at)
        if not isinstance(event, Message) or plan.busy != "interrupt":
            return None, None
        owner = None if plan.admin else event.sender.id
        cancelled = turns.cancel(tx, arrival.session_key, "interrupted", arrival.received_at, owner)
        if cancelled is None:
            return None, None
        rows = self._delivery.compose(
            replace(_reply(event, arrival.session_key), answers=()), INTERRUPTED, "notice"
        )
        return Effect(cancelled=cancelled), outbox.append(tx, rows, claim_first=False)

    def _expire(self, tx: Tx, arrival: inbox.Arrival) -> sessions.EndedSession | None:
        limit = self.policy.idle_since(arrival.received_at)
        if limit is None:
            return None
        return sessions.expire(tx, arrival.session_key, *limit, arrival.received_at)

    def _answer(self, tx: Tx, call: Call, effect: Effect) -> outbox.Appended | None:
        if not effect.reply:
            return None
        rows = self._delivery.compose(_reply(call.event, call.session_key), effect.reply, "notice")
        return outbox.append(tx, rows, claim_first=False)

    # ── after the commit ─────────────────────────────────────────────────────────────────────────

    def _committed(self, plan: _Plan, result: Result, admitted: Admitted[Inbound]) -> None:
        """Called by the store on the event loop, in the order of the commits."""
        if result.stored.outcome != "accepted":
            return
        key, sequence = plan.arrival.session_key, result.stored.sequence
        if result.ended is not None:
            self.tell_end(result.ended, plan.event.address)
        if result.waits:
            self._attachments.begin(admitted)
            self._wait(plan, sequence)
        if result.effect is not None:
            self._act(key, plan.event, result.effect)
        if isinstance(plan.event, Action):
            self._questions.press(plan.event, admin=plan.admin)
        self._delivery.appended(result.appended)
        if plan.call is not None and plan.call.command.run is not None:
            self._run(plan.call)
        elif plan.call is not None and plan.call.command.rewrite is not None:
            self._delivery.tell(_reply(plan.event, key), plan.call.refusal)

    def _wait(self, plan: _Plan, sequence: int) -> None:
        key = plan.arrival.session_key
        self._lanes.committed(key, sequence)
        if _can_be_steered(plan):
            assert isinstance(plan.event, Message)
            message = turn_message(plan.event, sequence, plan.arrival.received_at)
            self._lanes.offer(key, message, plan.event, admin=plan.admin)
        if self._draining:
            chat = outbox.Chat(plan.arrival.account, plan.arrival.chat_id)
            if chat not in self._told:
                self._told.add(chat)
                self._delivery.tell(replace(_reply(plan.event, key), answers=()), self._draining)

    def _act(self, key: str, event: Inbound, effect: Effect) -> None:
        if effect.cancelled is not None:
            self._lanes.cancel(key, effect.cancelled)
        self._lanes.freed(effect.freed)
        for ended in effect.ended:
            self.tell_end(ended, event.address)

    async def expire_sessions(self) -> None:
        """End sessions that are over by their age, so that plugins hear of it while nobody writes.
        Many are ended a batch at a time."""
        now = self._wall()
        limit = self.policy.idle_since(now)
        if limit is None:
            return

        def expire(tx: Tx) -> list[tuple[sessions.EndedSession, Address]]:
            return sessions.expire_all(tx, *limit, now, EXPIRED_AT_ONCE)

        def tell(ended: list[tuple[sessions.EndedSession, Address]]) -> None:
            for session, address in ended:
                self.tell_end(session, address)

        ended = await self._store.write(expire, tell)
        while len(ended) == EXPIRED_AT_ONCE:
            ended = await self._store.write(expire, tell)

    def tell_end(self, ended: sessions.EndedSession, address: Address) -> None:
        """Let plugins know that a session has ended."""
        info = SessionInfo(
            session_id=ended.session_id,
            session_key=ended.session_key,
            generation=ended.generation,
            address=address,
            reason=ended.reason,
        )
        self._hooks.notify(specs.on_session_end, scope=self._scope, session=info)

    def _run(self, call: Call) -> None:
        task = asyncio.get_running_loop().create_task(
            self._run_and_answer(call), name=f"command {call.command.name}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_and_answer(self, call: Call) -> None:
        assert call.command.run is not None
        reply = _reply(call.event, call.session_key)
        if call.refusal:
            self._delivery.tell(reply, call.refusal)
            return
        try:
            async with asyncio.timeout(COMMAND_LIMIT):
                text = await containing(partial(call.command.run, call))
            self._delivery.tell(reply, text)
        except Exception:
            log.exception("a command failed", extra={"session": call.session_key})
            self._delivery.tell(reply, f"/{call.command.name} failed; the log says why.", "error")


def _can_be_steered(plan: _Plan) -> bool:
    """A message with files is a turn of its own: a turn that runs could not read them."""
    event = plan.event
    return plan.busy == "steer" and isinstance(event, Message) and not event.attachments


def turn_message(event: Message, sequence: int, received_at: float) -> TurnMessage:
    """A message as an agent sees it."""
    return TurnMessage(
        token=str(sequence),
        text=event.text,
        sender=event.sender.id,
        sender_name=event.sender.name,
        received_at=received_at,
        quoted=event.quoted,
        attachments=event.attachments,
    )


def _transact(tx: Tx, call: Call) -> Effect:
    assert call.command.transact is not None
    if call.refusal:
        return Effect(call.refusal)
    return call.command.transact(tx, call)


def _type(event: Inbound, call: Call | None, *, anew: bool) -> str:
    if call is not None:
        return "command"
    return "message" if anew else type(event).__name__.lower()


def _ended(event: Inbound, call: Call | None) -> str:
    """Why a row is done as soon as it is stored, "" when it waits in its lane."""
    if call is not None:
        in_order = call.command.transact is not None and call.command.in_order
        return "" if in_order else f"command {call.command.name}"
    return "" if isinstance(event, Message) else "no turn"


def _note(tx: Tx, session_key: str, event: Edited, now: float) -> None:
    found = sessions.current(tx, session_key)
    if found is not None:
        line = sessions.Line("user", f"(edited) {event.text}", event.sender.id, event.sender.name)
        sessions.add_lines(tx, found[0], "", [line], now)


def _as_message(event: Edited) -> Message:
    return Message(
        address=event.address,
        sender=event.sender,
        event_id=event.event_id,
        sent_at=event.sent_at,
        text=event.text,
        message_id=event.message_id,
        attachments=event.attachments,
    )


def _reply(event: Inbound, session_key: str) -> Reply:
    message_id = event.message_id or event.event_id
    return Reply(event.address, session_key, reply_to=message_id, answers=(event.event_id,))
