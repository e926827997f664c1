"""Search in transcripts: an index beside them, which can be built anew at any time.

It is SQLite's own full-text index, without a copy of the text. In the commit of a turn it would
cost a sixth of all turns, so lines are added about once a minute (`catch_up`), and a search looks
through those that are newer by itself. Everything that knows how words are found is in this file:
another database has its own way.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import peewee as pw

from hermes_core.errors import HermesError, StoreError
from hermes_core.store.database import Tx, connection_of
from hermes_core.store.guard import is_index_damage
from hermes_core.text import clean

if TYPE_CHECKING:
    from hermes_core.store.store import Store

log = logging.getLogger(__name__)

BATCH = 200
"""Lines in one transaction: 4 ms of the writer's time with texts of a hundred words."""
ROUNDS = 250
"""Transactions one after the other: 50,000 lines."""
MAX_WORDS = 50
MAX_RECENT = 10_000
"""Lines that are not in the index and looked through nevertheless, the latest ones. Usually they
are those of the last minute."""
PAGES = 100
"""Pages of the index that one step of `purge` works on."""
_SNIPPET = 16
"""Words around those that were found."""

_COLUMNS = "USING fts5(text, {content} tokenize = 'unicode61 remove_diacritics 2')"


@dataclass(frozen=True, slots=True)
class Hit:
    """A line that has the words. `snippet` is the part of its text where they are, each marked as
    `[word]`."""

    session_id: str
    session_key: str
    turn_id: str
    role: str
    sender: str
    created_at: float
    text: str
    snippet: str


# ── the index ────────────────────────────────────────────────────────────────────────────────────


async def catch_up(store: Store) -> None:
    """Add what was said since the last time. Raises StoreError."""
    for _ in range(ROUNDS):
        if await store.write(index) < BATCH:
            break


async def purge_all(store: Store) -> None:
    """Let the index forget the words of lines that are gone: it is written anew, which takes 20
    seconds of the writer's time for a million lines. A stop leaves the rest to the next time.

    Raises StoreError.
    """
    if await store.write(lambda tx: purge(tx, begin=True)):
        for _ in range(ROUNDS):
            if not await store.write(lambda tx: purge(tx, begin=False)):
                break


async def discard_if_damaged(store: Store, error: StoreError) -> None:
    """Throw the index away if it was what failed a write; the next `catch_up` makes it anew.

    Raises `error` if it was something else, StoreError and StoreFault if the index cannot go.
    """
    if not is_index_damage(error):
        raise error
    log.error("the index for searching is damaged, and is made anew: %s", error.__cause__)
    await store.write(lambda tx: tx.execute("DROP TABLE IF EXISTS message_text"))


def index(tx: Tx) -> int:
    """Add the next lines, at most `BATCH`. How many there were."""
    if not _prepared(tx):
        return 0
    return tx.execute(
        "INSERT INTO message_text (rowid, text) SELECT id, text FROM message WHERE id > ?"
        " ORDER BY id LIMIT ?",
        (_position(tx), BATCH),
    ).rowcount


def forget(tx: Tx, ids: Sequence[int]) -> None:
    """Take lines out that are about to be deleted. `purge` makes the index forget their words."""
    if ids and _prepared(tx):
        marks = ", ".join("?" for _ in ids)
        tx.execute(
            "INSERT INTO message_text (message_text, rowid, text) SELECT 'delete', id, text"  # noqa: S608
            f" FROM message WHERE id IN ({marks})"
            " AND id IN (SELECT id FROM message_text_docsize)",
            tuple(ids),
        )


def purge(tx: Tx, *, begin: bool) -> bool:
    """Take one step in writing the index anew without what is forgotten. Whether there is more to
    do.

    Until then the words of a line are still in it, though no search finds them any more.
    """
    if not _prepared(tx):
        return False
    before = tx.total_changes
    tx.execute(
        "INSERT INTO message_text (message_text, rank) VALUES ('merge', ?)",
        (-PAGES if begin else PAGES,),  # a negative number takes up all parts of the index
    )
    return tx.total_changes - before > 1


def _prepared(tx: Tx) -> bool:
    """Make the index if there is none yet. False where SQLite was built without such indexes."""
    if not _can_index(tx):
        return False
    content = "content = 'message', content_rowid = 'id',"
    tx.execute(
        f"CREATE VIRTUAL TABLE IF NOT EXISTS message_text {_COLUMNS.format(content=content)}"
    )
    return True


def _can_index(tx: Tx) -> bool:
    found = tx.execute("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'").fetchone()
    return found is not None


def _position(tx: Tx) -> int:
    """The highest line that is in the index. It has a row in there for each line."""
    (position,) = tx.execute("SELECT COALESCE(MAX(id), 0) FROM message_text_docsize").fetchone()
    return int(position)


# ── searching ────────────────────────────────────────────────────────────────────────────────────


def search(database: pw.SqliteDatabase, words: Sequence[str], limit: int) -> list[Hit]:
    """The latest lines with all of `words`, the latest first; none that was taken back or erased.

    A word with a space in it is a phrase; one that ends in ``*`` is the beginning of a word.
    Accents and capitals make no difference. `database` may be read-only, but is not one of the
    gateway's own connections. Raises HermesError for too many words, or where SQLite cannot search.
    """
    if not words:
        return []
    if len(words) > MAX_WORDS:
        raise HermesError(f"too many words: {len(words)}", remedy=f"use at most {MAX_WORDS}")
    wanted, tx = " ".join(map(_term, words)), connection_of(database)
    if not _can_index(tx):
        remedy = "use a Python whose SQLite has FTS5"
        raise HermesError("this Python's SQLite cannot search texts", remedy=remedy)
    indexed = tx.execute("SELECT 1 FROM sqlite_master WHERE name = 'message_text'").fetchone()
    _index_recent(tx, _position(tx) if indexed else 0)
    hits = _hits(tx, "recent", wanted, limit)
    if indexed:
        hits += _hits(tx, "message_text", wanted, limit - len(hits))
    return hits


def _term(word: str) -> str:
    """A word as the index takes it: quoted, so that nothing in it is an operator."""
    stem = word.removesuffix("*")
    quoted = '"' + clean(stem).replace('"', '""') + '"'
    return quoted if stem == word else f"{quoted} *"


def _index_recent(tx: Tx, position: int) -> None:
    """Index what is not in the index yet, in a table of this connection alone."""
    tx.execute("DROP TABLE IF EXISTS temp.recent")
    tx.execute(f"CREATE VIRTUAL TABLE temp.recent {_COLUMNS.format(content='')}")
    tx.execute(
        "INSERT INTO temp.recent (rowid, text) SELECT id, text FROM message WHERE id > ?"
        " ORDER BY id DESC LIMIT ?",
        (position, MAX_RECENT),
    )


def _hits(tx: Tx, table: str, wanted: str, limit: int) -> list[Hit]:
    rows = tx.execute(
        "SELECT m.session_id, COALESCE(s.session_key, ''), m.turn_id, m.role,"  # noqa: S608
        " CASE WHEN m.sender_name = '' THEN m.sender_id ELSE m.sender_name END, m.created_at,"
        f" m.text, snippet({table}, 0, '[', ']', '…', {_SNIPPET})"
        f" FROM {table} JOIN message m ON m.id = {table}.rowid"
        f" LEFT JOIN session s ON s.id = m.session_id WHERE {table} MATCH ? AND m.hidden = 0"
        f" ORDER BY {table}.rowid DESC LIMIT ?",
        (wanted, limit),
    )
    return [Hit(*row) for row in rows]
