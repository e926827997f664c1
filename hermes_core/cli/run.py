"""`hermes run`: the gateway in the foreground."""

from __future__ import annotations

import sys
from typing import TextIO, cast

import click

from hermes_core.cli.invocation import Invocation
from hermes_core.cli.parameters import seconds

REPLACE_GRACE = 30.0
"""Seconds that the gateway to be replaced may take to drain."""


@click.command()
@click.option(
    "--log-format",
    type=click.Choice(["human", "json"]),
    default="human",
    help="How log lines look on the standard error.",
)
@click.option("--log-level", default="info", metavar="LEVEL", help="debug, info, warning or error.")
@click.option("--log-file", is_flag=True, help="Log to a file instead, for `hermes logs`.")
@click.option("--disable", multiple=True, metavar="NAME", help="Do not load the plugin NAME.")
@click.option("--replace", is_flag=True, help="End the gateway that runs, then start.")
@click.option(
    "--grace",
    type=seconds,
    default=REPLACE_GRACE,
    help="How long the gateway to be replaced may take; then it is ended by force.",
)
@click.pass_obj
def run(
    invocation: Invocation,
    *,
    log_format: str,
    log_level: str,
    log_file: bool,
    disable: tuple[str, ...],
    replace: bool,
    grace: float,
) -> None:
    """Run the gateway until it is told to stop.

    SIGTERM and SIGINT stop it: no new turn begins, running turns may finish within the grace
    period, and what waits is kept for the next start. A second signal stops it at once.
    """
    from hermes_core.logs import setup_logging
    from hermes_core.redaction import redact_tracebacks
    from hermes_core.serving import run_gateway
    from hermes_core.supervision.takeover import end_holder

    stream = _log_file(invocation) if log_file else sys.stderr
    json = log_file or log_format == "json"
    try:
        redactor = setup_logging("json" if json else "human", log_level, stream)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--log-level") from error
    redact_tracebacks(redactor)
    if replace:
        end_holder(invocation.home, grace)
    sys.exit(run_gateway(invocation.home, disabled=disable, redactor=redactor))


def _log_file(invocation: Invocation) -> TextIO:
    """The file that `hermes logs` shows, in the home of the gateway."""
    from hermes_core.cli.logs import FILE
    from hermes_core.gateway import make_home
    from hermes_core.logfile import LogFile

    make_home(invocation.home)
    path = invocation.home.log_dir() / FILE
    file = cast("TextIO", LogFile(path))
    click.echo(f"logging to {path}", err=True)
    return file
