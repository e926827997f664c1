"""`hermes paths`: where Hermes keeps its files."""

from __future__ import annotations

import click

from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option, table
from hermes_core.supervision.control.dial import endpoint


@click.command()
@json_option
@click.pass_obj
def paths(invocation: Invocation, json: bool) -> None:
    """Show where Hermes keeps its files. Nothing is created."""
    home, profile = invocation.home, invocation.profile
    found = {
        "config": home.config_file(profile),
        "secrets": home.secrets_file(profile),
        "database": home.database(profile),
        "logs": home.log_dir(profile),
        "lock": home.lock_path,
        "socket": endpoint(home.state_root),
    }

    def human(_: object) -> None:
        table(
            ("WHAT", "PATH", "EXISTS"),
            [(what, path, "yes" if path.exists() else "no") for what, path in found.items()],
        )

    emit({"profile": profile, **found}, json, human)
