"""Changing one key of a settings file by program, with comments, order and permissions kept."""

from __future__ import annotations

import copy
import re
import tomllib
from collections.abc import Sequence
from typing import Any

from hermes_core.config.positions import KeyPath
from hermes_core.errors import ConfigError

_PART = re.compile(
    r"""(?P<bare>[A-Za-z0-9_-]+)|"(?P<double>[^"\\]*)"|'(?P<single>[^']*)'|\[(?P<index>\d+)\]"""
)

_ASSIGNMENT = re.compile(r"""(?P<key>(?:[^"'=]|"[^"]*"|'[^']*')+)=(?P<value>.*)""", re.DOTALL)
"""A key may have an equals sign within quotes."""


def parse_key(text: str) -> KeyPath:
    """The parts of a dotted key as TOML writes it, with ``[0]`` for places in lists.

    Raises ConfigError for what is no key.
    """
    parts: list[str | int] = []
    place = 0
    while match := _PART.match(text, place):
        index = match["index"]
        named = next(
            (match[name] for name in ("bare", "double", "single") if match[name] is not None), ""
        )
        parts.append(int(index) if index is not None else named)
        place = match.end()
        if text[place : place + 1] == "." and place + 1 < len(text):
            place += 1
        elif text[place : place + 1] != "[":
            break
    if not parts or place != len(text) or isinstance(parts[0], int):
        raise ConfigError(
            f"{text!r:.80} is not a key", remedy='write it like platforms.telegram.agent or a."b c"'
        )
    return tuple(parts)


def parse_assignments(words: Sequence[str]) -> list[tuple[KeyPath, object]]:
    """The keys and values of ``KEY VALUE``, or of any number of ``KEY=VALUE``.

    Raises ConfigError for anything else.
    """
    if len(words) == 2 and "=" not in words[0]:  # noqa: PLR2004 - a key and its value
        return [(parse_key(words[0]), parse_value(words[1]))]
    return [_parse_assignment(word) for word in words]


def _parse_assignment(word: str) -> tuple[KeyPath, object]:
    match = _ASSIGNMENT.fullmatch(word)
    if match is None:
        raise ConfigError(f"{word!r:.80} is no KEY=VALUE", remedy="see `hermes config set --help`")
    return parse_key(match["key"]), parse_value(match["value"].strip())


def parse_value(text: str) -> object:
    """A value as TOML writes it; what TOML does not know is a text: ``30s`` is ``"30s"``."""
    try:
        document = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return document["value"] if len(document) == 1 else text


def set_key(text: str, path: KeyPath, value: object) -> str:
    """`text` with `value` at `path`. Tables that are missing are made; the rest stays as it is.

    `text` is valid TOML with either kind of line ends, which are kept. Raises ConfigError when
    `path` leads through something that is no table, or when the result would not be what was asked
    for.
    """
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    crlf = "\r\n" in text
    unix = text.replace("\r\n", "\n")
    wanted = copy.deepcopy(tomllib.loads(unix))
    _put(wanted, path, value)
    try:
        document = tomlkit.parse(unix)
        _put(document, path, value)
        edited = tomlkit.dumps(document)
        spaced = _space_headers(edited, unix)
        edited = spaced if tomllib.loads(spaced) == wanted else edited
        right = tomllib.loads(edited) == wanted
        edited.encode()
    except (TOMLKitError, ValueError):
        right = False
    if not right:
        raise ConfigError(
            "this key cannot be set by program where it stands",
            remedy="use `hermes config edit`",
        )
    return edited.replace("\n", "\r\n") if crlf else edited


def without_table(text: str, name: str) -> str:
    """`text`, which is valid TOML, without its top-level table `name`."""
    import tomlkit

    document = tomlkit.parse(text)
    if name in document:
        del document[name]
    return tomlkit.dumps(document)


def _space_headers(edited: str, before: str) -> str:
    """`edited` with an empty line around the tables that were not there before."""
    lines: list[str] = []
    old = set(zip(before.split("\n"), before.split("\n")[1:], strict=False))
    for line in edited.split("\n"):
        above = lines[-1] if lines else ""
        crowded = above.strip() and not above.startswith("#") and (above, line) not in old
        if line.startswith("[") and crowded:
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def _put(container: Any, path: KeyPath, value: object) -> None:
    for place, part in enumerate(path[:-1]):
        container = _step(container, part, path[: place + 1])
    last = path[-1]
    if isinstance(last, int):
        _element(container, last, path)
        container[last] = value
    elif isinstance(container, dict):
        container[last] = value
    else:
        raise _no_table(path[:-1])


def _step(container: Any, part: str | int, path: KeyPath) -> Any:
    if isinstance(part, int):
        return _element(container, part, path)
    if not isinstance(container, dict):
        raise _no_table(path[:-1])
    if part not in container:
        container[part] = _new_table(container)
    return container[part]


def _new_table(container: dict[str, Any]) -> Any:
    if type(container) is dict:
        return {}
    import tomlkit
    from tomlkit.items import InlineTable

    return tomlkit.inline_table() if isinstance(container, InlineTable) else tomlkit.table()


def _element(container: Any, index: int, path: KeyPath) -> Any:
    if not isinstance(container, list) or index >= len(container):
        raise _no_table(path)
    return container[index]


def _no_table(path: KeyPath) -> ConfigError:
    from hermes_core.config.document import dotted

    return ConfigError(f"{dotted(path) or 'the file'} is not something that can hold this key")
