"""What `hermes doctor` looks at: the program to run, and the directory to run it in."""

from __future__ import annotations

import os
import shutil

from hermes_command.settings import CommandSettings, expand, run_in
from hermes_core import Check, Finding, ProfileScope


def checks(scope: ProfileScope) -> list[Check]:
    """The checks for a profile; none where nobody uses this agent."""
    settings = scope.settings.agent.tables.get("command")
    if not isinstance(settings, CommandSettings):
        return []
    return [Check("program", lambda: _program(scope, settings))]


def _program(scope: ProfileScope, settings: CommandSettings) -> Finding:
    name, cwd = expand(settings.argv[0]), run_in(settings, scope)
    by_name = os.path.basename(name) == name  # noqa: PTH119 - as typed
    # A path that is not absolute begins where the program runs, not where this command does.
    path = name if by_name else str(cwd / name)
    found = shutil.which(path, path=scope.child_environment().get("PATH", os.defpath))
    where = "on the PATH" if by_name else "there"
    if found is None:
        return Finding(
            "failed",
            f"{settings.argv[0]!r} is not {where}, or cannot be executed",
            "install it, or name its full path in [agent.command] argv",
        )
    if settings.cwd and not cwd.is_dir():
        return Finding("failed", f"{settings.cwd} is no directory", "make it, or change cwd")
    return Finding("ok", found)
