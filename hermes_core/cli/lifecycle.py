"""`hermes stop`, `restart` and `drain`: the end of a gateway, and the pauses in its life."""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING, Any

import click

from hermes_core.cli.invocation import Invocation
from hermes_core.cli.parameters import seconds
from hermes_core.errors import ControlError, HermesError

if TYPE_CHECKING:
    from hermes_core.home import Home

_POLL = 0.1


@click.command()
@click.option("--grace", type=seconds, default=30.0, help="How long running turns may take.")
@click.pass_obj
def stop(invocation: Invocation, grace: float) -> None:
    """Stop the gateway: running turns may finish, the rest is kept for the next start.

    One that does not answer, or does not end in time, is ended by force.
    """
    from hermes_core.supervision.takeover import end_holder

    ended = end_holder(invocation.home, grace)
    if ended is None:
        raise HermesError("no gateway runs", where=str(invocation.home.state_root))
    click.echo(f"stopped the gateway (pid {ended.pid})")


@click.command()
@click.option("--wait", is_flag=True, help="Return when the new one serves.")
@click.option("--timeout", type=seconds, default=90.0, help="How long to wait at most.")
@click.pass_obj
def restart(invocation: Invocation, wait: bool, timeout: float) -> None:
    """Restart the gateway: drain, stop, start again.

    Returns at once unless told to wait, so that a command inside a turn can ask for it.
    """
    home = invocation.home
    answer = _ask(home, "restart")
    if not answer["restarting"]:
        raise HermesError("the gateway is stopping already")
    if not wait:
        click.echo("restarting")
        return
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        time.sleep(_POLL)
        try:
            now = _ask(home, "status")
        except ControlError:
            continue
        if now["instance"] != answer["instance"]:
            click.echo(f"restarted (pid {now['pid']})")
            return
    raise HermesError(f"the gateway did not come back within {timeout:g} s")


@click.command()
@click.option(
    "--for", "seconds", type=seconds, default=600.0, help="How long, unless it is ended before."
)
@click.option("--end", is_flag=True, help="End the drain: turns begin again.")
@click.pass_obj
def drain(invocation: Invocation, seconds: float, end: bool) -> None:
    """Let running turns finish and begin no new ones, for some time.

    What comes in meanwhile is kept. The drain ends by itself.
    """
    answer = _ask(
        invocation.home, "drain", seconds=0.0 if end else seconds, owner=getpass.getuser()
    )
    click.echo(f"draining for {seconds:g} s" if answer["drain"] else "not draining")


def _ask(home: Home, verb: str, **parameters: object) -> dict[str, Any]:
    from hermes_core.supervision.control import request

    return request(home.state_root, verb, 5.0, **parameters)
