"""Everything that is known about one message, turn, session or delivery, in the order of time.

Read-only: it runs beside a gateway and without one. What was denied is not here: no content of it
was ever stored (see the table `denied`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import peewee as pw

from hermes_core.store import deliveries
from hermes_core.store.arrivals import said
from hermes_core.store.deliveries import Delivery, grouped, message_of
from hermes_core.store.models import Inbox, Message, Outbox, Session, Turn

Kind = Literal["event", "turn", "session", "delivery"]

INBOX = "inbox:"
"""What marks a number as a sequence of the inbox; platforms use numbers as well."""
ERASED = " (its content is erased by age)"
MAX_CANDIDATES = 20
MAX_TURNS = 50
"""Turns of a session that its story tells, the latest ones."""
MAX_NOTICES = 1000
"""Texts of the core itself in one chat that are looked through for an answer to an event."""


@dataclass(frozen=True, slots=True)
class Found:
    """Something that an id names. `id` names it alone; `text` is what it says, for a person to
    choose by."""

    kind: Kind
    id: str
    account: str
    chat_id: str
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened to `id`, in words. `said` is what a person or the agent said in it.
    `end` says that something ended here, and then `reason` says why."""

    at: float
    what: str
    id: str
    text: str
    said: str = ""
    reason: str = ""
    end: bool = False


@dataclass(frozen=True, slots=True)
class Story:
    """What happened, and what came of it. `left_out` counts earlier turns of a long session."""

    subject: Found
    steps: tuple[Step, ...]
    outcome: str
    left_out: int = 0


@dataclass
class _Rows:
    """The rows of a story. Turns are in the order in which they ran."""

    events: dict[int, Any] = field(default_factory=dict)
    turns: dict[str, Any] = field(default_factory=dict)
    outbox: dict[int, Any] = field(default_factory=dict)


def find(database: pw.SqliteDatabase, wanted: str) -> list[Found]:
    """What `wanted` may name: one thing, none, or several to choose from.

    An id of ours (``t_``, ``s_``, ``o_``, or the beginning of one), a sequence of the inbox, the id
    that a platform gave to an event or to a message, incoming or outgoing.
    """
    if wanted.startswith(INBOX):
        return _sequences(database, wanted.removeprefix(INBOX))
    if wanted[:2] in _OWN and (own := _own(database, wanted)):
        return own
    found = [
        *_sequences(database, wanted),
        *_events(database, wanted),
        *_sent(database, wanted),
        *_previews(database, wanted),
    ]
    return list({thing.id: thing for thing in found or _answered(database, wanted)}.values())


def tell(database: pw.SqliteDatabase, subject: Found) -> Story:
    """The story of what `find` found."""
    if subject.kind == "session":
        return _of_session(database, subject)
    rows = _Rows()
    if subject.kind == "event":
        _add_event(database, rows, int(subject.id.removeprefix(INBOX)))
    elif subject.kind == "turn":
        _add_turns(database, rows, [subject.id])
    else:
        _add_delivery(database, rows, subject.id)
    return Story(subject, _steps(rows), _outcome(rows))


# ── what an id may name ──────────────────────────────────────────────────────────────────────────


def _own(database: pw.SqliteDatabase, wanted: str) -> list[Found]:
    model, make = _OWN[wanted[:2]]
    exact = model.select().where(model.id == wanted).limit(1)
    rows = list(exact.execute(database))
    if not rows:
        begins = model.select().where(model.id.startswith(wanted)).limit(MAX_CANDIDATES)
        rows = list(begins.execute(database))
    return [make(row) for row in rows]


def _sequences(database: pw.SqliteDatabase, wanted: str) -> list[Found]:
    if not (wanted.isascii() and wanted.isdigit() and len(wanted) < 19):  # noqa: PLR2004 - 64 bits
        return []
    rows = Inbox.select().where(Inbox.sequence == int(wanted))
    return [_event(row) for row in rows.execute(database)]


