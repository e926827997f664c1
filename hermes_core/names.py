"""Names that become parts of paths, keys and lists: what they may look like."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hermes_core.files import shown

DEFAULT_PROFILE = "default"
CORE_TABLES = frozenset(
    ("gateway", "agent", "sessions", "retention", "authorization", "plugins", "platforms")
)
"""Tables of a settings file that no plugin can have."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)
_DEVICES = frozenset(
    {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(1, 10)}
)
_RULE = 'use 1 to 64 of the characters a-z, 0-9, "_" and "-", beginning with a letter or digit'


def profile_name_problem(name: str) -> str:
    """Why `name` cannot name a profile, empty when it can.

    Upper case is refused because file systems disagree about it, names of devices because Windows
    opens them, and "main" because session keys call the default profile so.
    """
    if problem := _name_problem(name):
        return f'"{shown(name[:80])}" cannot name a profile: {problem}'
    if name == "main":
        return '"main" cannot name a profile: session keys use it for the default one'
    return ""


def account_name_problem(name: str) -> str:
    """Why `name` cannot name an account, empty when it can."""
    problem = _name_problem(name)
    return f'"{shown(name[:80])}" cannot name an account: {problem}' if problem else ""


def is_user_name(entry: str) -> bool:
    """Whether an entry of a list is a name, which only the platform can turn into a stable id."""
    return entry.startswith("@")


def _name_problem(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        return _RULE
    return "it names a device on some systems" if name in _DEVICES else ""


_LISTED_NAMES = 12


def near_miss(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The most similar of the known names, empty when none is similar."""
    import difflib

    matches = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=cutoff)
    return matches[0] if matches else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a mistyped name: the nearest known one, else all of them when they are few."""
    names = sorted(known)
    if nearest := near_miss(name, names):
        return f'did you mean "{nearest}"?'
    return f"known are {', '.join(names)}" if 0 < len(names) <= _LISTED_NAMES else ""
