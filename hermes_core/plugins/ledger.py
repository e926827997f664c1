"""The account of every plugin and hook: how often it was called, how it went, when to stop."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

FAILURES = 5
"""Failures in a row after which a hook of a plugin is left out."""
PAUSE = 60.0
"""Seconds for which it is left out. Then one call tries whether it works again."""
MAX_ABANDONED = 3
"""Late calls of one hook of one plugin, or adapter, that may linger before no more are made."""


class Tally(msgspec.Struct):
    """The account of one hook of one plugin.

    `errors` and `timeouts` are failures; `skipped` calls were not made because of earlier failures;
    `dropped` ones because the plugin's queue was full or the gateway stopped. `seconds` is the time
    from call to end, with waits. `abandoned` is how many late calls linger now.
    """

    plugin: str
    hook: str
    calls: int = 0
    errors: int = 0
    timeouts: int = 0
    skipped: int = 0
    dropped: int = 0
    abandoned: int = 0
    seconds: float = 0.0
    suspended: bool = False
    """Whether the hook is left out at present after repeated failures."""


class Ledger:
    """All tallies, by plugin and hook."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], Tally] = {}

    def tally(self, plugin: str, hook: str) -> Tally:
        """The account of `hook` of `plugin`, opened if need be."""
        key = (plugin, hook)
        if key not in self._tallies:
            self._tallies[key] = Tally(plugin, hook)
        return self._tallies[key]

    @property
    def tallies(self) -> Mapping[tuple[str, str], Tally]:
        return self._tallies

    def rows(self) -> list[dict[str, object]]:
        """Every account as plain values, for a listing."""
        return [msgspec.structs.asdict(tally) for tally in self._tallies.values()]


class Breaker:
    """Leaves out a hook of a plugin that failed `FAILURES` times in a row, for `PAUSE` seconds.

    After the pause one call is let through at a time; its success ends the matter, its failure
    begins another pause. Times are the event loop's.
    """

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._failures = 0
        self._retry_at = 0.0

    def allows(self, now: float) -> bool:
        """Whether a call may be made. A call that is let through after a pause is the trial."""
        if self._failures < FAILURES:
            return True
        if now < self._retry_at:
            return False
        self._retry_at = now + PAUSE
        return True

    def succeeded(self) -> None:
        """Take note of a call that ended well."""
        self._failures = 0
        self._tally.suspended = False

    def failed(self, now: float) -> bool:
        """Take note of a failure. True when this one begins a pause after better times."""
        self._failures += 1
        if self._failures < FAILURES:
            return False
        self._retry_at = now + PAUSE
        opened = not self._tally.suspended
        self._tally.suspended = True
        return opened
