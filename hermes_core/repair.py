"""Repair by hand: what ended badly is given another chance, or is put away for good.

Every change names exact rows and looks at them again inside its own transaction: it is done whole,
or refused with the reason.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import peewee as pw

from hermes_core.delivery import TIME_TO_LIVE
from hermes_core.errors import ControlError, HermesError, StoreError
from hermes_core.store import Tx, inbox, outbox, sessions
from hermes_core.store.database import cannot_use, connection_of, open_writer
from hermes_core.store.deliveries import UNDELIVERED
from hermes_core.store.models import Inbox, Outbox
from hermes_core.store.writer import begin

What = Literal["inbox", "deliveries"]
Action = Literal["replay", "discard"]

BY_HAND = "discarded by hand"
REPLAYED = "replayed by hand"


@dataclass(frozen=True)
class Change:
    """What is to be done with which rows: sequences of the inbox, or of the outbox."""

    what: What
    action: Action
    rows: tuple[int, ...]

    @classmethod
    def parse(cls, wanted: Mapping[str, object]) -> Change:
        """A change as it comes over the control socket. Raises ControlError for anything else."""
        what, action, rows = wanted.get("what"), wanted.get("action"), wanted.get("rows")
        known = what in get_args(What) and action in get_args(Action)
        if not known or not isinstance(rows, list) or not all(type(row) is int for row in rows):
            raise ControlError("not a change that can be made")
        return cls(what, action, tuple(rows))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Done:
    """What a change did. `rows` are the sequences that the rows have now, `waiting` the session
    keys and sequences of events that wait again, `freed` how many do not wait any more,
    `appended` what is to be sent."""

    rows: tuple[int, ...] = ()
    waiting: tuple[tuple[str, int], ...] = ()
    freed: int = 0
    appended: tuple[outbox.Appended, ...] = ()


def apply(tx: Tx, change: Change, now: float) -> Done:
    """Make a change in an open transaction. Raises HermesError, and then nothing is changed."""
    if not change.rows:
        raise HermesError("nothing is named that could be changed")
    done = Done()
    for row in change.rows:
        done = _CHANGES[change.what, change.action](tx, row, now, done)
    return done


def apply_alone(path: Path, change: Change, now: float) -> Done:
    """Make a change while no gateway runs; the caller holds the home's lock.

    Raises StoreError when the database cannot be used, or is locked by another program.
    """
    database = open_writer(path)
    try:
        tx = connection_of(database)
        if not begin(tx):
            raise StoreError("another process holds the write lock", where=str(path))
        outbox.doubt_unfinished(tx)
        done = apply(tx, change, now)
        tx.execute("COMMIT")
    except sqlite3.Error as error:
        raise cannot_use(path, error) from error
    finally:
        database.close()  # without a commit before it, nothing was changed
    return done


# ── the inbox ────────────────────────────────────────────────────────────────────────────────────


def _replay_event(tx: Tx, sequence: int, now: float, done: Done) -> Done:
    """Let a dead event come in again, as if it were new.

    It takes its place at the end of the queue, under a sequence of its own, in the session that is
    current now. It keeps its event id, so that the network's repeats are recognised; the dead row
    stays for the record.
    """
    state, key, _ = _event(tx, sequence)
    if state != "dead":
        raise HermesError(f"inbox:{sequence} is {_event_words(state)}; only dead ones are replayed")
    _require_content(tx, "inbox", sequence, f"inbox:{sequence}")
    (event_id,) = tx.execute(
        "SELECT event_id FROM inbox WHERE sequence = ?", (sequence,)
    ).fetchone()
    tx.execute(
        "UPDATE inbox SET event_id = ? WHERE sequence = ?", (f"{event_id}#{sequence}", sequence)
    )
    changed = {
        "event_id": event_id,
        "generation": sessions.generation(tx, key),
        "state": "waiting",
        "reason": f"{REPLAYED}, was inbox:{sequence}",
        "turn_id": None,
        "attempts": 0,
        "stops": 0,
        "received_at": now,
        "ended_at": None,
    }
    again = _copy(tx, Inbox, sequence, changed)
    inbox.end(tx, sequence, f"{REPLAYED} as inbox:{again}", now)
    return replace(
        done,
        rows=(*done.rows, again),
        waiting=(*done.waiting, (key, again)),
    )


def _discard_event(tx: Tx, sequence: int, now: float, done: Done) -> Done:
    """End an event that is dead or waits. Nobody is told."""
    state, _, kind = _event(tx, sequence)
    if state not in ("dead", "waiting"):
        raise HermesError(f"inbox:{sequence} is {_event_words(state)}; there is nothing to discard")
    if state == "waiting" and kind == "command":
        raise HermesError(f"inbox:{sequence} is a command that takes its place in the queue")
    inbox.end(tx, sequence, BY_HAND, now)
    return replace(done, rows=(*done.rows, sequence), freed=done.freed + int(state == "waiting"))


def _event(tx: Tx, sequence: int) -> tuple[str, str, str]:
    row = tx.execute(
        "SELECT state, session_key, type FROM inbox WHERE sequence = ?", (sequence,)
    ).fetchone()
    if row is None:
        raise HermesError(f"there is no inbox:{sequence} any more")
    return row[0], row[1], row[2]


def _event_words(state: str) -> str:
    words = {"running": "being answered, or was when the gateway was killed", "done": "done"}
    return words.get(state, state)


# ── the outbox ───────────────────────────────────────────────────────────────────────────────────


def _replay_part(tx: Tx, sequence: int, now: float, done: Done) -> Done:
    """Send a part again that ended without a receipt.

    It keeps its id and its time of creation, so that the platform can recognise it; it goes behind
    what waits for its chat. What may have arrived before is looked for or marked, as always.
    """
    state, chat, name = _part(tx, sequence)
    if state not in UNDELIVERED:
        raise HermesError(f"{name} is {state}; only what failed is replayed")
    _require_content(tx, "outbox", sequence, name)
    changed: dict[str, object] = {
        "state": "pending",
        "attempts": 0,
        "reason": REPLAYED,
        "expires_at": now + TIME_TO_LIVE,
        "ended_at": None,
    }
    if state == "unknown":
        changed["doubtful"] = 1
    again = _copy(tx, Outbox, sequence, changed)
    tx.execute("DELETE FROM outbox WHERE sequence = ?", (sequence,))
    return replace(
        done,
        rows=(*done.rows, again),
        appended=(*done.appended, outbox.Appended(chat, again, None)),
    )


def _discard_part(tx: Tx, sequence: int, now: float, done: Done) -> Done:
    """Put a part away that failed, or that is not to be sent any more."""
    state, _, name = _part(tx, sequence)
    if state == "attempting":
        raise HermesError(f"{name} is being sent at this moment", remedy="try again in a moment")
    if state != "pending" and state not in UNDELIVERED:
        raise HermesError(f"{name} is {state}; there is nothing to discard")
    tx.execute(
        "UPDATE outbox SET state = 'discarded', ended_at = ?,"
        " reason = CASE WHEN reason = '' THEN ? ELSE ? || ': ' || reason END WHERE sequence = ?",
        (now, BY_HAND, BY_HAND, sequence),
    )
    return replace(done, rows=(*done.rows, sequence))


def _part(tx: Tx, sequence: int) -> tuple[str, outbox.Chat, str]:
    row = tx.execute(
        "SELECT state, account, chat_id, id FROM outbox WHERE sequence = ?", (sequence,)
    ).fetchone()
    if row is None:
        raise HermesError("it has changed meanwhile", remedy="look again: `hermes deliveries list`")
    return row[0], outbox.Chat(row[1], row[2]), row[3]


# ── both ─────────────────────────────────────────────────────────────────────────────────────────


def _require_content(tx: Tx, table: str, sequence: int, name: str) -> None:
    """Raises HermesError for a row of which retention has left the keys alone."""
    (size,) = tx.execute(
        f"SELECT length(payload) FROM {table} WHERE sequence = ?",  # noqa: S608 - our own names
        (sequence,),
    ).fetchone()
    if size == 0:
        raise HermesError(
            f"the content of {name} is erased by age, so there is nothing to replay",
            where="[retention] content",
        )


def _copy(tx: Tx, model: type[pw.Model], sequence: int, changed: Mapping[str, object]) -> int:
    """Add a row like another one but for what is `changed`, under the next sequence.

    Lanes and senders know their queues by the highest sequence, and would not look back.
    """
    table = model._meta.table_name
    names = [field.column_name for field in model._meta.sorted_fields]
    names.remove("sequence")
    values = ", ".join("?" if name in changed else name for name in names)
    given = [changed[name] for name in names if name in changed]
    cursor = tx.execute(
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {values}"  # noqa: S608 - our own names
        f" FROM {table} WHERE sequence = ?",
        (*given, sequence),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


_Change: TypeAlias = Callable[[Tx, int, float, Done], Done]
_CHANGES: dict[tuple[What, Action], _Change] = {
    ("inbox", "replay"): _replay_event,
    ("inbox", "discard"): _discard_event,
    ("deliveries", "replay"): _replay_part,
    ("deliveries", "discard"): _discard_part,
}
