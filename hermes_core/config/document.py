"""One settings file as it was read: its values, and where in the text each of them stands."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hermes_core.config.positions import KeyPath, find_positions
from hermes_core.errors import ConfigError, Fault
from hermes_core.files import UnusableFile, read_bounded, shown

MAX_SETTINGS_FILE = 4 << 20
"""In bytes. An allow list of 100,000 entries has 1.5 MB and takes 0.2 s to read."""

MAX_DEPTH = 32
"""How deep tables and lists may nest."""

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_SYNTAX_PLACE = re.compile(
    r" \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)$"
)
_SYNTAX_WORDS = (
    (re.compile(r"Cannot overwrite a value"), "the key is defined twice"),
    (re.compile(r"Cannot declare .* twice"), "the table is defined twice"),
    (re.compile(r"Cannot (?:mutate|redefine|declare).*|.*immutable.*"), "defined twice"),
)


def dotted(path: KeyPath) -> str:
    """`path` as it is written in TOML, with places in lists as ``[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = part if _BARE_KEY.fullmatch(part) else f'"{shown(part)}"'
            text += f".{key}" if text else key
    return text


@dataclass(frozen=True)
class Document:
    """A settings file that TOML could read. `path` is None when there is no file behind it.

    `text` has no byte order mark and keeps the line ends that were found.
    """

    path: Path | None
    data: dict[str, Any] = field(repr=False)
    text: str = field(default="", repr=False)

    @property
    def file(self) -> str:
        return shown(self.path) if self.path is not None else "(no settings file)"

    @property
    def digest(self) -> str:
        import hashlib

        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def _positions(self) -> dict[KeyPath, int]:
        return find_positions(self.text.replace("\r\n", "\n"))

    def line(self, path: KeyPath) -> int | None:
        """The line on which `path`, or the nearest table around it, is written."""
        for length in range(len(path), 0, -1):
            if (line := self._positions.get(path[:length])) is not None:
                return line
        return None

    def at(self, path: KeyPath) -> object:
        """The value at `path` as it is written, None when there is none."""
        value: Any = self.data
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def fault(
        self,
        path: KeyPath,
        *,
        problem: str = "",
        expected: str = "",
        found: str = "",
        hint: str = "",
    ) -> Fault:
        """A fault at `path` of this file."""
        return Fault(
            file=self.file,
            key=dotted(path),
            line=self.line(path),
            problem=problem,
            expected=expected,
            found=found,
            hint=hint,
        )


def read_document(path: Path) -> Document:
    """Read the settings file at `path`; one that is not there is empty. Raises ConfigError."""
    try:
        content = read_bounded(path, limit=MAX_SETTINGS_FILE)
    except FileNotFoundError:
        if path.is_symlink():
            fault = Fault(file=shown(path), problem="the symbolic link points to nothing")
            raise ConfigError.of([fault]) from None
        return Document(path, {})
    except UnusableFile as error:
        fault = Fault(file=shown(path), problem=error.reason, hint=error.remedy)
        raise ConfigError.of([fault]) from None
    return parse_document(content, path)


def parse_document(content: bytes, path: Path | None) -> Document:
    """Read `content`, which stands in the file at `path`. Raises ConfigError."""
    file = shown(path) if path is not None else "(no settings file)"
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        fault = Fault(file=file, line=line, problem="the file is not UTF-8 text")
        raise ConfigError.of([fault]) from None
    try:
        document = Document(path, tomllib.loads(text), text)
        faults = list(_unusable_values(document))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError.of([_syntax_fault(file, text, str(error))]) from None
    except RecursionError:
        raise ConfigError.of([Fault(file=file, problem="the tables nest too deeply")]) from None
    except ValueError as error:  # a number that Python refuses to convert
        raise ConfigError.of([Fault(file=file, problem=str(error))]) from None
    if faults:
        raise ConfigError.of(faults)
    return document


def _unusable_values(document: Document) -> Iterator[Fault]:
    for path, value in _leaves(document.data, ()):
        if isinstance(value, float) and not math.isfinite(value):
            yield document.fault(path, expected="a finite number", found=str(value))
        if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            yield document.fault(path, expected="a number of at most 64 bits", found="a larger one")


def _syntax_fault(file: str, text: str, message: str) -> Fault:
    place = _SYNTAX_PLACE.search(message)
    problem = message[: place.start()] if place else message
    for pattern, words in _SYNTAX_WORDS:
        if pattern.fullmatch(problem):
            problem = words
    if place and place["line"]:
        line, column = int(place["line"]), int(place["column"])
        if text.replace("\r\n", "\n").split("\n")[line - 1][column - 1 : column] == "\ufeff":
            problem = "a byte order mark inside the file"
        problem += f" (column {column})"
    else:
        line = text.rstrip().count("\n") + 1
        problem += " (at the end of the file)"
    return Fault(file=file, line=line, problem=f"not TOML: {problem}")


def _leaves(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, object]]:
    if len(path) > MAX_DEPTH:
        raise RecursionError
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, (*path, index))
    else:
        yield path, value
