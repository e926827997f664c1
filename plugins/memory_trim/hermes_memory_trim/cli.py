"""`hermes memory`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option, table
from hermes_core.errors import ControlError

SERVICE = "memory"
_MIB = 1 << 20


@click.command()
@click.option("--trim", is_flag=True, help="Give free memory back now.")
@json_option
@click.pass_obj
def memory(invocation: Invocation, trim: bool, json: bool) -> None:
    """Show the memory of the running gateway and its latest trims."""
    from hermes_core.supervision.control import request
    from hermes_core.supervision.lock import holder

    home = invocation.home
    if holder(home.lock_path) is None:
        raise ControlError("no gateway is running", remedy="start it with `hermes run`")
    answer = request(
        home.state_root,
        "service",
        timeout=30.0,
        profile=invocation.profile,
        name=SERVICE,
        request={"trim": trim},
    )
    emit(answer, json, lambda found: _human(found, asked=trim))


def _human(found: dict[str, Any], *, asked: bool) -> None:
    now = found["now"]
    click.echo(f"resident: {_mib(now['resident'])}, anonymous: {_mib(now['anonymous'])}")
    click.echo(f"threads: {now['threads'] if now['threads'] is not None else 'unknown'}")
    reason = f" ({found['reason']})" if found["reason"] else ""
    state = found["state"] if found["enabled"] else "switched off"
    click.echo(f"trimming: {state}{reason}, {found['count']} so far")
    if asked and not found["trimmed"]:
        click.echo("not trimmed now: unsupported, off, or less than 5 s since the last one")
    if found["trims"]:
        table(
            ["TIME", "REASON", "RESIDENT", "ANONYMOUS", "TOOK"],
            [
                (
                    datetime.fromtimestamp(one["at"], UTC)
                    .astimezone()
                    .strftime("%Y-%m-%d %H:%M:%S"),
                    one["reason"],
                    f"{_mib(one['before']['resident'])} -> {_mib(one['after']['resident'])}",
                    f"{_mib(one['before']['anonymous'])} -> {_mib(one['after']['anonymous'])}",
                    f"{one['duration'] * 1000:.0f} ms",
                )
                for one in found["trims"]
            ],
        )


def _mib(size: int | None) -> str:
    return "unknown" if size is None else f"{size / _MIB:.1f} MiB"
