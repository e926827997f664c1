"""What `hermes doctor` looks at: the program to run, and the directory to run it in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hermes_command.settings import CommandSettings, expand
from hermes_core import Check, Finding, ProfileScope


def checks(scope: ProfileScope) -> list[Check]:
    """The checks for a profile; none where nobody uses this agent."""
    settings = scope.settings.agent.tables.get("command")
    if not isinstance(settings, CommandSettings):
        return []
    return [Check("program", lambda: _program(scope, settings))]


def _program(scope: ProfileScope, settings: CommandSettings) -> Finding:
    name = expand(settings.argv[0])
    found = shutil.which(name, path=scope.child_environment().get("PATH", os.defpath))
    where = "on the PATH" if os.path.basename(name) == name else "there"  # noqa: PTH119 - as typed
    if found is None:
        return Finding(
            "failed",
            f"{settings.argv[0]!r} is not {where}, or cannot be executed",
            "install it, or name its full path in [agent.command] argv",
        )
    if settings.cwd and not Path(expand(settings.cwd)).is_dir():
        return Finding("failed", f"{settings.cwd} is no directory", "make it, or change cwd")
    return Finding("ok", found)