def _events(database: pw.SqliteDatabase, wanted: str) -> list[Found]:
    """The events of that id, and in every other chat the first event of that message."""
    same = (Inbox.event_id == wanted) | (Inbox.message_id == wanted)
    query = Inbox.select().where(same).order_by(Inbox.sequence).limit(MAX_CANDIDATES)
    rows = sorted(query.execute(database), key=lambda row: row.event_id != wanted)
    first: dict[tuple[str, str], Any] = {}
    for row in rows:
        first.setdefault((row.account, row.chat_id), row)
    return [_event(row) for row in first.values()]


def _sent(database: pw.SqliteDatabase, wanted: str) -> list[Found]:
    query = Outbox.select().where((Outbox.message_id == wanted) & (Outbox.message_id != ""))
    rows = list(query.order_by(Outbox.sequence).limit(MAX_CANDIDATES).execute(database))
    return [_part(row) for row in {(row.account, row.chat_id): row for row in rows}.values()]


def _previews(database: pw.SqliteDatabase, wanted: str) -> list[Found]:
    """Turns that showed their answer in that message and never completed it."""
    unsent = Turn.id.not_in(Outbox.select(Outbox.turn_id).where(Outbox.turn_id.is_null(False)))
    query = Turn.select().where((Turn.preview == wanted) & (Turn.preview != "") & unsent)
    return [_turn(row) for row in query.limit(MAX_CANDIDATES).execute(database)]


def _answered(database: pw.SqliteDatabase, wanted: str) -> list[Found]:
    """What the core said to an event that was not taken in (refused: too many waited)."""
    found: dict[str, Found] = {}
    for row in Outbox.select().where(Outbox.turn_id.is_null()).iterator(database):
        message = message_of(row) if wanted.encode() in bytes(row.payload) else None
        if message is not None and wanted in message.answers and len(found) < MAX_CANDIDATES:
            found.setdefault(row.account + row.chat_id, _part(row))
    return list(found.values())


def _event(row: Any) -> Found:
    return Found(
        "event",
        f"{INBOX}{row.sequence}",
        row.account,
        row.chat_id,
        row.received_at,
        said(row.payload),
    )


def _part(row: Any) -> Found:
    message = message_of(row)
    text = "" if message is None else message.text
    return Found("delivery", row.id, row.account, row.chat_id, row.created_at, text)


def _turn(row: Any) -> Found:
    account, chat = _place(row.session_key)
    return Found("turn", row.id, account, chat, row.started_at, "")


def _session(row: Any) -> Found:
    account, chat = _place(row.session_key)
    return Found("session", row.id, account, chat, row.created_at, "")


def _place(session_key: str) -> tuple[str, str]:
    """Account and chat that a session key is about (see `sessions.session_key`)."""
    parts = session_key.split(":")
    return (parts[2], parts[4]) if len(parts) > 4 else (session_key, "")  # noqa: PLR2004


_OWN: dict[str, tuple[Any, Any]] = {
    "t_": (Turn, _turn),
    "s_": (Session, _session),
    "o_": (Outbox, _part),
}


# ── the rows that belong together ────────────────────────────────────────────────────────────────


def _add_event(database: pw.SqliteDatabase, rows: _Rows, sequence: int) -> None:
    """An event with its edits and its deletion, its turns, and what was answered."""
    (row,) = Inbox.select().where(Inbox.sequence == sequence).execute(database)
    same = (
        (Inbox.account == row.account)
        & (Inbox.chat_id == row.chat_id)
        & (Inbox.message_id == row.message_id)
    )
    related = Inbox.select().where((Inbox.sequence == sequence) | same & (Inbox.message_id != ""))
    events = list(related.execute(database))
    rows.events |= {event.sequence: event for event in events}
    _add_turns(database, rows, [event.turn_id for event in events if event.turn_id])
    _add_notices(database, rows, events)


