"""Operations on turns: take what waits, and the one commit that ends a turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hermes_core.ids import new_id
from hermes_core.messages import decode_inbound, encode
from hermes_core.store import outbox
from hermes_core.store.database import Tx

TurnState = Literal["answered", "silent", "failed", "cancelled", "timed_out", "interrupted"]

MAX_ATTEMPTS = 2
"""How often a message is given to the agent. The second time only after a crash cut the first."""


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """An inbox row as stored. Only the gate makes something of it that an agent may see."""

    sequence: int
    event_id: str
    payload: bytes
    received_at: float


@dataclass(frozen=True, slots=True)
class Taken:
    """A turn whose attempt is committed. It has not begun: the gate is asked first."""

    turn_id: str
    session_key: str
    session_id: str
    generation: int
    new_session: bool
    attempt: int
    rows: tuple[WaitingRow, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One line for the transcript."""

    role: Literal["user", "assistant"]
    text: str
    sender_id: str = ""
    sender_name: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """Everything that the end of a turn writes."""

    state: TurnState
    reason: str
    now: float
    lines: Sequence[Line]
    outbox: Sequence[outbox.NewRow]
    claim_first: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """`committed` is False when the turn was not running any more: nothing was written."""

    committed: bool
    appended: outbox.Appended | None


@dataclass(frozen=True, slots=True)
class Cut:
    """A turn that a crash or a stop cut, with what its rows became: run again, or given up."""

    turn_id: str
    session_key: str
    payload: bytes
    given_up: bool


def take(tx: Tx, session_key: str, now: float) -> Taken | None:
    """Take the oldest waiting row of a session into a new turn; None when nothing waits."""
    row = tx.execute(
        "SELECT sequence, event_id, payload, received_at, generation, attempts FROM inbox"
        " WHERE session_key = ? AND state = 'waiting' ORDER BY sequence LIMIT 1",
        (session_key,),
    ).fetchone()
    if row is None:
        return None
    sequence, event_id, payload, received_at, generation, attempts = row
    session_id, new_session = _session(tx, session_key, generation, payload, now)
    turn_id = new_id("t")
    tx.execute(
        "INSERT INTO turn (id, session_id, session_key, generation, attempt, state, started_at)"
        " VALUES (?, ?, ?, ?, ?, 'running', ?)",
        (turn_id, session_id, session_key, generation, attempts + 1, now),
    )
    tx.execute(
        "UPDATE inbox SET state = 'running', turn_id = ?, attempts = attempts + 1"
        " WHERE sequence = ?",
        (turn_id, sequence),
    )
    rows = (WaitingRow(sequence, event_id, payload, received_at),)
    return Taken(turn_id, session_key, session_id, generation, new_session, attempts + 1, rows)


def finish(tx: Tx, taken: Taken, ending: Ending) -> Ended:
    """The one commit of a turn: transcript, answer, inbox rows, state; or nothing at all.

    A turn that was cancelled meanwhile is not running any more, and then nothing of it is written.
    """
    cursor = tx.execute(
        "UPDATE turn SET state = ?, reason = ?, ended_at = ? WHERE id = ? AND state = 'running'",
        (ending.state, ending.reason, ending.now, taken.turn_id),
    )
    if cursor.rowcount != 1:
        return Ended(committed=False, appended=None)
    for line in ending.lines:
        tx.execute(
            "INSERT INTO message (session_id, turn_id, role, sender_id, sender_name, text,"
            " created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                taken.session_id,
                taken.turn_id,
                line.role,
                line.sender_id,
                line.sender_name,
                line.text,
                ending.now,
            ),
        )
    _end_rows(tx, taken.turn_id, ending.reason or ending.state, ending.now)
    tx.execute(
        "UPDATE session SET active_at = ? WHERE id = ?", (ending.now, taken.session_id)
    )
    appended = outbox.append(tx, ending.outbox, claim_first=ending.claim_first)
    return Ended(committed=True, appended=appended)


def cancel(tx: Tx, session_key: str, now: float) -> str | None:
    """Commit that the running turn of a session is cancelled. Its id, or None when none runs."""
    row = tx.execute(
        "SELECT id FROM turn WHERE session_key = ? AND state = 'running'", (session_key,)
    ).fetchone()
    if row is None:
        return None
    (turn_id,) = row
    tx.execute(
        "UPDATE turn SET state = 'cancelled', reason = 'stopped', ended_at = ? WHERE id = ?",
        (now, turn_id),
    )
    _end_rows(tx, turn_id, "stopped", now)
    return str(turn_id)


def interrupt(tx: Tx, now: float, reason: str, turn_id: str | None = None) -> list[Cut]:
    """End running turns without an answer and put their rows back to the head of the queue.

    `turn_id` names one turn (the gateway stops); without it all running turns are meant (it crashed). After a
    crash, a row that was given to the agent `MAX_ATTEMPTS` times ends as dead instead: it may be the cause.
    """
    found = tx.execute(
        "SELECT turn.id, turn.session_key, inbox.sequence, inbox.payload, inbox.attempts FROM turn"
        " JOIN inbox ON inbox.turn_id = turn.id AND inbox.state = 'running'"
        " WHERE turn.state = 'running' AND (? IS NULL OR turn.id = ?) ORDER BY inbox.sequence",
        (turn_id, turn_id),
    ).fetchall()
    cuts: list[Cut] = []
    for cut_id, session_key, sequence, payload, attempts in found:
        given_up = turn_id is None and attempts >= MAX_ATTEMPTS
        state, why = ("dead", reason) if given_up else ("waiting", "")
        tx.execute(
            "UPDATE inbox SET state = ?, reason = ?, ended_at = ? WHERE sequence = ?",
            (state, why, now if given_up else None, sequence),
        )
        cuts.append(Cut(cut_id, session_key, payload, given_up))
    tx.execute(
        "UPDATE turn SET state = 'interrupted', reason = ?, ended_at = ?"
        " WHERE state = 'running' AND (? IS NULL OR id = ?)",
        (reason, now, turn_id, turn_id),
    )
    return cuts


def history(tx: Tx, session_id: str, max_chars: int) -> list[tuple[str, str, str, float]]:
    """The latest lines of a transcript that fit into `max_chars`, oldest first."""
    lines: list[tuple[str, str, str, float]] = []
    left = max_chars
    for line in tx.execute(
        "SELECT role, text, sender_name, created_at FROM message WHERE session_id = ?"
        " ORDER BY id DESC",
        (session_id,),
    ):
        left -= len(line[1])
        if left < 0:
            break
        lines.append(line)
    return lines[::-1]


def _session(
    tx: Tx, session_key: str, generation: int, payload: bytes, now: float
) -> tuple[str, bool]:
    row = tx.execute(
        "SELECT id FROM session WHERE session_key = ? AND generation = ?",
        (session_key, generation),
    ).fetchone()
    if row is not None:
        return str(row[0]), False
    session_id = new_id("s")
    address = decode_inbound(payload).address
    tx.execute(
        "INSERT INTO session (id, session_key, generation, address, created_at, active_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (session_id, session_key, generation, encode(address), now, now),
    )
    return session_id, True


def _end_rows(tx: Tx, turn_id: str, reason: str, now: float) -> None:
    tx.execute(
        "UPDATE inbox SET state = 'done', reason = ?, ended_at = ?"
        " WHERE turn_id = ? AND state = 'running'",
        (reason, now, turn_id),
    )
