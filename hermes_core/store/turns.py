"""Operations on turns: take what waits, and the one commit that ends a turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hermes_core.ids import new_id
from hermes_core.messages import Inbound, decode_inbound
from hermes_core.store import events, inbox, outbox, sessions
from hermes_core.store.database import Tx
from hermes_core.store.events import NewEvent

TurnState = Literal["answered", "silent", "failed", "cancelled", "timed_out", "interrupted"]

MAX_ATTEMPTS = 2
"""How often a message is given to the agent that crashes of the gateway cut."""
MAX_COALESCED = 50
"""Messages that become one turn at most."""
MAX_STARTS = 5
"""How often a message is given to the agent that stops of the gateway cut."""


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """An inbox row as stored. Only the gate makes something of it that an agent may see."""

    sequence: int
    event_id: str
    event: Inbound
    received_at: float


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What waited longest was no event any more. It was given up."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Taken:
    """A turn whose attempt is committed. It has not begun: the gate is asked first.

    `shown` is the message in which a cut attempt showed its answer.
    """

    turn_id: str
    session_key: str
    session_id: str
    generation: int
    new_session: bool
    attempt: int
    rows: tuple[WaitingRow, ...]
    shown: outbox.Shown


@dataclass(frozen=True, slots=True)
class Barrier:
    """A command whose turn has come. It still waits; its transaction ends it."""

    row: WaitingRow


@dataclass(frozen=True, slots=True)
class Ending:
    """Everything that the end of a turn writes. `consumed` are rows that were steered into it.

    `events` are for durable observers; `cancelled` takes their place when the turn was cancelled
    first.
    """

    state: TurnState
    reason: str
    now: float
    lines: Sequence[sessions.Line]
    outbox: Sequence[outbox.NewRow]
    claim_first: bool
    consumed: Sequence[int] = ()
    events: Sequence[NewEvent] = ()
    cancelled: Sequence[NewEvent] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """`committed` is False when the turn was not running any more: nothing was written."""

    committed: bool
    appended: outbox.Appended | None


@dataclass(frozen=True, slots=True)
class Cut:
    """A message whose turn a crash or a stop cut: it is run again, or was given up."""

    turn_id: str
    session_key: str
    payload: bytes
    given_up: bool


def take(
    tx: Tx, session_key: str, now: float, *, coalesce: bool
) -> Taken | Barrier | Unreadable | None:
    """Take what waits longest in a session into a new turn; None when nothing waits.

    With `coalesce`, the messages of the same sender that follow it directly come along.
    """
    found = tx.execute(
        "SELECT sequence, event_id, payload, received_at, type, generation, attempts, sender_id,"
        " turn_id FROM inbox WHERE session_key = ? AND state = 'waiting' ORDER BY sequence LIMIT ?",
        (session_key, MAX_COALESCED if coalesce else 1),
    ).fetchall()
    if not found:
        return None
    sequence, _, _, _, kind, generation, attempts, owner, cut_turn = found[0]
    first = _waiting(*found[0][:4])
    if first is None:
        inbox.give_up(tx, sequence, outbox.UNREADABLE, now)
        return Unreadable(sequence)
    if kind == "command":
        return Barrier(first)
    rows = [first]
    for row in found[1:]:
        following = _waiting(*row[:4])
        if following is None or row[4:6] != (kind, generation) or row[7] != owner:
            break
        rows.append(following)
    address = first.event.address
    session_id, new_session = sessions.get_or_begin(tx, session_key, generation, address, now)
    turn_id = new_id("t")
    shown = _adopt(tx, cut_turn)
    tx.execute(
        "INSERT INTO turn (id, session_id, session_key, generation, attempt, owner, preview,"
        " unsure, state, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'running', ?)",
        (
            *(turn_id, session_id, session_key, generation, attempts + 1, owner),
            *shown.columns,
            now,
        ),
    )
    for taken in rows:
        tx.execute(
            "UPDATE inbox SET state = 'running', turn_id = ?, attempts = attempts + 1"
            " WHERE sequence = ?",
            (turn_id, taken.sequence),
        )
    return Taken(
        turn_id,
        session_key,
        session_id,
        generation,
        new_session,
        attempts + 1,
        tuple(rows),
        shown,
    )


def finish(tx: Tx, taken: Taken, ending: Ending) -> Ended:
    """The one commit of a turn: transcript, answer, inbox rows, state; or nothing at all.

    A turn that was cancelled meanwhile is not running any more, and then nothing of it is written
    but that it ended so, for durable observers.
    """
    cursor = tx.execute(
        "UPDATE turn SET state = ?, reason = ?, ended_at = ?, unsure = NULL"
        " WHERE id = ? AND state = 'running'",
        (ending.state, ending.reason, ending.now, taken.turn_id),
    )
    if cursor.rowcount != 1:
        events.append(tx, ending.cancelled, ending.now)
        return Ended(committed=False, appended=None)
    sessions.add_lines(tx, taken.session_id, taken.turn_id, list(ending.lines), ending.now)
    _end_rows(tx, taken.turn_id, ending.reason or ending.state, ending.now)
    for sequence in ending.consumed:
        tx.execute(
            "UPDATE inbox SET state = 'done', reason = 'steered', turn_id = ?, ended_at = ?"
            " WHERE sequence = ? AND state = 'waiting'",
            (taken.turn_id, ending.now, sequence),
        )
    tx.execute("UPDATE session SET active_at = ? WHERE id = ?", (ending.now, taken.session_id))
    events.append(tx, ending.events, ending.now)
    appended = outbox.append(tx, ending.outbox, claim_first=ending.claim_first)
    return Ended(committed=True, appended=appended)


def put_back(tx: Tx, taken: Taken, ending: Ending) -> list[Cut]:
    """End a turn that the gateway's stop cuts: its rows wait again. See `interrupt`."""
    cuts = interrupt(tx, ending.now, ending.reason, taken.turn_id)
    events.append(tx, ending.events, ending.now)
    return cuts


