"""The types that settings are made of. A plugin subclasses `Settings`; `config.py` fills them
in."""

from __future__ import annotations

import hmac
import math
import re
from typing import Any, final

import msgspec

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h|d)", re.ASCII)


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


class Duration(float):
    """Seconds. In a settings file a text with a unit: ``"500ms"``, ``"30s"``, ``"5m"``, ``"2h"``,
    ``"1d"``."""

    @classmethod
    def parse(cls, value: object) -> Duration:
        """Read a text with a unit. Raises ValueError for anything else, bare numbers included."""
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f'expected a duration such as "30s" or "5m", found {value!r}')
        seconds = float(match["number"]) * _UNITS[match["unit"]]
        if not math.isfinite(seconds):
            raise ValueError(f"expected a finite duration, found {value!r}")
        return cls(seconds)


def decode_hook(expected: type[Any], value: object) -> object:
    """Conversion of the types that msgspec does not know. Secrets are resolved by `config.py`."""
    if expected is Duration:
        return Duration.parse(value)
    if expected is Secret and isinstance(value, Secret):
        return value
    raise NotImplementedError(f"settings of type {expected.__name__} are not supported")
