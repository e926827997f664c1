"""`hermes run`: the gateway in the foreground."""

from __future__ import annotations

import sys

import click

from hermes_core.cli.invocation import Invocation


@click.command()
@click.option(
    "--log-format",
    type=click.Choice(["human", "json"]),
    default="human",
    help="How log lines look on the standard error.",
)
@click.option("--log-level", default="info", metavar="LEVEL", help="debug, info, warning or error.")
@click.option("--disable", multiple=True, metavar="NAME", help="Do not load the plugin NAME.")
@click.pass_obj
def run(invocation: Invocation, log_format: str, log_level: str, disable: tuple[str, ...]) -> None:
    """Run the gateway until it is told to stop.

    SIGTERM and SIGINT stop it: no new turn begins, running turns may finish within the grace
    period, and what waits is kept for the next start. A second signal stops it at once.
    """
    import asyncio

    from hermes_core.gateway import serve
    from hermes_core.logs import setup_logging

    try:
        setup_logging("json" if log_format == "json" else "human", log_level, sys.stderr)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--log-level") from error
    sys.exit(asyncio.run(serve(invocation.home, disabled=disable)))
