"""`hermes deliveries`: what was to be sent, what became of it, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

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
from hermes_core.cli.streams import one_line
from hermes_core.errors import HermesError

if TYPE_CHECKING:
    from hermes_core.store.deliveries import Delivery

LIST = "hermes deliveries list"


@click.group(cls=Section)
def deliveries() -> None:
    """Show what was to be sent and what became of it; send again what failed."""


@deliveries.command("list")
@click.option("--failed", is_flag=True, help="Only what did not arrive, or may not have.")
@click.option("--pending", is_flag=True, help="Only what is still to be sent.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@json_option
@click.pass_obj
def list_deliveries(
    invocation: Invocation, failed: bool, pending: bool, limit: int, json: bool
) -> None:
    """List the deliveries, the latest first. A delivery is one text in as many parts as it took."""
    from hermes_core.store.deliveries import OPEN, UNDELIVERED, latest

    states = (*(UNDELIVERED if failed else ()), *(OPEN if pending else ()))
    found: list[Delivery] = []
    if exists(invocation):
        with reading(invocation) as database:
            found = latest(database, states, limit)
    emit([_plain(delivery) for delivery in found], json, _human_list)


@deliveries.command()
@click.argument("id", metavar="ID")
@json_option
@click.pass_obj
def show(invocation: Invocation, id: str, json: bool) -> None:  # noqa: A002
    """Show a delivery, each of its parts, and the text that did not arrive.

    ID is that of the delivery or of one of its parts (o_...), of its turn (t_...), the beginning
    of one, or the id that the platform gave to the message.
    """
    emit(_plain(_one(invocation, id)), json, _human_show)


@deliveries.command()
@click.argument("id", metavar="ID")
@click.pass_obj
def replay(invocation: Invocation, id: str) -> None:  # noqa: A002
    """Send the parts of a delivery that did not arrive, behind what waits for that chat.

    Parts that arrived are not sent again; a part that may have arrived is marked. While no gateway
    runs, they are sent by the next one.
    """
    from hermes_core.store.deliveries import UNDELIVERED

    delivery = _one(invocation, id)
    rows = [part.sequence for part in delivery.parts if part.state in UNDELIVERED]
    if not rows:
        raise HermesError(f"{delivery.id} is {delivery.outcome}: there is nothing to send again")
    change(invocation, "deliveries", "replay", rows)
    click.echo(f"{_parts(len(rows))} of {delivery.id} will be sent again")


@deliveries.command()
@click.argument("id", metavar="ID")
@click.pass_obj
def discard(invocation: Invocation, id: str) -> None:  # noqa: A002
    """Put the parts of a delivery away that did not arrive: they are not sent, nor listed as
    failed."""
    from hermes_core.store.deliveries import OPEN, UNDELIVERED

    delivery = _one(invocation, id)
    rows = [part.sequence for part in delivery.parts if part.state in (*OPEN, *UNDELIVERED)]
    if not rows:
        raise HermesError(f"{delivery.id} is {delivery.outcome}: there is nothing to discard")
    change(invocation, "deliveries", "discard", rows)
    click.echo(f"{_parts(len(rows))} of {delivery.id} discarded")


def _one(invocation: Invocation, wanted: str) -> Delivery:
    from hermes_core.store.deliveries import find

    with reading(invocation) as database:
        found = find(database, wanted)
    if not found:
        raise not_found("delivery", wanted, LIST)
    if len(found) > 1:
        raise ambiguous(wanted, [_candidate(delivery) for delivery in found])
    return found[0]


def _candidate(delivery: Delivery) -> str:
    said = excerpt(delivery.parts[0].text, erased=delivery.parts[0].erased)
    where = f"{delivery.account}, chat {delivery.chat_id}"
    return f"{delivery.id}  {when(delivery.created_at)}  {delivery.outcome} on {where}: {said}"


def _plain(delivery: Delivery) -> dict[str, Any]:
    found = asdict(delivery)
    return {**found, "outcome": delivery.outcome, "undelivered": delivery.undelivered}


def _human_list(rows: list[dict[str, Any]]) -> None:
    if not rows:
        click.echo("There are no such deliveries.")
        return
    table(
        ("DELIVERY", "OUTCOME", "PARTS", "CREATED", "ACCOUNT", "CHAT", "TEXT"),
        [
            (
                row["id"],
                row["outcome"],
                f"{_arrived(row)}/{len(row['parts'])}",
                when(row["created_at"]),
                row["account"],
                row["chat_id"],
                excerpt(row["parts"][0]["text"], erased=row["parts"][0]["erased"]),
            )
            for row in rows
        ],
    )


def _arrived(row: dict[str, Any]) -> int:
    return sum(part["state"] == "delivered" for part in row["parts"])


def _human_show(row: dict[str, Any]) -> None:
    click.echo(f"delivery {row['id']}: {row['outcome']}")
    click.echo(f"to {row['account']}, chat {row['chat_id']}, {when(row['created_at'])}")
    if row["turn_id"]:
        click.echo(f"turn {row['turn_id']} (`hermes explain {row['turn_id']}` tells the story)")
    table(
        ("PART", "STATE", "ATTEMPTS", "MESSAGE", "ID", "REASON"),
        [
            (
                f"{part['number']}/{part['parts']}",
                part["state"],
                part["attempts"],
                part["message_id"] or "-",
                part["id"],
                part["reason"],
            )
            for part in row["parts"]
        ],
    )
    if any(part["erased"] for part in row["parts"]):
        click.echo("its content is erased by age")
    if row["undelivered"]:
        click.echo("not delivered:")
        for line in row["undelivered"].splitlines():
            click.echo(f"  {one_line(line)}")


def _parts(count: int) -> str:
    return "1 part" if count == 1 else f"{count} parts"
