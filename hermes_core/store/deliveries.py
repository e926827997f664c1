"""What was to be sent, as people ask about it: the parts of one text, and what became of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import peewee as pw

from hermes_core.messages import Outbound
from hermes_core.store.models import Outbox
from hermes_core.store.outbox import decode

Outcome = Literal[
    "sent",
    "partly sent",
    "refused by the platform",
    "unknown",
    "pending",
    "failed",
    "expired",
    "discarded",
]

OPEN = ("pending", "attempting")
"""States of parts that are still to be sent."""
UNDELIVERED = ("failed", "expired", "unknown")
"""States of parts that ended without a receipt: what can be replayed, and what can be discarded."""
REFUSED = "refused by the platform"
"""How the reason of a part begins that the platform refused (see `attempts`)."""


@dataclass(frozen=True, slots=True)
class Part:
    """One message to the platform. `text` is "" when it is `erased` by age; `number` counts from
    1."""

    sequence: int
    id: str
    number: int
    parts: int
    state: str
    attempts: int
    message_id: str
    reason: str
    text: str
    erased: bool
    created_at: float
    expires_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One text and its parts, in order. `id` is that of its first part; `kind` is final, notice,
    error. `turn_id` is None for what no turn said."""

    id: str
    account: str
    chat_id: str
    session_key: str
    turn_id: str | None
    kind: str
    created_at: float
    parts: tuple[Part, ...]

    @property
    def outcome(self) -> Outcome:
        return outcome(self.parts)

    @property
    def undelivered(self) -> str:
        """The text that did not arrive, or that nobody knows to have arrived."""
        return "".join(part.text for part in self.parts if part.state != "delivered")


def outcome(parts: Sequence[Part]) -> Outcome:
    """What became of a text as a whole."""
    states = {part.state for part in parts}
    if states & set(OPEN):
        return "pending"
    if states == {"delivered"}:
        return "sent"
    if "delivered" in states:
        return "partly sent"
    if "unknown" in states:
        return "unknown"
    if "failed" in states:
        refused = any(part.reason.startswith(REFUSED) for part in parts)
        return "refused by the platform" if refused else "failed"
    return "expired" if "expired" in states else "discarded"


def latest(database: pw.SqliteDatabase, states: Sequence[str], limit: int) -> list[Delivery]:
    """The latest deliveries with a part in one of `states` (in any, when that is empty)."""
    query = Outbox.select(Outbox.account, Outbox.chat_id, Outbox.session_key, Outbox.turn_id)
    query = query.select_extend(Outbox.created_at)
    if states:
        query = query.where(Outbox.state.in_(states))
    query = (
        query.group_by(*_KEY)
        .order_by(Outbox.created_at.desc(), pw.fn.MAX(Outbox.sequence).desc())
        .limit(limit)
    )
    wanted = [tuple(row) for row in query.tuples().execute(database)]
    rows = Outbox.select().where(Outbox.created_at.in_([key[-1] for key in wanted]))
    found = {_key(delivery): delivery for delivery in grouped(rows.execute(database))}
    return [found[key] for key in wanted]


def find(database: pw.SqliteDatabase, wanted: str) -> list[Delivery]:
    """The deliveries that `wanted` names: the id of a part or of a turn, the beginning of one, or
    the id that the platform gave to a message."""
    query = Outbox.select().where((Outbox.id == wanted) | (Outbox.turn_id == wanted))
    rows = list(query.execute(database))
    if not rows and wanted[:2] in ("o_", "t_"):
        begins = Outbox.id.startswith(wanted) | Outbox.turn_id.startswith(wanted)
        rows = list(Outbox.select().where(begins).order_by(Outbox.sequence).execute(database))
    if not rows and wanted:
        rows = list(Outbox.select().where(Outbox.message_id == wanted).execute(database))
    keys = {row.created_at for row in rows}
    same = {(row.session_key, row.turn_id) for row in rows}
    whole = Outbox.select().where(Outbox.created_at.in_(keys)).execute(database)
    return [
        delivery for delivery in grouped(whole) if (delivery.session_key, delivery.turn_id) in same
    ]


def grouped(rows: Iterable[Any]) -> list[Delivery]:
    """Rows of the outbox put together to deliveries, the oldest first."""
    groups: dict[tuple[object, ...], list[Any]] = {}
    for row in sorted(rows, key=lambda row: (row.created_at, row.sequence)):
        key = (row.account, row.chat_id, row.session_key, row.turn_id, row.created_at)
        groups.setdefault(key, []).append(row)
    return [_delivery(group) for group in groups.values()]


def message_of(row: Any) -> Outbound | None:
    """What a row of the outbox says; None when that is erased by age, or damaged."""
    return decode(bytes(row.payload))


_KEY = (Outbox.account, Outbox.chat_id, Outbox.session_key, Outbox.turn_id, Outbox.created_at)


def _key(delivery: Delivery) -> tuple[object, ...]:
    return (
        delivery.account,
        delivery.chat_id,
        delivery.session_key,
        delivery.turn_id,
        delivery.created_at,
    )


def _delivery(rows: list[Any]) -> Delivery:
    messages = [message_of(row) for row in rows]
    found = [
        _part(row, said, place, len(rows))
        for place, (row, said) in enumerate(zip(rows, messages, strict=True), start=1)
    ]
    parts = sorted(found, key=lambda part: part.number)
    first = rows[0]
    known = next((said for said in messages if said is not None), None)
    return Delivery(
        id=parts[0].id,
        account=first.account,
        chat_id=first.chat_id,
        session_key=first.session_key,
        turn_id=first.turn_id,
        kind="" if known is None else known.kind,
        created_at=first.created_at,
        parts=tuple(parts),
    )


def _part(row: Any, said: Outbound | None, place: int, rows: int) -> Part:
    """What is erased has the number of its place among the rows that are there."""
    return Part(
        sequence=row.sequence,
        id=row.id,
        number=place if said is None else said.part,
        parts=rows if said is None else said.parts,
        state=row.state,
        attempts=row.attempts,
        message_id=row.message_id,
        reason=row.reason,
        text="" if said is None else said.text,
        erased=not row.payload,
        created_at=row.created_at,
        expires_at=row.expires_at,
        ended_at=row.ended_at,
    )