def set_shown(tx: Tx, turn_id: str, shown: outbox.Shown) -> None:
    """Remember the message in which a turn shows its answer, for an attempt after this one."""
    tx.execute("UPDATE turn SET preview = ?, unsure = ? WHERE id = ?", (*shown.columns, turn_id))


def cancel(
    tx: Tx, session_key: str, reason: str, now: float, owner: str | None = None
) -> str | None:
    """Commit that the running turn of a session is cancelled; only one of `owner`, when given.

    Its id, or None when no such turn runs.
    """
    row = tx.execute(
        "SELECT id FROM turn WHERE session_key = ? AND state = 'running'"
        " AND (? IS NULL OR owner = ?)",
        (session_key, owner, owner),
    ).fetchone()
    if row is None:
        return None
    turn_id = str(row[0])
    tx.execute(
        "UPDATE turn SET state = 'cancelled', reason = ?, ended_at = ? WHERE id = ?",
        (reason, now, turn_id),
    )
    _end_rows(tx, turn_id, reason, now)
    return turn_id


def interrupt(
    tx: Tx, now: float, reason: str, turn_id: str | None = None, *, attempts: int = MAX_ATTEMPTS
) -> list[Cut]:
    """End running turns without an answer and put their rows back to the head of the queue.

    `turn_id` names one turn (the gateway stops); without it all running turns are meant (it
    crashed). After `attempts` crashes a row ends as dead instead: it may be the cause. So it does
    after `MAX_STARTS` stops: the turn may be what asks for the stop, each time. Each is counted by
    itself: a stop brings no message nearer to being given up after a crash.
    """
    stop = int(turn_id is not None)
    found = tx.execute(
        "SELECT turn.id, turn.session_key, inbox.sequence, inbox.payload,"
        " inbox.attempts - inbox.stops, inbox.stops + 1 FROM turn"
        " JOIN inbox ON inbox.turn_id = turn.id AND inbox.state = 'running'"
        " WHERE turn.state = 'running' AND (? IS NULL OR turn.id = ?) ORDER BY inbox.sequence",
        (turn_id, turn_id),
    ).fetchall()
    cuts: list[Cut] = []
    for cut_id, session_key, sequence, payload, crashes, stops in found:
        given_up = stops >= MAX_STARTS if stop else crashes >= attempts
        state, why = ("dead", reason) if given_up else ("waiting", "")
        tx.execute(
            "UPDATE inbox SET state = ?, reason = ?, ended_at = ?, stops = stops + ?"
            " WHERE sequence = ?",
            (state, why, now if given_up else None, stop, sequence),
        )
        cuts.append(Cut(cut_id, session_key, payload, given_up))
    tx.execute(
        "UPDATE turn SET state = 'interrupted', reason = ?, ended_at = ?"
        " WHERE state = 'running' AND (? IS NULL OR id = ?)",
        (reason, now, turn_id, turn_id),
    )
    return cuts


def _waiting(sequence: int, event_id: str, payload: bytes, received_at: float) -> WaitingRow | None:
    event = decode_inbound(payload)
    return None if event is None else WaitingRow(sequence, event_id, event, received_at)


def _adopt(tx: Tx, cut_turn: str | None) -> outbox.Shown:
    """What a cut attempt showed. It passes to one turn, even if its rows become several."""
    if cut_turn is None:
        return outbox.Shown()
    row = tx.execute("SELECT preview, unsure FROM turn WHERE id = ?", (cut_turn,)).fetchone()
    if row is None:
        return outbox.Shown()
    set_shown(tx, cut_turn, outbox.Shown())
    return outbox.Shown.of(*row)


def _end_rows(tx: Tx, turn_id: str, reason: str, now: float) -> None:
    tx.execute(
        "UPDATE inbox SET state = 'done', reason = ?, ended_at = ?"
        " WHERE turn_id = ? AND state = 'running'",
        (reason, now, turn_id),
    )
