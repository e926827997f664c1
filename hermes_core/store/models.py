"""The tables as peewee models, for everything that is not on the hot path.

The models are not bound to a database: several profiles live in one process. Bind a query where it
runs, ``Session.select().bind(database)``. The schema itself is made by `migrations.py`; a test
holds the two together.
"""

from __future__ import annotations

import peewee as pw


class Generation(pw.Model):
    """How often the session behind a key was reset. Only ever rises; never deleted."""

    session_key = pw.TextField(primary_key=True)
    generation = pw.IntegerField()


class Session(pw.Model):
    """The agent's memory behind an address, one row per key and generation."""

    id = pw.TextField(primary_key=True)
    session_key = pw.TextField()
    generation = pw.IntegerField()
    address = pw.BlobField()
    created_at = pw.FloatField()
    active_at = pw.FloatField()
    ended_at = pw.FloatField(null=True)
    end_reason = pw.TextField(default="")


class Message(pw.Model):
    """The transcript: what was said, in the order of the commits. `hidden` lines were undone."""

    id = pw.AutoField()
    session_id = pw.TextField()
    turn_id = pw.TextField()
    role = pw.TextField()
    hidden = pw.BooleanField(default=False)
    sender_id = pw.TextField(default="")
    sender_name = pw.TextField(default="")
    text = pw.TextField()
    created_at = pw.FloatField()


class Turn(pw.Model):
    """One run of an agent. `state`: running, answered, silent, failed, cancelled, timed_out,
    interrupted."""

    id = pw.TextField(primary_key=True)
    session_id = pw.TextField()
    session_key = pw.TextField()
    generation = pw.IntegerField()
    attempt = pw.IntegerField()
    owner = pw.TextField()
    preview = pw.TextField(default="")
    unsure = pw.BlobField(null=True)
    state = pw.TextField()
    reason = pw.TextField(default="")
    started_at = pw.FloatField()
    ended_at = pw.FloatField(null=True)


class Inbox(pw.Model):
    """Accepted events. `state`: waiting, running, done, dead; `reason` says how a row ended."""

    sequence = pw.AutoField()
    account = pw.TextField()
    chat_id = pw.TextField()
    event_id = pw.TextField()
    message_id = pw.TextField(default="")
    sender_id = pw.TextField(default="")
    type = pw.TextField()
    session_key = pw.TextField()
    generation = pw.IntegerField()
    payload = pw.BlobField()
    state = pw.TextField()
    reason = pw.TextField(default="")
    turn_id = pw.TextField(null=True)
    attempts = pw.IntegerField(default=0)
    stops = pw.IntegerField(default=0)
    received_at = pw.FloatField()
    ended_at = pw.FloatField(null=True)


class Outbox(pw.Model):
    """Messages to be sent. `state`: pending, attempting, delivered, failed, expired, unknown,
    discarded."""

    sequence = pw.AutoField()
    id = pw.TextField()
    account = pw.TextField()
    chat_id = pw.TextField()
    session_key = pw.TextField()
    turn_id = pw.TextField(null=True)
    payload = pw.BlobField()
    state = pw.TextField()
    attempts = pw.IntegerField(default=0)
    edits = pw.TextField(default="")
    unsure = pw.BlobField(null=True)
    doubtful = pw.BooleanField(default=False)
    files = pw.BooleanField(default=False)
    message_id = pw.TextField(default="")
    reason = pw.TextField(default="")
    created_at = pw.FloatField()
    expires_at = pw.FloatField()
    ended_at = pw.FloatField(null=True)


class Pause(pw.Model):
    """Pauses that platforms asked for; `chat_id` is empty for a whole account."""

    account = pw.TextField()
    chat_id = pw.TextField()
    seconds = pw.FloatField()
    until = pw.FloatField()

    class Meta:
        primary_key = pw.CompositeKey("account", "chat_id")


class Pairing(pw.Model):
    """Who was approved by a code."""

    account = pw.TextField()
    sender_id = pw.TextField()
    sender_name = pw.TextField(default="")
    approved_at = pw.FloatField()

    class Meta:
        primary_key = pw.CompositeKey("account", "sender_id")


class PairingRequest(pw.Model):
    """A code that was given out: its digest, and to whom."""

    account = pw.TextField()
    sender_id = pw.TextField()
    sender_name = pw.TextField(default="")
    address = pw.BlobField()
    salt = pw.BlobField()
    digest = pw.BlobField()
    created_at = pw.FloatField()
    expires_at = pw.FloatField()

    class Meta:
        table_name = "pairing_request"
        primary_key = pw.CompositeKey("account", "sender_id")


class PairingFailure(pw.Model):
    """A wrong code that was tried."""

    id = pw.AutoField()
    account = pw.TextField()
    tried_at = pw.FloatField()

    class Meta:
        table_name = "pairing_failure"


class Denied(pw.Model):
    """Who was denied, and why; never what they said. Bounded."""

    id = pw.AutoField()
    account = pw.TextField()
    chat_id = pw.TextField()
    sender_id = pw.TextField()
    reason = pw.TextField()
    count = pw.IntegerField(default=1)
    first_at = pw.FloatField()
    last_at = pw.FloatField()


class Kv(pw.Model):
    """Small state of plugins, scoped by owner."""

    owner = pw.TextField()
    key = pw.TextField()
    value = pw.BlobField()

    class Meta:
        primary_key = pw.CompositeKey("owner", "key")


class Event(pw.Model):
    """What happened in a turn, for observers that must not miss it, until they have read it."""

    sequence = pw.AutoField()
    hook = pw.TextField()
    payload = pw.BlobField()
    created_at = pw.FloatField()


class EventCursor(pw.Model):
    """How far one reader of the events is."""

    owner = pw.TextField(primary_key=True)
    position = pw.IntegerField()

    class Meta:
        table_name = "event_cursor"


class SchemaVersion(pw.Model):
    """How many steps of a plugin's schema were carried out."""

    name = pw.TextField(primary_key=True)
    version = pw.IntegerField()

    class Meta:
        table_name = "schema_version"


MODELS: tuple[type[pw.Model], ...] = (
    Generation,
    Session,
    Message,
    Turn,
    Inbox,
    Outbox,
    Pause,
    Pairing,
    PairingRequest,
    PairingFailure,
    Denied,
    Kv,
    Event,
    EventCursor,
    SchemaVersion,
)
