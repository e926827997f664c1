"""`hermes inbox`: what came in and waits, and what was given up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hermes_core.cli.group import Section
from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option, table
from hermes_core.cli.state import (
    ambiguous,
    change,
    excerpt,
    exists,
    not_found,
    reading,
    when,
)

if TYPE_CHECKING:
    from hermes_core.store.arrivals import Event

LIST = "hermes inbox list"


@click.group(cls=Section)
def inbox() -> None:
    """Show what came in and waits, and what was given up; let it come in again."""


@inbox.command("list")
@click.option("--dead", is_flag=True, help="Only what was given up.")
@click.option("--waiting", is_flag=True, help="Only what is still to be answered.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@json_option
@click.pass_obj
def list_events(invocation: Invocation, dead: bool, waiting: bool, limit: int, json: bool) -> None:
    """List accepted messages, commands and other events, the latest first."""
    from hermes_core.store.arrivals import OPEN, latest
    from hermes_core.supervision.lock import holder

    states = (*(("dead",) if dead else ()), *(OPEN if waiting else ()))
    found: list[Event] = []
    if exists(invocation):
        with reading(invocation) as database:
            found = latest(database, states, limit)
    emit(found, json, lambda rows: _human_list(rows, holder(invocation.home.lock_path) is None))


@inbox.command()
@click.argument("id", metavar="ID")
@click.pass_obj
def replay(invocation: Invocation, id: str) -> None:  # noqa: A002 - what it is called
    """Let a message that was given up come in again, at the end of its queue.

    ID is its number in the inbox, or the id of its event or message. While no gateway runs, it
    waits for the next one.
    """
    event = _one(invocation, id)
    (sequence,) = change(invocation, "inbox", "replay", [event.sequence])
    click.echo(f"inbox:{event.sequence} waits again, as inbox:{sequence}")


@inbox.command()
@click.argument("id", metavar="ID")
@click.pass_obj
def discard(invocation: Invocation, id: str) -> None:  # noqa: A002
    """Put a message away that was given up or still waits. Nobody is told."""
    event = _one(invocation, id)
    change(invocation, "inbox", "discard", [event.sequence])
    click.echo(f"inbox:{event.sequence} is discarded")


def _one(invocation: Invocation, wanted: str) -> Event:
    from hermes_core.store.arrivals import find

    with reading(invocation) as database:
        found = find(database, wanted)
    if not found:
        raise not_found("message", wanted, LIST)
    if len(found) > 1:
        raise ambiguous(wanted, [_candidate(event) for event in found])
    return found[0]


def _candidate(event: Event) -> str:
    where = f"{event.account}, chat {event.chat_id}"
    name = f"inbox:{event.sequence}"
    said = excerpt(event.text, erased=event.erased)
    return f"{name}  {when(event.received_at)}  {event.state} on {where}: {said}"


def _state(row: Event, *, idle: bool) -> str:
    """The state of an event, `idle` when no gateway runs: then nothing does, whatever it was
    doing when it was killed."""
    cut = row.state == "waiting" and row.attempts > 0
    return "waiting (cut)" if cut or (idle and row.state == "running") else row.state


def _human_list(rows: list[Event], idle: bool) -> None:
    if not rows:
        click.echo("There are no such messages.")
        return
    table(
        ("MESSAGE", "STATE", "TYPE", "RECEIVED", "ACCOUNT", "CHAT", "SENDER", "REASON", "TEXT"),
        [
            (
                f"inbox:{row.sequence}",
                _state(row, idle=idle),
                row.type,
                when(row.received_at),
                row.account,
                row.chat_id,
                row.sender_id,
                row.reason or "-",
                excerpt(row.text, erased=row.erased),
            )
            for row in rows
        ],
    )
