"""Commands that plugins add: entry points in the group `hermes.cli`."""

from __future__ import annotations

import contextlib
import sys
from importlib.metadata import EntryPoint, entry_points

import click

from hermes_core.errors import PluginError

GROUP = "hermes.cli"


def names() -> list[str]:
    """The names of all commands that plugins add, sorted. Imports none of them."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def names_of(distribution: str) -> list[str]:
    """The names of the commands that a distribution adds, sorted."""
    found = entry_points(group=GROUP)
    return sorted({entry.name for entry in found if entry.dist and entry.dist.name == distribution})


def find(name: str) -> click.Command | None:
    """Import the plugins' command `name`; None when no plugin has one.

    Raises PluginError when it cannot be imported, is no command, or is claimed by two plugins.
    """
    found = {_owner(entry): entry for entry in entry_points(group=GROUP, name=name)}
    if not found:
        return None
    if len(found) > 1:
        raise PluginError(
            f"the command {name!r} is claimed by {' and '.join(sorted(found))}",
            remedy="uninstall one of them",
        )
    owner, entry = found.popitem()
    command = _load(entry, owner)
    if not isinstance(command, click.Command):
        raise PluginError(f"the command {name!r} is not a click command", where=owner)
    return command


def _owner(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value


def _load(entry: EntryPoint, owner: str) -> object:
    try:
        # What a plugin prints while it is imported is not the answer to the command.
        with contextlib.redirect_stdout(sys.stderr):
            loaded: object = entry.load()
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())
        raise PluginError(
            f"the command {entry.name!r} cannot be imported: {type(error).__name__}: {reason:.500}",
            where=owner,
            remedy="update or uninstall it",
        ) from error
    return loaded
