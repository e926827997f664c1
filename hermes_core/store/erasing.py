"""What goes with age: first the content of rows that are over, later the rows.

Every operation takes `BATCH` rows at most, so that it holds up other writes for milliseconds. What
waits, runs or is still to be sent is never touched, however old it is, and a row is deleted only
when its content was erased before. Times are UNIX seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hermes_core.messages import OutboundAttachment
from hermes_core.store import outbox, search
from hermes_core.store.database import Tx

BATCH = 200
"""Rows in one transaction, which takes 2 to 10 ms of the writer with texts of 1 kB."""


@dataclass(frozen=True, slots=True)
class Erased:
    """What one operation did: to how many rows, `BATCH` when there may be more of them. Nothing
    refers to `files` any more."""

    count: int
    files: tuple[OutboundAttachment, ...] = ()


Step = Callable[[Tx, float], Erased]
"""One operation on what ended, or was said, before a time."""


# ── content ──────────────────────────────────────────────────────────────────────────────────────


def erase_inbox(tx: Tx, before: float) -> Erased:
    """Erase what came in. Its ids stay, by which a repeat is recognised, and how it ended."""
    return _run(
        tx,
        "UPDATE inbox SET payload = ? WHERE sequence IN (SELECT sequence FROM inbox"
        " WHERE length(payload) > 0 AND ended_at < ? AND state IN ('done', 'dead') LIMIT ?)",
        b"",
        before,
    )


def erase_outbox(tx: Tx, before: float) -> Erased:
    """Erase what was sent, or was not and can be sent by hand no more, and let go of its files."""
    rows = tx.execute(
        "SELECT sequence, files, payload FROM outbox WHERE length(payload) > 0 AND ended_at < ?"
        " AND state NOT IN ('pending', 'attempting') LIMIT ?",
        (before, BATCH),
    ).fetchall()
    tx.executemany(
        "UPDATE outbox SET payload = ?, unsure = NULL, files = 0 WHERE sequence = ?",
        [(b"", sequence) for sequence, _, _ in rows],
    )
    messages = [outbox.decode(payload) for _, some, payload in rows if some]
    return Erased(len(rows), tuple(f for said in messages if said for f in said.attachments))


def erase_turns(tx: Tx, before: float) -> Erased:
    """Erase what turns had shown that were cut, unless what they answered is still to be
    answered."""
    return _run(
        tx,
        "UPDATE turn SET unsure = NULL WHERE id IN"
        " (SELECT id FROM turn WHERE unsure IS NOT NULL AND ended_at < ? AND id NOT IN"
        " (SELECT turn_id FROM inbox WHERE state = 'waiting' AND turn_id IS NOT NULL) LIMIT ?)",
        before,
    )


def delete_hidden(tx: Tx, before: float) -> Erased:
    """Delete the lines that were taken back: no agent remembers them."""
    return Erased(
        _delete_lines(
            tx,
            "SELECT id FROM message WHERE hidden = 1 AND created_at < ? LIMIT ?",
            (before, BATCH),
        )
    )


def delete_events(tx: Tx, before: float) -> Erased:
    """Delete durable events, read or not. The oldest come first, so no more than those are looked
    at."""
    return _run(
        tx,
        "DELETE FROM event WHERE created_at < ? AND sequence IN"
        " (SELECT sequence FROM event ORDER BY sequence LIMIT ?)",
        before,
    )


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────


def delete_inbox(tx: Tx, before: float) -> Erased:
    """Delete events: from now on they would be new ones."""
    return _run(
        tx,
        "DELETE FROM inbox WHERE sequence IN (SELECT sequence FROM inbox"
        " WHERE length(payload) = 0 AND ended_at < ? AND state IN ('done', 'dead') LIMIT ?)",
        before,
    )


def delete_outbox(tx: Tx, before: float) -> Erased:
    """Delete messages that were sent, or were not."""
    return _run(
        tx,
        "DELETE FROM outbox WHERE sequence IN (SELECT sequence FROM outbox WHERE"
        " length(payload) = 0 AND ended_at < ? AND state NOT IN ('pending', 'attempting') LIMIT ?)",
        before,
    )


def delete_turns(tx: Tx, before: float) -> Erased:
    """Delete turns, but for those that something refers to which is not over yet."""
    return _run(
        tx,
        "DELETE FROM turn WHERE id IN (SELECT id FROM turn WHERE ended_at < ? AND id NOT IN"
        " (SELECT turn_id FROM inbox WHERE state = 'waiting' AND turn_id IS NOT NULL)"
        " AND id NOT IN (SELECT turn_id FROM outbox"
        " WHERE state IN ('pending', 'attempting') AND turn_id IS NOT NULL) LIMIT ?)",
        before,
    )


def delete_denials(tx: Tx, before: float) -> Erased:
    """Delete what is known of strangers who do not come any more."""
    return _run(
        tx,
        "DELETE FROM denied WHERE id IN (SELECT id FROM denied WHERE last_at < ? LIMIT ?)",
        before,
    )


# ── transcripts ──────────────────────────────────────────────────────────────────────────────────


def delete_sessions(tx: Tx, before: float) -> Erased:
    """Delete sessions that ended, line by line and at last themselves. One that goes on keeps all
    its lines."""
    ended = tx.execute(
        "SELECT id FROM session WHERE ended_at < ? ORDER BY ended_at LIMIT ?", (before, BATCH)
    ).fetchall()
    left = BATCH
    for (session_id,) in ended:
        left -= _delete_lines(
            tx,
            "SELECT id FROM message WHERE session_id = ? ORDER BY id LIMIT ?",
            (session_id, left),
        )
        if left == 0:
            break
        tx.execute("DELETE FROM session WHERE id = ?", (session_id,))
        left -= 1
    return Erased(BATCH - left)


def _delete_lines(tx: Tx, which: str, values: tuple[object, ...]) -> int:
    ids = [line for (line,) in tx.execute(which, values).fetchall()]
    search.forget(tx, ids)
    tx.executemany("DELETE FROM message WHERE id = ?", [(line,) for line in ids])
    return len(ids)


def _run(tx: Tx, statement: str, *values: object) -> Erased:
    return Erased(tx.execute(statement, (*values, BATCH)).rowcount)
