"""Admission: what comes in, in order, through the gate, into the inbox.

Every call of `receive` ends in exactly one outcome, and the counters add up:
received = accepted + duplicate + denied + refused + handled + not_ready.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from hermes_core import hookspecs as specs
from hermes_core.authorization import NOBODY_GRANTED, AccessList, Admitted, Gate, NotAdmitted
from hermes_core.bots import BotTurns
from hermes_core.denials import Denials
from hermes_core.errors import NotReady, StoreError, StoreFault
from hermes_core.events import MessageInfo
from hermes_core.ids import new_id
from hermes_core.intake import Intake, Result
from hermes_core.messages import (
    Accepted,
    Address,
    Denied,
    Duplicate,
    Handled,
    Inbound,
    Message,
    Received,
    Refused,
)
from hermes_core.order import Order
from hermes_core.refusals import Refusals
from hermes_core.sessions import SessionPolicy, session_key
from hermes_core.settings import Duration
from hermes_core.text import encode_clean, has_clean_ids

if TYPE_CHECKING:
    from hermes_core.moves import Moves
    from hermes_core.pairing import PairingBook
    from hermes_core.plugins import Hooks
    from hermes_core.profiles import ProfileScope
    from hermes_core.store import Store

log = logging.getLogger(__name__)

MAX_EVENT_BYTES = 1_048_576
"""Stored size of one event at most; the networks themselves stay far below (Telegram: 4,096
characters)."""


class Admission:
    """The way in, for one profile."""

    def __init__(
        self,
        *,
        scope: ProfileScope,
        store: Store,
        gate: Gate,
        hooks: Hooks,
        policy: SessionPolicy,
        intake: Intake,
        pairings: PairingBook,
        moves: Moves,
        wall: Callable[[], float],
    ) -> None:
        """`intake` makes of an admitted event what is written, and acts on the commit. `moves` are
        the chats that have moved."""
        self._scope = scope
        self._gate = gate
        self._hooks = hooks
        self.policy = policy
        self._intake = intake
        self.denials = Denials(scope, store, hooks, wall)
        self._pairings = pairings
        self._moves = moves
        self._bots = BotTurns()
        self._refusals = Refusals()
        self._wall = wall
        self._order = Order()
        self._closed = ""
        self.counts: Counter[str] = Counter()

    def close(self, reason: str) -> None:
        """From now on every call ends in NotReady."""
        self._closed = reason

    async def receive(self, event: Inbound, access: AccessList, own_id: str = "") -> Received:
        """Decide the fate of an event and commit it. Raises NotReady: offer it again later.

        `own_id` is the account's own user id: what it said itself is not for it to answer.
        """
        self.counts["received"] += 1
        try:
            outcome = await self._receive(event, access, own_id)
        except (StoreError, StoreFault) as error:
            self.counts["not_ready"] += 1
            raise NotReady(error.what, where=error.where, remedy=error.remedy) from error
        except BaseException:
            self.counts["not_ready"] += 1
            raise
        self.counts[type(outcome).__name__.lower()] += 1
        return outcome

    async def _receive(self, event: Inbound, access: AccessList, own_id: str) -> Received:
        if not event.event_id:
            event = msgspec.structs.replace(event, event_id=new_id("e"))
        async with self._order.place((event.address.account_key, event.address.chat_id)):
            if self._closed:
                raise NotReady(self._closed)
            if not has_clean_ids(event):
                return self._denied(event, "an id in it is not valid text")
            admitted = await self._gate.check(event, access, own_id)
            if isinstance(admitted, NotAdmitted):
                return self._not_admitted(event, access, admitted)
            address = self._moves.address(event.address)
            key = session_key(self._scope.name, address, admitted.event.sender.id, self.policy)
            if over := self._bots_over(admitted, key):
                return over
            payload = encode_clean(_at(admitted.event, address))
            if len(payload) > MAX_EVENT_BYTES:
                return self._refused(admitted, key, "the message is too long")
            if reason := self._intake.overflow(admitted.event):
                return self._refused(admitted, key, reason)
            write = self._intake.submit(admitted, key, payload)
        return self._outcome(admitted, key, await write)

    def _not_admitted(self, event: Inbound, access: AccessList, refusal: NotAdmitted) -> Denied:
        if refusal.ignored:
            self.denials.counts[refusal.reason] += 1
            return Denied(refusal.reason)
        if refusal.reason == NOBODY_GRANTED:
            key = session_key(self._scope.name, event.address, event.sender.id, self.policy)
            self._pairings.request(event, access, lambda text: self._intake.tell(event, key, text))
        return self._denied(event, refusal.reason)

    def _bots_over(self, admitted: Admitted[Inbound], key: str) -> Received | None:
        """The end of a message of a bot that has said enough for now, None for any other event."""
        event, access = admitted.event, admitted.access
        if not (event.sender.is_bot and isinstance(event, Message)):
            return None
        now = asyncio.get_running_loop().time()
        spent = self._bots.spend(event.address, access.bot_turns, access.bot_window, now)
        if spent == "taken":
            return None
        if spent == "first over":
            window = Duration.text(access.bot_window)
            return self._refused(
                admitted, key, f"more than {access.bot_turns} messages of bots in {window}"
            )
        return self._denied(event, "too many messages of bots")

    def _outcome(self, admitted: Admitted[Inbound], key: str, result: Result) -> Received:
        stored = result.stored
        if stored.outcome == "duplicate":
            return Duplicate(stored.sequence)
        if stored.outcome == "full":
            return self._refused(admitted, key, "too many messages are waiting already")
        if self._hooks.has(specs.on_message_received):
            info = _info(admitted, key, sequence=stored.sequence)
            self._hooks.notify(specs.on_message_received, scope=self._scope, message=info)
        if result.command:
            return Handled(stored.sequence, result.command)
        return Accepted(stored.sequence)

    def _denied(self, event: Inbound, reason: str) -> Denied:
        self.denials.note(event, reason)
        return Denied(reason)

    def _refused(self, admitted: Admitted[Inbound], key: str, reason: str) -> Refused:
        info = _info(admitted, key, reason=reason)
        self._hooks.notify(specs.on_message_refused, scope=self._scope, message=info)
        if notice := self._refusals.notice(info.address, reason, self._wall()):
            self._intake.tell(admitted.event, key, notice)
        return Refused(reason)


def _at(event: Inbound, address: Address) -> Inbound:
    """An event of a chat that has moved, as one of the new chat."""
    if address is event.address:
        return event
    return msgspec.structs.replace(event, address=address)


def _info(
    admitted: Admitted[Inbound], key: str, *, sequence: int | None = None, reason: str = ""
) -> MessageInfo:
    event = admitted.event
    return MessageInfo(
        type=type(event).__name__.lower(),
        address=event.address,
        sender=event.sender,
        event_id=event.event_id,
        sequence=sequence,
        session_key=key,
        reason=reason,
    )
