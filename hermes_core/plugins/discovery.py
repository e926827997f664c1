"""Which plugins are installed, told from files alone: nothing is imported here.

`importlib.metadata` would do, but importing it costs twice as long as an interpreter takes to
start. The two files that are read are specified by PyPA: the core metadata and
``entry_points.txt``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

GROUP = "hermes.plugins"
"""The entry-point group of plugins."""
PREFIX = "hermes-plugin-"
"""How the distributions of plugins are called."""
CORE = "hermes-gateway"
"""The core's own distribution."""

_TRACKERS = {"issues", "issuetracker", "bugtracker", "bugreports", "bugs", "tracker"}


class Distribution(msgspec.Struct, frozen=True):
    """What the metadata of an installed distribution says. `fault` is why it cannot be believed."""

    name: str
    version: str
    tracker: str = ""
    requires: tuple[str, ...] = ()
    fault: str = ""


class Candidate(msgspec.Struct, frozen=True):
    """An entry point that may become a plugin. `target` is ``module`` or ``module:attribute``."""

    name: str
    target: str
    distribution: Distribution


class Scan(msgspec.Struct, frozen=True):
    """What was found: candidates in load order, and strangers that bear our prefix."""

    candidates: tuple[Candidate, ...] = ()
    foreign: tuple[Distribution, ...] = ()


def scan(path: Sequence[str] | None = None) -> Scan:
    """Find the installed plugins in `path`, by default ``sys.path``.

    The order is that of the distributions' names, then of the entry points' names, wherever and in
    whatever order they were installed.
    """
    candidates: list[Candidate] = []
    foreign: list[Distribution] = []
    for name, directory in _directories(sys.path if path is None else path):
        points = entry_points(directory, GROUP)
        if points:
            distribution = _read(directory)
            candidates += [Candidate(point, target, distribution) for point, target in points]
        elif name.startswith(PREFIX):
            foreign.append(_read(directory))
    candidates.sort(key=lambda found: (normalized(found.distribution.name), found.name))
    foreign.sort(key=lambda found: normalized(found.name))
    return Scan(tuple(candidates), tuple(foreign))


def normalized(name: str) -> str:
    """The form of a distribution's name in which two names of the same one are equal (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def entry_points(directory: Path, group: str) -> list[tuple[str, str]]:
    """The entry points of `group` in a ``.dist-info`` directory, as pairs of name and target."""
    text = _text(directory / "entry_points.txt")
    if text is None or f"[{group}]" not in text:
        return []
    points: list[tuple[str, str]] = []
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == group and not line.startswith(("#", ";")):
            name, equals, target = line.partition("=")
            if equals:
                points.append((name.strip(), target.partition("[")[0].strip()))
    return points


def _directories(path: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Each distribution's normalized name and directory. The first on the path hides others."""
    seen: set[str] = set()
    for base in dict.fromkeys(path):
        for directory in sorted(Path(base).glob("*.dist-info")):
            name = normalized(directory.stem.rpartition("-")[0])
            if name and name not in seen:
                seen.add(name)
                yield name, directory


def _read(directory: Path) -> Distribution:
    text = _text(directory / "METADATA")
    if text is None:
        name, _, version = directory.stem.rpartition("-")
        fault = "its metadata is gone, as after a removal that was cut short; install it again"
        return Distribution(normalized(name), version, fault=fault)
    fields = list(_fields(text))
    first = dict(reversed(fields))
    return Distribution(
        name=first.get("name", ""),
        version=first.get("version", ""),
        tracker=_tracker(value for key, value in fields if key == "project-url"),
        requires=tuple(value for key, value in fields if key == "requires-dist"),
    )


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """The header of a core metadata file, which has the form of an e-mail's."""
    header = text.replace("\r\n", "\n").partition("\n\n")[0]
    for line in re.sub(r"\n[ \t]+", " ", header).splitlines():
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip().lower(), value.strip()


def _tracker(urls: Iterable[str]) -> str:
    for entry in urls:
        title, _, url = entry.partition(",")
        if re.sub(r"[^a-z]", "", title.lower()) in _TRACKERS:
            return url.strip()
    return ""


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
