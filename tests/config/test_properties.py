"""What holds for every text."""

from __future__ import annotations

import contextlib
import tomllib
from typing import Any

import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import Duration
from hermes_core.config import parse_document
from hermes_core.config.document import dotted
from hermes_core.config.edit import parse_key, parse_value, set_key
from hermes_core.config.positions import KeyPath
from hermes_core.errors import ConfigError

KEYS = st.text(
    st.characters(codec="utf-8", exclude_characters='"\\', categories=("L", "N", "P", "Zs")),
    min_size=1,
    max_size=8,
)
SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), max_size=20),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=10,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=5)


@given(TABLES)
def test_what_was_written_is_read(data: dict[str, Any]) -> None:
    document = parse_document(tomli_w.dumps(data).encode(), None)
    assert document.data == data


@given(TABLES)
def test_every_key_of_a_table_has_a_line_on_which_it_stands(data: dict[str, Any]) -> None:
    text = tomli_w.dumps(data)
    document = parse_document(text.encode(), None)
    lines = text.split("\n")
    for path in _tables_and_keys(document.data, ()):
        line = document.line(path)
        assert line is not None
        last = str(path[-1])
        assert last in lines[line - 1] or not last.isascii() or not last.isprintable()


def _tables_and_keys(table: dict[str, Any], path: KeyPath) -> list[KeyPath]:
    found: list[KeyPath] = []
    for key, value in table.items():
        found.append((*path, key))
        if isinstance(value, dict):
            found += _tables_and_keys(value, (*path, key))
    return found


@given(st.binary(max_size=200))
def test_any_content_is_read_or_refused(content: bytes) -> None:
    with contextlib.suppress(ConfigError):
        parse_document(content, None)


@given(st.lists(KEYS, min_size=1, max_size=4))
def test_a_key_is_read_as_it_is_shown(parts: list[str]) -> None:
    if all(part.isprintable() for part in parts):
        assert parse_key(dotted(tuple(parts))) == tuple(parts)


BARE = st.text("abc-_1", min_size=1, max_size=3)


@given(
    st.dictionaries(
        BARE, st.one_of(SCALARS, st.dictionaries(BARE, SCALARS, max_size=3)), max_size=4
    ),
    st.lists(BARE, min_size=1, max_size=3),
    st.one_of(SCALARS, st.lists(SCALARS, max_size=3)),
    st.booleans(),
)
def test_setting_a_key_changes_that_key_only(
    data: dict[str, Any], path: list[str], value: Any, crlf: bool
) -> None:
    text = "# a comment\n" + tomli_w.dumps(data)
    if crlf:
        text = text.replace("\n", "\r\n")
    try:
        edited = set_key(text, tuple(path), value)
    except ConfigError:
        return  # the path leads through a value, or the editor cannot do it safely
    wanted: Any = tomllib.loads(text)
    table = wanted
    for part in path[:-1]:
        table = table.setdefault(part, {})
    table[path[-1]] = value
    assert tomllib.loads(edited) == wanted
    assert "# a comment" in edited


@given(st.floats(0.001, 3650 * 86400.0))
def test_a_duration_is_read_as_it_is_shown(seconds: float) -> None:
    shown = Duration.text(seconds)
    assert abs(Duration.parse(shown) - seconds) <= 1e-6


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_any_word_is_a_value(text: str) -> None:
    value = parse_value(text)
    assert value == text or tomllib.loads(f"v = {text}")["v"] == value
