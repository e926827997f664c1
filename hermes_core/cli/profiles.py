"""`hermes profiles`: which profiles there are, and what one of them consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option, table
from hermes_core.errors import ConfigError

if TYPE_CHECKING:
    from hermes_core.home import Home


@click.group()
def profiles() -> None:
    """List profiles and show what they consist of."""


@profiles.command("list")
@json_option
@click.pass_obj
def list_profiles(invocation: Invocation, json: bool) -> None:
    """List the profiles and whether the gateway serves them."""
    from hermes_core.profiles import existing_profiles

    served = _served(invocation.home)
    known = existing_profiles(invocation.home)
    rows = [_row(invocation.home, name, served) for name in known]
    rows += [_row(invocation.home, name, served) for name in served if name not in known]

    def human(_: object) -> None:
        table(
            ("PROFILE", "SERVED", "SETTINGS"),
            [(row["name"], _yes(row["served"]), _settings(row)) for row in rows],
        )

    emit(rows, json, human)


@profiles.command()
@click.argument("name", default="")
@json_option
@click.pass_obj
def show(invocation: Invocation, name: str, json: bool) -> None:
    """Show one profile: its directories, its identity, the names of its secrets."""
    from hermes_core.profiles import read_uuid, require_profile
    from hermes_core.secrets import read_secrets_file

    home = invocation.home
    name = require_profile(home, name or invocation.profile)
    found = _row(home, name, _served(home)) | {
        "uuid": read_uuid(home.state_dir(name)),
        "config_dir": home.config_dir(name),
        "state_dir": home.state_dir(name),
        "secrets": sorted(read_secrets_file(home.secrets_file(name))),
    }

    def human(_: object) -> None:
        for key, value in found.items():
            shown = ", ".join(value) if isinstance(value, list) else _yes(value)
            click.echo(f"{key:<12} {shown}")

    emit(found, json, human)


def _row(home: Home, name: str, served: tuple[str, ...]) -> dict[str, object]:
    file = home.config_file(name)
    return {
        "name": name,
        "served": name in served,
        "exists": home.config_dir(name).is_dir() or home.state_dir(name).is_dir(),
        "settings": file,
        "settings_exist": file.exists(),
    }


def _served(home: Home) -> tuple[str, ...]:
    """The profiles that ``[gateway] profiles`` of the default profile's file names."""
    from hermes_core.config import read_document

    try:
        names = read_document(home.config_file()).at(("gateway", "profiles"))
    except ConfigError as error:
        click.echo(f"hermes: {error}", err=True)
        return ()
    if not isinstance(names, list):
        return ("default",)
    return tuple(name for name in names if isinstance(name, str))


def _yes(value: object) -> str:
    if value is None:
        return "-"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def _settings(row: dict[str, object]) -> str:
    if not row["exists"] and row["name"] != "default":
        return "the profile is not there"
    return str(row["settings"]) if row["settings_exist"] else "none: defaults apply"
