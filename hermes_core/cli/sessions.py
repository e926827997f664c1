"""`hermes sessions`: what the agent remembers, read from the state database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hermes_core.cli.group import Section
from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option, table
from hermes_core.cli.state import exists, reading, when
from hermes_core.errors import HermesError

if TYPE_CHECKING:
    import peewee as pw

    from hermes_core.store.search import Hit


@click.group(cls=Section)
def sessions() -> None:
    """List sessions, show what was said in them, and find it."""


@sessions.command("list")
@json_option
@click.pass_obj
def list_sessions(invocation: Invocation, json: bool) -> None:
    """List the sessions, the latest first."""
    rows: list[dict[str, Any]] = []
    if exists(invocation):
        with reading(invocation) as database:
            rows = _list(database)
    emit(rows, json, _human_list)


@sessions.command()
@click.argument("session", metavar="[SESSION]", default="")
@json_option
@click.pass_obj
def show(invocation: Invocation, session: str, json: bool) -> None:
    """Show the transcript of a session: its id, the beginning of it, or its key. Default: the
    latest."""
    if not exists(invocation):
        raise HermesError("there are no sessions yet")
    with reading(invocation) as database:
        found = _show(database, session)
    emit(found, json, _human_show)


@sessions.command()
@click.argument("words", metavar="WORDS...", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@json_option
@click.pass_obj
def search(invocation: Invocation, words: tuple[str, ...], limit: int, json: bool) -> None:
    """Find what was said: the latest lines with all WORDS, the latest first.

    Capitals and accents make no difference. A quoted phrase is found as it is; with a * at its end,
    a word is the beginning of one. What was taken back is not found.
    """
    from hermes_core.store.search import search as find

    found: list[Hit] = []
    if exists(invocation):
        with reading(invocation) as database:
            found = find(database, words, limit)
    emit(found, json, _human_hits)


def _list(database: pw.SqliteDatabase) -> list[dict[str, Any]]:
    import peewee as pw

    from hermes_core.store.models import Inbox, Message, Session

    counts = Message.select(Message.session_id, pw.fn.COUNT(Message.id)).group_by(
        Message.session_id
    )
    messages = dict(counts.tuples().execute(database))
    waiting = (
        Inbox.select(Inbox.session_key, pw.fn.COUNT(Inbox.sequence))
        .where(Inbox.state.in_(("waiting", "running")))
        .group_by(Inbox.session_key)
    )
    open_rows = dict(waiting.tuples().execute(database))
    found = Session.select().order_by(Session.active_at.desc(), Session.id)
    return [
        {
            "id": row.id,
            "key": row.session_key,
            "messages": messages.get(row.id, 0),
            "waiting": open_rows.get(row.session_key, 0),
            "active_at": row.active_at,
            "ended_at": row.ended_at,
        }
        for row in found.execute(database)
    ]


def _show(database: pw.SqliteDatabase, wanted: str) -> dict[str, Any]:
    from hermes_core.store.models import Message

    row = _one(_list(database), wanted)
    lines = Message.select().where(Message.session_id == row["id"]).order_by(Message.id)
    row["transcript"] = [
        {
            "role": line.role,
            "sender": line.sender_name or line.sender_id,
            "text": line.text,
            "created_at": line.created_at,
            "turn_id": line.turn_id,
            "taken_back": line.hidden,
        }
        for line in lines.execute(database)
    ]
    return row


def _one(rows: list[dict[str, Any]], wanted: str) -> dict[str, Any]:
    if not rows:
        raise HermesError("there are no sessions yet")
    if not wanted:
        return rows[0]
    found = [row for row in rows if row["id"] == wanted or row["key"] == wanted]
    found = found or [row for row in rows if row["id"].startswith(wanted)]
    if not found:
        raise HermesError(f"there is no session {wanted!r}", remedy="see `hermes sessions list`")
    if len(found) > 1:
        ids = ", ".join(row["id"] for row in found[:10])
        raise HermesError(f"{wanted!r} is the beginning of several sessions: {ids}")
    return found[0]


def _human_list(rows: list[dict[str, Any]]) -> None:
    if not rows:
        click.echo("There are no sessions yet.")
        return
    table(
        ("SESSION", "MESSAGES", "WAITING", "ACTIVE", "KEY"),
        [
            (row["id"], row["messages"], row["waiting"], when(row["active_at"]), row["key"])
            for row in rows
        ],
    )


def _human_hits(hits: list[Hit]) -> None:
    if not hits:
        click.echo("Nothing that was said has these words.")
        return
    table(
        ("SESSION", "SAID", "BY", "TEXT"),
        [
            (
                hit.session_id,
                when(hit.created_at),
                "agent" if hit.role == "assistant" else hit.sender,
                " ".join(hit.snippet.split()),
            )
            for hit in hits
        ],
    )


def _human_show(session: dict[str, Any]) -> None:
    click.echo(f"session {session['id']} ({session['key']})")
    for line in session["transcript"]:
        who = "agent" if line["role"] == "assistant" else line["sender"]
        mark = " (taken back)" if line["taken_back"] else ""
        click.echo(f"[{when(line['created_at'])}] {who}{mark}: {line['text']}")
