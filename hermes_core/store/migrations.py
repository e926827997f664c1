"""Forward migrations of the state database, all in one transaction, with a backup first.

Each step is plain SQL that PostgreSQL takes as well, apart from the type of the serial keys. A step
that has shipped is never edited; a new one is appended.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from hermes_core.errors import NewerSchema

APPLICATION_ID = 0x48475731
"""Marks the file as ours in the SQLite header (offset 68): "HGW1"."""

STEPS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE generation (
            session_key TEXT NOT NULL PRIMARY KEY, generation INTEGER NOT NULL)""",
        """CREATE TABLE session (
            id TEXT NOT NULL PRIMARY KEY, session_key TEXT NOT NULL, generation INTEGER NOT NULL,
            address BLOB NOT NULL, created_at REAL NOT NULL, active_at REAL NOT NULL,
            ended_at REAL, end_reason TEXT NOT NULL DEFAULT '',
            UNIQUE (session_key, generation))""",
        "CREATE INDEX session_open ON session (active_at) WHERE ended_at IS NULL",
        "CREATE INDEX session_ended ON session (ended_at) WHERE ended_at IS NOT NULL",
        """CREATE TABLE message (
            id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
            turn_id TEXT NOT NULL, role TEXT NOT NULL, hidden INTEGER NOT NULL DEFAULT 0, sender_id
            TEXT NOT NULL DEFAULT '', sender_name TEXT NOT NULL DEFAULT '', text TEXT NOT NULL,
            created_at REAL NOT NULL)""",
        "CREATE INDEX message_session ON message (session_id, id)",
        "CREATE INDEX message_hidden ON message (created_at) WHERE hidden = 1",
        """CREATE TABLE turn (
            id TEXT NOT NULL PRIMARY KEY, session_id TEXT NOT NULL, session_key TEXT NOT NULL,
            generation INTEGER NOT NULL, attempt INTEGER NOT NULL, owner TEXT NOT NULL,
            preview TEXT NOT NULL DEFAULT '', unsure BLOB, state TEXT NOT NULL,
            reason TEXT NOT NULL DEFAULT '', started_at REAL NOT NULL, ended_at REAL)""",
        "CREATE INDEX turn_running ON turn (session_key) WHERE state = 'running'",
        "CREATE INDEX turn_ended ON turn (ended_at) WHERE ended_at IS NOT NULL",
        """CREATE INDEX turn_content ON turn (ended_at)
            WHERE ended_at IS NOT NULL AND unsure IS NOT NULL""",
        """CREATE TABLE inbox (
            sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account TEXT NOT NULL,
            chat_id TEXT NOT NULL, event_id TEXT NOT NULL, message_id TEXT NOT NULL DEFAULT '',
            sender_id TEXT NOT NULL DEFAULT '', type TEXT NOT NULL,
            session_key TEXT NOT NULL, generation INTEGER NOT NULL, payload BLOB NOT NULL,
            state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '', turn_id TEXT,
            attempts INTEGER NOT NULL DEFAULT 0, stops INTEGER NOT NULL DEFAULT 0,
            received_at REAL NOT NULL, ended_at REAL,
            UNIQUE (account, chat_id, event_id))""",
        "CREATE INDEX inbox_waiting ON inbox (session_key, sequence) WHERE state = 'waiting'",
        "CREATE INDEX inbox_running ON inbox (turn_id) WHERE state = 'running'",
        """CREATE INDEX inbox_content ON inbox (ended_at)
            WHERE ended_at IS NOT NULL AND length(payload) > 0""",
        """CREATE INDEX inbox_erased ON inbox (ended_at)
            WHERE ended_at IS NOT NULL AND length(payload) = 0""",
        """CREATE TABLE outbox (
            sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL,
            account TEXT NOT NULL, chat_id TEXT NOT NULL, session_key TEXT NOT NULL, turn_id TEXT,
            payload BLOB NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
            edits TEXT NOT NULL DEFAULT '', unsure BLOB, doubtful INTEGER NOT NULL DEFAULT 0,
            files INTEGER NOT NULL DEFAULT 0, message_id TEXT NOT NULL DEFAULT '',
            reason TEXT NOT NULL DEFAULT '', created_at REAL NOT NULL,
            expires_at REAL NOT NULL, ended_at REAL)""",
        """CREATE INDEX outbox_open ON outbox (account, chat_id, sequence)
            WHERE state IN ('pending', 'attempting')""",
        "CREATE INDEX outbox_files ON outbox (sequence) WHERE files = 1",
        """CREATE INDEX outbox_content ON outbox (ended_at)
            WHERE ended_at IS NOT NULL AND length(payload) > 0""",
        """CREATE INDEX outbox_erased ON outbox (ended_at)
            WHERE ended_at IS NOT NULL AND length(payload) = 0""",
        """CREATE TABLE pause (
            account TEXT NOT NULL, chat_id TEXT NOT NULL, seconds REAL NOT NULL,
            until REAL NOT NULL, PRIMARY KEY (account, chat_id))""",
        """CREATE TABLE denied (
            id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account TEXT NOT NULL,
            chat_id TEXT NOT NULL, sender_id TEXT NOT NULL, reason TEXT NOT NULL,
            count INTEGER NOT NULL DEFAULT 1, first_at REAL NOT NULL, last_at REAL NOT NULL,
            UNIQUE (account, chat_id, sender_id, reason))""",
        """CREATE TABLE pairing (
            account TEXT NOT NULL, sender_id TEXT NOT NULL, sender_name TEXT NOT NULL DEFAULT '',
            approved_at REAL NOT NULL, PRIMARY KEY (account, sender_id))""",
        """CREATE TABLE pairing_request (
            account TEXT NOT NULL, sender_id TEXT NOT NULL, sender_name TEXT NOT NULL DEFAULT '',
            address BLOB NOT NULL, salt BLOB NOT NULL, digest BLOB NOT NULL,
            created_at REAL NOT NULL, expires_at REAL NOT NULL,
            PRIMARY KEY (account, sender_id))""",
        """CREATE TABLE pairing_failure (
            id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, account TEXT NOT NULL,
            tried_at REAL NOT NULL)""",
        """CREATE TABLE kv (
            owner TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
            PRIMARY KEY (owner, key))""",
        """CREATE TABLE event (
            sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, hook TEXT NOT NULL,
            payload BLOB NOT NULL, created_at REAL NOT NULL)""",
        """CREATE TABLE event_cursor (
            owner TEXT NOT NULL PRIMARY KEY, position INTEGER NOT NULL)""",
        """CREATE TABLE schema_version (
            name TEXT NOT NULL PRIMARY KEY, version INTEGER NOT NULL)""",
    ),
)


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring an open database up to the newest schema. Raises NewerSchema and leaves a newer file
    alone."""
    version = _version(connection)
    require_known(version, path)
    if version == len(STEPS):
        return
    if version > 0:
        _backup(connection, path.with_name(f"{path.name}.schema-{version}.bak"))
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection)  # another process may have been faster
        require_known(version, path)
        for step in STEPS[version:]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(STEPS)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def migrate_plugin(
    connection: sqlite3.Connection, name: str, steps: Sequence[Sequence[str]]
) -> None:
    """Bring the tables of a plugin up to its newest schema, within the writer's transaction.

    Raises NewerSchema when a newer version of the plugin has been at work.
    """
    row = connection.execute(
        "SELECT version FROM schema_version WHERE name = ?", (name,)
    ).fetchone()
    version = 0 if row is None else int(row[0])
    if version > len(steps):
        raise NewerSchema(
            f"the tables {name}_* have schema {version}, this plugin knows up to {len(steps)}",
            remedy="install the version of the plugin that wrote them, or a newer one",
        )
    for step in steps[version:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(
        "INSERT INTO schema_version (name, version) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET version = excluded.version",
        (name, len(steps)),
    )


def require_known(version: int, path: Path) -> None:
    """Raises NewerSchema for a schema that this Hermes does not know."""
    if version > len(STEPS):
        raise NewerSchema(
            f"the state database has schema {version}, this Hermes knows up to {len(STEPS)}",
            where=str(path),
            remedy="run the Hermes that wrote it, or a newer one",
        )


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _backup(connection: sqlite3.Connection, target: Path) -> None:
    """A copy made by SQLite itself: never open the file of a live database by other means."""
    target.touch(mode=0o600, exist_ok=True)
    with closing(sqlite3.connect(target)) as copy:
        connection.backup(copy)
