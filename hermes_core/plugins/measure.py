"""How long a text is to a platform, whatever its plugin makes of the question."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from hermes_core.errors import PluginError, described
from hermes_core.platforms import Platform
from hermes_core.plugins.ledger import Ledger, Tally
from hermes_core.plugins.model import Owned

log = logging.getLogger(__name__)

SAMPLES = (
    "",
    "a",
    "\u00e4\u20ac\U0001f600",
    "*a* <b> `c`\n\n```\nd\n```\n",
    "a b " * 1000,
)
"""Texts that every platform has to be able to measure; a letter has to fit into a message."""


def require_measuring(platform: Platform) -> None:
    """Raise PluginError unless `length` of a platform measures texts."""
    measured = {text: _measured(platform.length, text) for text in SAMPLES}
    if not 1 <= measured["a"] <= platform.max_length:
        raise PluginError(f"its length of one letter is {measured['a']}")


def measured_safely(owned: Owned[Platform], ledger: Ledger) -> Owned[Platform]:
    """The platform with a `length` that never fails. Failures are accounted to its plugin."""
    platform = owned.value
    tally = ledger.tally(owned.plugin.name, "length")
    return Owned(owned.plugin, replace(platform, length=_Safely(platform.length, tally)))


class _Safely:
    """A `length` that answers in UTF-8 bytes, the largest of the usual units, when the plugin's
    own does not answer."""

    def __init__(self, length: Callable[[str], int], tally: Tally) -> None:
        self._length = length
        self._tally = tally

    def __call__(self, text: str) -> int:
        self._tally.calls += 1
        try:
            return _measured(self._length, text)
        except PluginError as error:
            self._tally.errors += 1
            if self._tally.errors == 1:
                log.error("plugin %s: %s; counting bytes instead", self._tally.plugin, error)
            return len(text.encode("utf-8", "surrogatepass"))


def _measured(length: Callable[[str], int], text: str) -> int:
    try:
        found: object = length(text)
    except BaseException as error:
        raise PluginError(f"{_which(text)} raised {described(error)}") from error
    if type(found) is not int or found < 0:
        words = repr(found) if isinstance(found, int | float) else f"a {type(found).__name__}"
        raise PluginError(f"{_which(text)} is {words}")
    return found


def _which(text: str) -> str:
    """The text may be anybody's: it does not belong into a log."""
    return f"its length of {len(text)} characters"
