"""`hermes logs`: the log file that `hermes run --log-file` keeps."""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from hermes_core.cli.invocation import Invocation
from hermes_core.cli.streams import one_line
from hermes_core.errors import HermesError

if TYPE_CHECKING:
    from pathlib import Path

FILE = "gateway.log"
_STANDARD = ("time", "level", "logger", "message", "exception")


@click.command()
@click.option(
    "-n",
    "count",
    type=click.IntRange(0),
    default=50,
    show_default=True,
    metavar="N",
    help="How many lines.",
)
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until interrupted.")
@click.option("--json", is_flag=True, help="Print one JSON object a line, as in the file.")
@click.pass_obj
def logs(invocation: Invocation, count: int, follow: bool, json: bool) -> None:
    """Show the last N lines of the log file of `hermes run --log-file`.

    Without that option the gateway logs to its standard error, which whatever started it keeps:
    `journalctl --user -u NAME` for a systemd unit. With --profile, only the events of that profile.
    """
    from hermes_core.logfile import follow as new_lines
    from hermes_core.logfile import last_lines

    path = invocation.home.log_dir() / FILE
    if not path.exists():
        raise _missing(path)
    size = path.stat().st_size
    lines: Iterable[str] = last_lines(path, count, size)
    if follow:
        lines = chain(lines, new_lines(path, size))
    for line in lines:
        _show(line, invocation.profile, raw=json)


def _missing(path: Path) -> HermesError:
    remedy = "`hermes run --log-file` keeps one; under systemd: journalctl --user -u NAME"
    if others := sorted(other.name for other in path.parent.glob("*.log")):
        remedy += f"; in the same directory there is {', '.join(others)}"
    return HermesError("there is no log file", where=str(path), remedy=remedy)


def _show(line: str, profile: str, *, raw: bool) -> None:
    event = _event(line)
    if profile != "default" and event.get("profile") != profile:
        return
    if raw:
        click.echo(line)
        return
    where = " ".join(f"{key}={value}" for key, value in event.items() if key not in _STANDARD)
    text = f"{event['message']} ({where})" if where else str(event["message"])
    level = str(event.get("level", "")).upper()
    click.echo(one_line(f"{event.get('time', '')} {level:<7} {event.get('logger', '')}: {text}"))
    for part in str(event.get("exception", "")).splitlines():
        click.echo(f"  {one_line(part)}")


def _event(line: str) -> dict[str, Any]:
    """The event on a line; a line that is none, cut by a crash for instance, is its message."""
    try:
        event = json_module.loads(line)
    except ValueError:
        event = None
    return event if isinstance(event, dict) and "message" in event else {"message": line}