def _add_turns(database: pw.SqliteDatabase, rows: _Rows, ids: Iterable[str]) -> None:
    """Turns with all attempts of the same work, the events they took, and their texts."""
    chosen = Turn.select().where(Turn.id.in_(list(ids))).order_by(Turn.started_at)
    for turn in chosen.execute(database):
        for attempt in _attempts(database, turn):
            rows.turns.setdefault(attempt.id, attempt)
    known = list(rows.turns)
    taken = Inbox.select().where(Inbox.turn_id.in_(known)).execute(database)
    rows.events |= {event.sequence: event for event in taken}
    said_by = Outbox.select().where(Outbox.turn_id.in_(known)).execute(database)
    rows.outbox |= {row.sequence: row for row in said_by}


def _attempts(database: pw.SqliteDatabase, turn: Any) -> list[Any]:
    """A turn with the ones before and after it that a crash or a stop cut: what they took went back
    to the head of the queue, so that the next turn of the session took it again."""
    chain = [turn]
    while chain[0].attempt > 1 and (before := _neighbour(database, chain[0], -1)) is not None:
        chain.insert(0, before)
    while chain[-1].state == "interrupted":
        after = _neighbour(database, chain[-1], 1)
        if after is None:
            break
        chain.append(after)
    return chain


def _neighbour(database: pw.SqliteDatabase, turn: Any, step: int) -> Any | None:
    query = Turn.select().where(
        (Turn.session_key == turn.session_key) & (Turn.attempt == turn.attempt + step)
    )
    if step > 0:
        query = query.where(Turn.started_at >= turn.started_at).order_by(Turn.started_at)
    else:
        cut = (Turn.started_at <= turn.started_at) & (Turn.state == "interrupted")
        query = query.where(cut).order_by(Turn.started_at.desc())
    found = list(query.limit(1).execute(database))
    return found[0] if found else None


def _add_delivery(database: pw.SqliteDatabase, rows: _Rows, part_id: str) -> None:
    (row, *_) = Outbox.select().where(Outbox.id == part_id).execute(database)
    if row.turn_id is not None:
        _add_turns(database, rows, [row.turn_id])
    rows.outbox[row.sequence] = row
    message = message_of(row)
    if row.turn_id is None and message is not None:
        events = Inbox.select().where(
            (Inbox.account == row.account)
            & (Inbox.chat_id == row.chat_id)
            & Inbox.event_id.in_(message.answers)
        )
        found = list(events.execute(database))
        rows.events |= {event.sequence: event for event in found}
        _add_notices(database, rows, found)


def _add_notices(database: pw.SqliteDatabase, rows: _Rows, events: list[Any]) -> None:
    """What the core itself answered to events: commands, refusals."""
    for event in events:
        query = Outbox.select().where(
            (Outbox.account == event.account)
            & (Outbox.chat_id == event.chat_id)
            & Outbox.turn_id.is_null()
            & (Outbox.created_at >= event.received_at)
        )
        for row in query.order_by(Outbox.sequence).limit(MAX_NOTICES).execute(database):
            message = message_of(row)
            if message is not None and event.event_id in message.answers:
                rows.outbox[row.sequence] = row


def _of_session(database: pw.SqliteDatabase, subject: Found) -> Story:
    (session,) = Session.select().where(Session.id == subject.id).execute(database)
    mine = Turn.select().where(Turn.session_id == session.id)
    total = mine.count(database)
    latest = mine.order_by(Turn.started_at.desc()).limit(MAX_TURNS).execute(database)
    rows = _Rows()
    _add_turns(database, rows, [turn.id for turn in latest])
    untaken = Inbox.select().where(
        (Inbox.session_key == session.session_key)
        & (Inbox.generation == session.generation)
        & Inbox.turn_id.is_null()
    )
    events = list(untaken.order_by(Inbox.sequence.desc()).limit(MAX_TURNS).execute(database))
    rows.events |= {event.sequence: event for event in events}
    _add_notices(database, rows, events)
    steps = [Step(session.created_at, "session", session.id, f"begins ({session.session_key})")]
    steps += _steps(rows)
    if session.ended_at is not None:
        why = session.end_reason
        steps.append(Step(session.ended_at, "session", session.id, "ends", reason=why, end=True))
    lines = Message.select().where(Message.session_id == session.id).count(database)
    state = "current" if session.ended_at is None else f"ended: {session.end_reason}"
    outcome = f"{state}, {total} turns, {lines} lines of transcript"
    return Story(subject, _in_order(steps), outcome, left_out=max(0, total - MAX_TURNS))


