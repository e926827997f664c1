"""`hermes profiles`: which profiles there are, and what one of them consists of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hermes_core.cli.group import Section
from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option, table
from hermes_core.cli.questions import Questions
from hermes_core.errors import ConfigError, HermesError

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_core.home import Home

DRAIN_LIMIT = 600.0
"""Seconds that a gateway gets to finish what runs in a profile."""
_NEW = "# The settings of this profile: `hermes config check` says what is wrong with them.\n"
_NO_SECRETS = "# NAME=VALUE lines, for env:NAME in config.toml. For your eyes only.\n"


@click.group(cls=Section)
def profiles() -> None:
    """List, show, make, copy and delete profiles."""


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
            click.echo(f"{key.replace('_', ' '):<14}  {shown}".rstrip())

    emit(found, json, human)


@profiles.command()
@click.argument("name")
@click.pass_obj
def create(invocation: Invocation, name: str) -> None:
    """Make the profile NAME, without accounts: nobody may speak to it yet."""
    home = invocation.home
    _make(home, name, _NEW, _NO_SECRETS)
    click.echo(f"The profile {name} is there. Its settings: {home.config_file(name)}")
    _hint(home, name)


@profiles.command()
@click.argument("source")
@click.argument("name")
@click.pass_obj
def clone(invocation: Invocation, source: str, name: str) -> None:
    """Make the profile NAME with the settings of SOURCE, and without its secrets and memories.

    The new secrets.env has the names of SOURCE's secrets. Two profiles with the same bot are
    refused: give the new one a token of its own.
    """
    from hermes_core.config import read_document
    from hermes_core.config.edit import without_table
    from hermes_core.profiles import require_profile
    from hermes_core.secrets import read_secrets_file

    home = invocation.home
    require_profile(home, source)
    text = read_document(home.config_file(source)).text
    names = read_secrets_file(home.secrets_file(source))
    secrets = _NO_SECRETS + "".join(f"{secret}=\n" for secret in names)
    _make(home, name, without_table(text, "gateway"), secrets)
    click.echo(f"The profile {name} has the settings of {source}.")
    if names:
        click.echo(f"Fill in its secrets: {home.secrets_file(name)}")
    _hint(home, name)


@profiles.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(invocation: Invocation, name: str, yes: bool) -> None:
    """Delete the profile NAME for good: settings, secrets, memories, files.

    A gateway that serves it finishes what runs there first, within its grace period.
    """
    import shutil

    from hermes_core.names import DEFAULT_PROFILE
    from hermes_core.profiles import require_profile
    from hermes_core.supervision.lock import HomeLock, holder

    home = invocation.home
    if name == DEFAULT_PROFILE:
        raise ConfigError("the default profile cannot be deleted")
    require_profile(home, name)
    directories = {home.config_dir(name), home.state_dir(name)}
    if not yes:
        _confirm(directories)
    if holder(home.lock_path) is not None:
        from hermes_core.supervision.control import request

        request(home.state_root, "profiles.leave", timeout=DRAIN_LIMIT, profile=name)
        lock = None
    else:
        home.ensure()
        lock = HomeLock(home.lock_path, runs="hermes profiles delete")
        lock.acquire()
    try:
        for directory in directories:
            if directory.exists():
                shutil.rmtree(directory)
    finally:
        if lock is not None:
            lock.release()
    click.echo(f"The profile {name} is deleted.")
    if name in _served(home):
        click.echo(f"Take {name} out of [gateway] profiles in {home.config_file()}", err=True)


def _confirm(directories: set[Path]) -> None:
    """Ask whether they may go. Raises HermesError when they may not."""
    listed = " and ".join(map(str, sorted(directories)))
    if not Questions().confirm(f"Delete {listed} with everything in it?", default=False):
        raise HermesError("nothing is deleted")


def _make(home: Home, name: str, config: str, secrets: str) -> None:
    """Make a profile, or nothing at all."""
    import shutil

    from hermes_core.files import write_atomic
    from hermes_core.profiles import check_profile_name, existing_profiles, identify
    from hermes_core.supervision.trouble import cannot

    check_profile_name(name)
    if name in existing_profiles(home):
        raise ConfigError(f"there is a profile {name} already", remedy="hermes profiles list")
    try:
        home.ensure(name)
        identify(home.config_dir(name), home.state_dir(name))
        write_atomic(home.secrets_file(name), secrets.encode())
        write_atomic(home.config_file(name), config.encode())
    except OSError as error:
        for directory in (home.config_dir(name), home.state_dir(name)):
            shutil.rmtree(directory, ignore_errors=True)
        raise cannot("make the profile", home.config_dir(name), error) from error


def _hint(home: Home, name: str) -> None:
    from hermes_core.supervision.lock import holder

    if name not in _served(home):
        click.echo(f'To serve it, add "{name}" to [gateway] profiles in {home.config_file()}')
    elif holder(home.lock_path) is not None:
        from hermes_core.supervision.control import request

        if not request(home.state_root, "profiles.serve", profile=name).get("listed"):
            click.echo("The gateway serves it after its next start.")


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
    from hermes_core.profiles import no_profile

    if not row["exists"] and row["name"] != "default":
        return f"none: {no_profile(str(row['name']))}"
    return str(row["settings"]) if row["settings_exist"] else "none: defaults apply"
