"""What came in, as people ask about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import peewee as pw

from hermes_core.messages import Action, Deleted, Reaction, decode_inbound
from hermes_core.store.models import Inbox

OPEN = ("waiting", "running")


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the inbox. `text` is "" for what says nothing, and for what is `erased` by
    age."""

    sequence: int
    account: str
    chat_id: str
    event_id: str
    message_id: str
    sender_id: str
    type: str
    session_key: str
    state: str
    reason: str
    turn_id: str | None
    attempts: int
    received_at: float
    ended_at: float | None
    text: str
    erased: bool


def latest(database: pw.SqliteDatabase, states: Sequence[str], limit: int) -> list[Event]:
    """The latest events in one of `states` (in any, when that is empty), the latest first."""
    query = Inbox.select().order_by(Inbox.sequence.desc()).limit(limit)
    if states:
        query = query.where(Inbox.state.in_(states))
    return [_event(row) for row in query.execute(database)]


def find(database: pw.SqliteDatabase, wanted: str) -> list[Event]:
    """The events that `wanted` names: a sequence, or the id of an event or of its message."""
    number = wanted.removeprefix("inbox:")
    named = (Inbox.event_id == wanted) | (Inbox.message_id == wanted)
    if number.isascii() and number.isdigit() and len(number) < 19:  # noqa: PLR2004 - 64 bits
        found = list(Inbox.select().where(Inbox.sequence == int(number)).execute(database))
        if found:
            return [_event(row) for row in found]
    query = Inbox.select().where(named).order_by(Inbox.sequence)
    return [_event(row) for row in query.execute(database)]


def said(payload: bytes) -> str:
    """What the event in a row says; "" when it says nothing, or its content is erased."""
    event = decode_inbound(bytes(payload))
    if event is None or isinstance(event, Deleted):
        return ""
    if isinstance(event, Reaction):
        return event.emoji
    return event.value if isinstance(event, Action) else event.text


def _event(row: Any) -> Event:
    return Event(
        sequence=row.sequence,
        account=row.account,
        chat_id=row.chat_id,
        event_id=row.event_id,
        message_id=row.message_id,
        sender_id=row.sender_id,
        type=row.type,
        session_key=row.session_key,
        state=row.state,
        reason=row.reason,
        turn_id=row.turn_id,
        attempts=row.attempts,
        received_at=row.received_at,
        ended_at=row.ended_at,
        text=said(row.payload),
        erased=not row.payload,
    )
