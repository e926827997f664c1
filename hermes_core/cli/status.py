"""`hermes status`: whether a gateway runs, and what it is doing."""

from __future__ import annotations

import sys
from typing import Any

import click

from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option
from hermes_core.errors import ControlError

EXIT_NOT_RUNNING = 3
"""The gateway does not run (the LSB's code for a service that is stopped)."""
EXIT_UNRESPONSIVE = 4
"""A gateway holds the home but does not answer."""
ANSWER_LIMIT = 3.0
"""Seconds that a gateway gets to answer before it counts as unresponsive."""


@click.command()
@json_option
@click.pass_obj
def status(invocation: Invocation, json: bool) -> None:
    """Show whether the gateway runs and what it is doing.

    Exit code 0: it runs. 3: it does not. 4: something holds the home and does not answer.
    """
    facts, code = _facts(invocation)
    emit(facts, json, _human)
    sys.exit(code)


def _facts(invocation: Invocation) -> tuple[dict[str, Any], int]:
    from hermes_core.supervision.control import request
    from hermes_core.supervision.lock import holder

    home = invocation.home
    found = holder(home.lock_path)
    if found is None:
        return {"state": "stopped", "home": str(home.state_root)}, EXIT_NOT_RUNNING
    try:
        answer = request(home.state_root, "status", ANSWER_LIMIT)
    except ControlError as error:
        return {
            "state": "unresponsive",
            "home": str(home.state_root),
            "pid": found.pid,
            "reason": str(error),
        }, EXIT_UNRESPONSIVE
    return {"state": "running", **answer}, 0


def _human(facts: dict[str, Any]) -> None:
    pid = f" (pid {facts['pid']})" if facts.get("pid") else ""
    click.echo(f"gateway: {facts['state']}{pid}")
    click.echo(f"home: {facts['home']}")
    if facts.get("reason"):
        click.echo(f"reason: {facts['reason']}")
    for profile in facts.get("profiles", ()):
        _human_profile(profile)
    for left in facts.get("unserved", ()):
        click.echo(f"profile {left['profile']} is not served: {left['reason']}")
    for broken in facts.get("quarantined", ()):
        click.echo(f"plugin {broken['plugin']} is not used: {broken['reason']}")


def _human_profile(profile: dict[str, Any]) -> None:
    click.echo(f"profile {profile['profile']}:")
    settings = profile["settings"]
    if settings["refused"]:
        click.echo(f"  degraded: the settings are refused: {settings['refused']}")
    if settings["needs_restart"]:
        click.echo(f"  needs a restart: {', '.join(settings['needs_restart'])}")
    for name, account in profile["accounts"].items():
        reason = f" ({account['reason']})" if account["reason"] else ""
        click.echo(f"  account {name}: {account['state']}{reason}")
    click.echo(f"  running turns: {len(profile['running_turns'])}")
    click.echo(f"  waiting messages: {profile['waiting']}")
    if profile["abandoned_turns"]:
        click.echo(f"  turns left behind: {', '.join(profile['abandoned_turns'])}")
    for what in ("received", "turns", "deliveries"):
        counts = ", ".join(f"{count} {name}" for name, count in profile[what].items())
        click.echo(f"  {what}: {counts or 'none'}")
