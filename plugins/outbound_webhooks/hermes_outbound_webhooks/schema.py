"""The plugin's own table. A step that has shipped is never edited; a new one is appended."""

from __future__ import annotations

from hermes_core import Schema

SCHEMA = Schema(
    "webhook",
    (
        (
            """CREATE TABLE webhook_delivery (
                sequence INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
                target TEXT NOT NULL, event TEXT NOT NULL, hook TEXT NOT NULL,
                payload BLOB NOT NULL, truncated INTEGER NOT NULL, body BLOB NOT NULL,
                state TEXT NOT NULL, attempts INTEGER NOT NULL, status INTEGER NOT NULL,
                reason TEXT NOT NULL, created_at REAL NOT NULL, since REAL NOT NULL,
                due_at REAL NOT NULL, ended_at REAL)""",
            """CREATE INDEX webhook_delivery_open ON webhook_delivery (target, sequence)
                WHERE state = 'pending'""",
            """CREATE INDEX webhook_delivery_ended ON webhook_delivery (ended_at)
                WHERE ended_at IS NOT NULL""",
        ),
    ),
)
