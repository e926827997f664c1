"""The types that settings are made of. A plugin subclasses `Settings`; `config` fills them in."""

from __future__ import annotations

import hmac
import re
from typing import Annotated, Any, NamedTuple, dataclass_transform, final

import msgspec

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
MAX_DURATION = 3650 * 86400.0
DURATION_FORM = 'a duration such as "30s" or "5m"'
_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h|d)", re.ASCII)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of every typed section. Fields with a default are optional."""


@final
class Secret:
    """A value that must not be shown. `repr` and `str` are redacted; `reveal()` gives it.

    In a settings file a secret is a reference: ``env:NAME``, ``file:PATH`` or ``keyring:NAME``.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret('***')"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(
            self._value.encode(), other._value.encode()
        )

    def __hash__(self) -> int:
        return hash((Secret, self._value))


@final
class SecretText:
    """A secret that may be missing: the text that the file has, for its plugin to resolve itself.

    A `Secret` that leads to nothing makes the settings invalid. With this type a missing one costs
    only what needs it. `reveal()` gives what is written: a reference, or the secret itself.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    @property
    def is_reference(self) -> bool:
        return self._text.partition(":")[0] in ("env", "file", "keyring") and ":" in self._text

    def __repr__(self) -> str:
        return "SecretText('***')"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretText) and hmac.compare_digest(
            self._text.encode(), other._text.encode()
        )

    def __hash__(self) -> int:
        return hash((SecretText, self._text))


class Duration(float):
    """Seconds. In a settings file a text with a unit: ``"500ms"``, ``"30s"``, ``"5m"``, ``"2h"``,
    ``"1d"``.

    At most ten years. Say what a field allows with `Bounds`; without it, zero and more.
    """

    @classmethod
    def parse(cls, value: object) -> Duration:
        """Read a text with a unit. Raises ValueError for anything else, bare numbers included."""
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"expected {DURATION_FORM}")
        seconds = float(match["number"]) * _UNITS[match["unit"]]
        if not seconds <= MAX_DURATION:
            raise ValueError("expected a duration of at most ten years")
        return cls(seconds)

    @classmethod
    def text(cls, seconds: float) -> str:
        """`seconds` as `parse` reads it back, in the largest unit that needs no fraction."""
        for unit in ("d", "h", "m", "s"):
            if seconds and seconds % _UNITS[unit] == 0:
                return f"{seconds / _UNITS[unit]:.0f}{unit}"
        return f"{seconds * 1000:.0f}ms" if (seconds * 1000) % 1 == 0 else f"{seconds:.9f}s"


class Bounds(NamedTuple):
    """What a `Duration` field allows, in seconds: ``timeout: Annotated[Duration, Bounds(1,
    60)]``."""

    minimum: float = 0.0
    maximum: float = MAX_DURATION


PositiveDuration = Annotated[Duration, Bounds(minimum=0.001)]
"""A duration of at least a millisecond."""


class TableArray(NamedTuple):
    """A section that is written as an array of tables: ``[[hooks.outbound]]``.

    `item` is one table. Two tables with the same value of the field `unique` are an error; None
    allows them.
    """

    item: type[Settings]
    unique: str | None = "name"


def decode_hook(expected: type[Any], value: object) -> object:
    """Conversion of the types that msgspec does not know. Secrets are resolved by `config`."""
    if expected is Duration:
        return Duration.parse(value)
    if expected is SecretText and isinstance(value, str):
        return SecretText(value)
    if expected is Secret and isinstance(value, Secret):
        return value
    raise NotImplementedError(f"settings of type {expected.__name__} are not supported")
