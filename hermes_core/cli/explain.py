"""`hermes explain ID`: what became of a message, a turn, a session or a delivery."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option
from hermes_core.cli.state import ambiguous, excerpt, reading, when
from hermes_core.cli.streams import one_line
from hermes_core.errors import HermesError

if TYPE_CHECKING:
    from hermes_core.store.story import Found


@click.command()
@click.argument("id", metavar="ID")
@json_option
@click.pass_obj
def explain(invocation: Invocation, id: str, json: bool) -> None:  # noqa: A002 - what it is called
    """Tell what became of ID, from arrival to receipt, with a reason for each end.

    ID is a message (its number in the inbox, or the id that the platform gave to it or to its
    event), a turn (t_...), a session (s_...), a delivery (o_...), or the beginning of one of those.
    No gateway needs to run.
    """
    from hermes_core.store.story import find, tell

    with reading(invocation) as database:
        found = find(database, id)
        if not found:
            raise HermesError(
                f"nothing is known of {id!r}",
                remedy="of what was denied no message is kept: `hermes auth denials` shows who was",
            )
        if len(found) > 1:
            raise ambiguous(id, [_candidate(thing) for thing in found])
        story = tell(database, found[0])
    emit(asdict(story), json, _human)


def _candidate(found: Found) -> str:
    where = f"{found.account}, chat {found.chat_id}"
    text = f": {excerpt(found.text)}" if found.text else ""
    return f"{found.id}  {when(found.at)}  {found.kind} on {where}{text}"


def _human(story: dict[str, Any]) -> None:
    subject = story["subject"]
    click.echo(f"{subject['kind']} {subject['id']} on {subject['account']}")
    if story["left_out"]:
        click.echo(f"{story['left_out']} earlier turns are left out")
    width = max((len(step["what"]) for step in story["steps"]), default=0)
    for step in story["steps"]:
        said = f": {excerpt(step['said'])}" if step["said"] else ""
        reason = f" ({one_line(step['reason'])})" if _adds(step) else ""
        words = f"{step['id']} {one_line(step['text'])}{said}{reason}"
        click.echo(f"{_clock(step['at'])}  {step['what']:<{width}}  {words}")
    click.echo(f"outcome: {story['outcome']}")


def _adds(step: dict[str, Any]) -> bool:
    """Whether the reason says more than the words do."""
    return bool(step["reason"]) and step["reason"] not in (step["what"], *step["text"].split())


def _clock(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, tz=UTC).astimezone()
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
