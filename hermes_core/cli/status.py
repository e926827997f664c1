"""`hermes status`: whether a gateway runs, and what it is doing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option
from hermes_core.cli.streams import one_line
from hermes_core.errors import ControlError

EXIT_NOT_RUNNING = 3
"""The gateway does not run (the LSB's code for a service that is stopped)."""
EXIT_UNRESPONSIVE = 4
"""A gateway holds the home but does not answer."""
ANSWER_LIMIT = 3.0
"""Seconds that a gateway gets to answer before it counts as unresponsive."""
SHOWN_TURNS = 5
"""How many running turns are named for people; `--json` names more."""


@click.command()
@json_option
@click.pass_obj
def status(invocation: Invocation, json: bool) -> None:
    """Show whether the gateway runs and what it is doing.

    Exit code 0: it runs. 3: it does not. 4: something holds the home and does not answer, because
    it is starting, at its very end, or stuck.
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
        state = found.phase if found.phase in {"starting", "stopping"} else "unresponsive"
        return {
            "state": state,
            "home": str(home.state_root),
            "pid": found.pid,
            "reason": str(error),
        }, EXIT_UNRESPONSIVE
    return {"state": answer["draining"] or "running", **answer}, 0


def _human(facts: dict[str, Any]) -> None:
    pid = f" (pid {facts['pid']})" if facts.get("pid") else ""
    click.echo(f"gateway: {facts['state']}{pid}")
    click.echo(f"home: {facts['home']}")
    for line in _lines(facts):
        click.echo(one_line(line))


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    if facts.get("reason"):
        yield f"reason: {facts['reason']}"
    if facts.get("blocked"):
        yield f"nothing is taken in: {facts['blocked']}"
    if drain := facts.get("drain"):
        yield (
            f"draining: asked for by {drain['owner']} {_ago(drain['since'])},"
            f" ends by itself in {drain['seconds_left']:.0f} s"
        )
    if held := facts.get("held"):
        times = "once" if held["count"] == 1 else f"{held['count']} times"
        yield (
            f"degraded: the event loop was held {times},"
            f" last {_ago(held['at'])} for {held['seconds']:g} s by {held['by']}"
        )
    for profile in facts.get("profiles", ()):
        yield from _profile(profile)
    for left in facts.get("unserved", ()):
        yield f"profile {left['profile']} is not served: {left['reason']}"
    yield from _plugins(facts)
    for error in facts.get("errors", ()):
        yield f"error {_ago(error['time'])}: {error['text']}"


def _plugins(facts: dict[str, Any]) -> Iterator[str]:
    for broken in facts.get("quarantined", ()):
        yield f"plugin {broken['plugin']} is not used: {broken['reason']}"
    for left in facts.get("breakers", ()):
        yield f"plugin {left['plugin']}: {left['hook']} is left out after repeated failures"
    for changed in facts.get("changed", ()):
        installed = changed["installed"] or "nothing"
        yield (
            f"plugin {changed['plugin']} needs a restart: {changed['runs']} runs,"
            f" {installed} is installed"
        )


def _profile(profile: dict[str, Any]) -> Iterator[str]:
    yield f"profile {profile['profile']}:"
    settings = profile["settings"]
    if profile["trouble"]:
        yield f"  degraded: {profile['trouble']}"
    if settings["refused"]:
        yield f"  degraded: the settings are refused: {settings['refused']}"
    if settings["needs_restart"]:
        yield f"  needs a restart: {', '.join(settings['needs_restart'])}"
    for name, account in profile["accounts"].items():
        reason = f" ({account['reason']})" if account["reason"] else ""
        yield f"  account {name}: {account['state']}{reason}"
    for name, state in profile["services"].items():
        yield f"  service {name}: {state}"
    running = profile["running_turns"]
    named = f" ({', '.join(running[:SHOWN_TURNS])})" if running else ""
    yield f"  running turns: {len(running)}{named}"
    since = profile["oldest_waiting"]
    oldest = f", the oldest came {_ago(since)}" if since else ""
    yield f"  waiting messages: {profile['waiting']}{oldest}"
    if profile["abandoned_turns"]:
        yield f"  turns left behind: {', '.join(profile['abandoned_turns'])}"
    for what, key in (("events", "received"), ("turns", "turns"), ("deliveries", "deliveries")):
        counts = ", ".join(f"{count} {name}" for name, count in profile[key].items())
        yield f"  {what}: {counts or 'none'}"


def _ago(seconds: float) -> str:
    """How long ago a UNIX time was, in its largest unit."""
    age = max(0.0, time.time() - seconds)
    for unit, name in ((86_400, "d"), (3600, "h"), (60, "min")):
        if age >= unit:
            return f"{age // unit:.0f} {name} ago"
    return f"{age:.0f} s ago"