# ── the rows as steps ────────────────────────────────────────────────────────────────────────────


def _steps(rows: _Rows) -> tuple[Step, ...]:
    """In the order of time; of one moment, in the order in which one leads to the other."""
    events = [event for _, event in sorted(rows.events.items())]
    return _in_order(
        [
            *(_arrival(event) for event in events),
            *(step for turn in rows.turns.values() for step in _of_turn(turn)),
            *(step for _, row in sorted(rows.outbox.items()) for step in _of_part(row)),
            *(step for event in events for step in _ends(event, rows)),
        ]
    )


def _in_order(steps: list[Step]) -> tuple[Step, ...]:
    return tuple(sorted(steps, key=lambda step: step.at))


def _arrival(row: Any) -> Step:
    who = f"{row.type} {row.event_id} from {row.sender_id} on {row.account}, chat {row.chat_id}"
    who += "" if row.payload else ERASED
    return Step(row.received_at, "received", f"{INBOX}{row.sequence}", who, said(row.payload))


def _ends(row: Any, rows: _Rows) -> Iterator[Step]:
    """How an event ended, unless it did with its turn."""
    name = f"{INBOX}{row.sequence}"
    if row.state == "dead":
        yield Step(row.ended_at, "dead", name, "is given up", reason=row.reason, end=True)
    elif row.state == "done" and not _ended_with(rows.turns.get(row.turn_id), row):
        yield Step(row.ended_at, "done", name, "is done", reason=row.reason, end=True)


def _ended_with(turn: Any | None, row: Any) -> bool:
    return turn is not None and row.reason == (turn.reason or turn.state)


def _of_turn(row: Any) -> Iterator[Step]:
    again = f", attempt {row.attempt}" if row.attempt > 1 else ""
    yield Step(row.started_at, "turn", row.id, f"begins in session {row.session_id}{again}")
    if row.ended_at is not None:
        reason = row.reason or row.state
        yield Step(row.ended_at, "turn", row.id, f"ends {row.state}", reason=reason, end=True)


def _of_part(row: Any) -> Iterator[Step]:
    message = message_of(row)
    what = "a text" if message is None else f"{message.kind} text"
    if message is not None and message.parts > 1:
        what += f", part {message.part} of {message.parts},"
    text = "" if message is None else message.text
    where = f"to {row.account}, chat {row.chat_id}" + ("" if row.payload else ERASED)
    yield Step(row.created_at, "outbox", row.id, f"{what} {where}", text)
    if row.state in deliveries.OPEN or row.ended_at is None:
        return
    after = f"after {row.attempts} attempt{'' if row.attempts == 1 else 's'}"
    arrived = f"arrived as message {row.message_id}" if row.message_id else "arrived"
    words = f"{arrived} {after}" if row.state == "delivered" else f"ended as {row.state} {after}"
    reason = row.reason or row.state
    yield Step(row.ended_at, row.state, row.id, words, reason=reason, end=True)


def _outcome(rows: _Rows) -> str:
    """What came of it, from the last thing that is known."""
    waiting = [row for row in rows.events.values() if row.state == "waiting"]
    if waiting:
        return (
            f"waits for its turn since it was {'put back' if waiting[0].attempts else 'received'}"
        )
    last = next(reversed(rows.turns.values()), None)
    if last is not None and last.state == "running":
        return f"turn {last.id} is running, or was when the gateway was killed"
    sent = grouped(rows.outbox.values())
    state = "" if last is None else last.state
    if sent:
        return f"{state}, {_sum(sent)}" if state else _sum(sent)
    if last is not None:
        return f"{state}: {last.reason}" if last.reason else state
    ends = [row.reason or row.state for _, row in sorted(rows.events.items())]
    return ends[0] if ends else "nothing is known"


def _sum(sent: list[Delivery]) -> str:
    """The outcomes of several texts in one, each named once."""
    return " and ".join(dict.fromkeys(delivery.outcome for delivery in sent))
