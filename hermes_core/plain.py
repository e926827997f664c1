"""Anything as plain JSON values of a bounded size: what leaves the process about an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

BUDGET = 262_144
"""Characters of texts and names in one document at most."""
MAX_DEPTH = 32
_MAX_INT = 1 << 63
_MAX_FLOAT = 1e300
_ITEM = 8
"""What a value costs besides its text, so that a million empty ones are bounded too."""
CUT = "…"


def jsonable(value: object, *, budget: int = BUDGET) -> tuple[object, bool]:
    """`value` as strict JSON values, and whether something had to be left out.

    Texts without lone surrogates, no NaN, keys are texts, what JSON does not know is its `str`.
    Texts and lists beyond the budget are cut.
    """
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass  # something in it is no JSON: take it apart
    else:
        if len(encoded) <= budget:
            return msgspec.json.decode(encoded), False
    walk = _Walk(budget)
    found = walk(value, 0)
    return found, walk.cut


@dataclass
class _Walk:
    left: int
    cut: bool = False

    def __call__(self, value: object, depth: int) -> object:
        if value is None or isinstance(value, bool | int | float):
            return _scalar(value)
        if isinstance(value, str):
            return self._text(value)
        if depth >= MAX_DEPTH:
            self.cut = True
            return CUT
        if isinstance(value, msgspec.Struct):
            value = _fields(value)
        if isinstance(value, Mapping):
            return self._mapping(value, depth + 1)
        if isinstance(value, (list, tuple, set, frozenset)):
            return self._items(value, depth + 1)
        return self._text(_shown(value))

    def _text(self, text: str) -> str:
        kept = text[: max(self.left, 0)]
        self.left -= len(kept) + _ITEM
        if len(kept) < len(text):
            self.cut = True
            kept += CUT
        return kept.encode("utf-8", "replace").decode("utf-8")

    def _mapping(self, values: Mapping[object, object], depth: int) -> dict[str, object]:
        result: dict[str, object] = {}
        for key, value in values.items():
            if self.left <= 0:
                self.cut = True
                break
            result[self._text(key if isinstance(key, str) else _shown(key))] = self(value, depth)
        return result

    def _items(self, values: object, depth: int) -> list[object]:
        result: list[object] = []
        for value in values:  # type: ignore[attr-defined]
            if self.left <= 0:
                self.cut = True
                break
            self.left -= _ITEM
            result.append(self(value, depth))
        return result


def _scalar(value: bool | float | None) -> object:
    """A number that every reader of JSON can hold; None for what is no number."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and -_MAX_INT <= value < _MAX_INT:
        return int(value)
    return float(value) if abs(value) < _MAX_FLOAT else None


def _fields(struct: msgspec.Struct) -> dict[str, object]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _shown(value: object) -> str:
    try:
        return str(value)
    except Exception as error:  # a foreign __str__ must not cost more than its own value
        return f"<{type(value).__name__}: {type(error).__name__}>"
