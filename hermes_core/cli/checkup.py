"""The core's own checks for `hermes doctor`. They look and change nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_core.checks import Check, Finding, Verdict
from hermes_core.errors import ConfigError, ControlError

if TYPE_CHECKING:
    from hermes_core.cli.invocation import Invocation
    from hermes_core.config import Checked
    from hermes_core.plugins.loading import Loaded

PYTHON = (3, 11)
SQLITE = (3, 24, 0)
"""The first one with ON CONFLICT DO UPDATE."""
LITTLE_SPACE = 50 << 20
SCARCE_SPACE = 500 << 20
"""Bytes. A busy write-ahead log takes some megabytes, a backup before a migration as much as the
database."""


def core_checks(invocation: Invocation, loaded: Loaded, checked: Checked) -> list[Check]:
    """All checks of the core, in the order in which one needs the other."""
    return [
        Check("python", _python),
        Check("home", lambda: _home(invocation)),
        Check("disk", lambda: _disk(invocation.home.state_root)),
        Check("settings", lambda: _settings(invocation, checked)),
        Check("secrets", lambda: _secrets(invocation)),
        Check("plugins", lambda: _plugins(loaded)),
        Check("database", lambda: _database(invocation)),
        Check("gateway", lambda: _gateway(invocation)),
    ]


def _python() -> Finding:
    here = f"Python {'.'.join(map(str, sys.version_info[:3]))}, SQLite {sqlite3.sqlite_version}"
    if sys.version_info[:2] < PYTHON or sqlite3.sqlite_version_info < SQLITE:
        remedy = "install a newer Python: 3.11 or later, with SQLite 3.24 or later"
        return Finding("failed", here, remedy)
    return Finding("ok", here)


def _home(invocation: Invocation) -> Finding:
    profile = invocation.profile
    places = {invocation.home.config_dir(profile), invocation.home.state_dir(profile)}
    found = [_directory(place) for place in sorted(places)]
    return max(found, key=lambda finding: _SEVERITY[finding.verdict])


def _directory(path: Path) -> Finding:
    if not os.path.lexists(path):
        remedy = "`hermes setup` or the first `hermes run` makes it"
        return Finding("warning", f"{path} is not there yet", remedy)
    if not path.is_dir():
        return Finding("failed", f"{path} is no directory", "move it away")
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        remedy = "check who owns it, or name another directory in HERMES_HOME"
        return Finding("failed", f"{path} cannot be written", remedy)
    if status.st_uid != os.geteuid():
        remedy = "run Hermes as the user who owns it"
        return Finding("warning", f"{path} belongs to another user (uid {status.st_uid})", remedy)
    if mode & 0o022:
        return Finding(
            "failed", f"{path} can be written by others (mode {mode:04o})", f"chmod 700 {path}"
        )
    if mode & 0o077:
        return Finding(
            "warning", f"{path} can be read by others (mode {mode:04o})", f"chmod 700 {path}"
        )
    return Finding("ok", str(path))


def _disk(state_root: Path) -> Finding:
    place = next(path for path in (state_root, *state_root.parents) if path.exists())
    free = shutil.disk_usage(place).free
    text = f"{free / (1 << 30):.1f} GB free at {place}"
    if free < SCARCE_SPACE:
        verdict: Verdict = "failed" if free < LITTLE_SPACE else "warning"
        return Finding(verdict, text, "free some space: without it nothing can be taken in")
    return Finding("ok", text)


def _settings(invocation: Invocation, checked: Checked) -> Finding:
    file = invocation.home.config_file(invocation.profile)
    if checked.faults:
        return Finding("failed", _first(checked.faults), "`hermes config check` shows everything")
    if checked.warnings:
        return Finding(
            "warning", _first(checked.warnings), "`hermes config check` shows everything"
        )
    if not file.exists():
        return Finding("ok", f"{file} is not there: defaults apply")
    return Finding("ok", f"{file} is valid")


def _first(faults: Sequence[object]) -> str:
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{faults[0]}{more}"


def _secrets(invocation: Invocation) -> Finding:
    from hermes_core.secrets import read_secrets_file

    file = invocation.home.secrets_file(invocation.profile)
    if not os.path.lexists(file):
        return Finding("ok", f"{file} is not there, and nothing has to be in it")
    try:
        names = read_secrets_file(file)
    except ConfigError as error:
        return Finding("failed", error.what)
    return Finding("ok", f"{len(names)} in {file}, which only you can read")


def _plugins(loaded: Loaded) -> Finding:
    broken = [f"{plugin.label}: {plugin.reason}" for plugin in loaded.quarantined]
    missing = [f"{name} is required, and not there" for name in loaded.missing_required]
    if missing or broken:
        remedy = "update or uninstall them, or list them in [plugins] disabled;"
        return Finding("failed", _first([*missing, *broken]), f"{remedy} see `hermes plugins list`")
    names = ", ".join(plugin.name for plugin in loaded.plugins)
    return Finding("ok", names or "none is installed")


def _database(invocation: Invocation) -> Finding:
    from hermes_core.cli.state import reading
    from hermes_core.store.database import connection_of

    path = invocation.home.database(invocation.profile)
    if not path.exists():
        return Finding("ok", f"{path} is not there: the first start makes it")
    with reading(invocation) as database:
        found = connection_of(database).execute("PRAGMA quick_check(5)").fetchall()
    if found != [("ok",)]:
        text = f"{path} is damaged: {found[0][0]}"
        return Finding("failed", text, "stop the gateway and restore a backup")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        text = f"others have access to {path} (mode {mode:04o})"
        return Finding("failed", text, f"chmod 600 {path}")
    return Finding("ok", f"{path} is sound")


def _gateway(invocation: Invocation) -> Finding:
    from hermes_core.supervision.control import request
    from hermes_core.supervision.lock import holder

    home = invocation.home
    found = holder(home.lock_path)
    if found is None:
        return Finding("ok", "none runs for this home")
    try:
        answer = request(home.state_root, "status")
    except ControlError as error:
        who = f"process {found.pid} ({found.runs})" if found.pid else "a process"
        remedy = "`hermes run --replace` ends it and starts another; its log may say why"
        return Finding("failed", f"{who} holds this home: {error.what}", remedy)
    return _running(answer)


def _running(status: dict[str, object]) -> Finding:
    if status.get("blocked"):
        return Finding("failed", f"nothing is taken in: {status['blocked']}")
    profiles = status.get("profiles")
    assert isinstance(profiles, list)
    down = [
        f"{name}@{profile['profile']} is {account['state']}: {account['reason']}"
        for profile in profiles
        for name, account in profile["accounts"].items()
        if account["reason"]
    ]
    if down:
        return Finding("failed", _first(down), "`hermes status` shows every account")
    return Finding("ok", f"runs as process {status.get('pid')}")


_SEVERITY = {"ok": 0, "warning": 1, "failed": 2}
