"""`hermes run`: the gateway in the foreground."""

from __future__ import annotations

import sys

import click

from hermes_core.cli.invocation import Invocation

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
@click.option("--disable", multiple=True, metavar="NAME", help="Do not load the plugin NAME.")
@click.option("--replace", is_flag=True, help="End the gateway that runs, then start.")
@click.pass_obj
def run(
    invocation: Invocation,
    log_format: str,
    log_level: str,
    disable: tuple[str, ...],
    replace: bool,
) -> None:
    """Run the gateway until it is told to stop.

    SIGTERM and SIGINT stop it: no new turn begins, running turns may finish within the grace
    period, and what waits is kept for the next start. A second signal stops it at once.
    """
    from hermes_core.logs import setup_logging
    from hermes_core.serving import run_gateway
    from hermes_core.supervision.takeover import end_holder

    try:
        redactor = setup_logging("json" if log_format == "json" else "human", log_level, sys.stderr)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--log-level") from error
    if replace:
        end_holder(invocation.home, REPLACE_GRACE)
    sys.exit(run_gateway(invocation.home, disabled=disable, redactor=redactor))
