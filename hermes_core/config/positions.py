"""Where the keys of a TOML text stand. Only asked when there is a fault to report.

The standard library's reader gives no positions. This scanner knows just enough of TOML to find
tables and keys of a text that is known to be valid; what stands inside an inline table is reported
at the line of the key that holds it.
"""

from __future__ import annotations

import re
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]

_STRING = (
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
)
_BLANK = re.compile(r"(?:[ \t\n]|#[^\n]*)+")
_KEY = re.compile(rf"[ \t]*(?P<key>[A-Za-z0-9_-]+|{_STRING})[ \t]*(?P<dot>\.)?", re.DOTALL)
_VALUE_TOKEN = re.compile(
    rf"(?P<string>{_STRING})|#[^\n]*|(?P<open>[\[{{])|(?P<close>[\]}}])|.", re.DOTALL
)


def find_positions(text: str) -> dict[KeyPath, int]:
    """The line, counted from 1, of every table, key and element of an array of tables."""
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._line = 1
        self._counted = 0
        self._found: dict[KeyPath, int] = {}
        self._elements: dict[KeyPath, int] = {}

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self._skip_blank():
            if self._text.startswith("[[", self._place):
                table = self._next_element(self._key_at(self._place + 2))
                self._skip_line()
            elif self._text.startswith("[", self._place):
                table = self._resolve(self._key_at(self._place + 1))
                self._note(table)
                self._skip_line()
            else:
                self._note((*table, *self._key_at(self._place)))
                self._skip_value()
        return self._found

    def _note(self, path: KeyPath) -> None:
        self._line += self._text.count("\n", self._counted, self._place)
        self._counted = self._place
        for length in range(1, len(path) + 1):
            self._found.setdefault(path[:length], self._line)

    def _next_element(self, key: KeyPath) -> KeyPath:
        array = (*self._resolve(key[:-1]), key[-1])
        index = self._elements.get(array, -1) + 1
        self._elements[array] = index
        self._note((*array, index))
        return (*array, index)

    def _resolve(self, key: KeyPath) -> KeyPath:
        """A header names the last element of an array of tables without its number."""
        path: KeyPath = ()
        for part in key:
            path = (*path, part)
            if path in self._elements:
                path = (*path, self._elements[path])
        return path

    def _key_at(self, place: int) -> KeyPath:
        parts: list[str] = []
        while (match := _KEY.match(self._text, place)) is not None:
            parts.append(_unquote(match["key"]))
            place = match.end()
            if match["dot"] is None:
                break
        return tuple(parts)

    def _skip_blank(self) -> bool:
        if (match := _BLANK.match(self._text, self._place)) is not None:
            self._place = match.end()
        return self._place < len(self._text)

    def _skip_line(self) -> None:
        end = self._text.find("\n", self._place)
        self._place = len(self._text) if end < 0 else end

    def _skip_value(self) -> None:
        depth = 0
        while (match := _VALUE_TOKEN.match(self._text, self._place)) is not None:
            if match[0] == "\n" and depth == 0:
                return
            self._place = match.end()
            depth += (match["open"] is not None) - (match["close"] is not None)


def _unquote(key: str) -> str:
    if key[:1] == "'":
        return key[1:-1]
    if key[:1] == '"':
        return re.sub(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", _unescape, key[1:-1])
    return key


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "uU" and len(code) > 1:
        return chr(int(code[1:], 16))
    return {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}.get(code, code)
