"""What people are told about messages that are not taken: many refusals are few notices."""

from __future__ import annotations

from collections import OrderedDict

from hermes_core.messages import Address

QUIET_SECONDS = 60.0
"""A chat is told the same reason once in this time."""
MAX_REMEMBERED = 1000
"""Chats and reasons in memory at most."""


class Refusals:
    """When each chat was last told each reason, and how many messages it was not told about."""

    def __init__(self) -> None:
        self._told: OrderedDict[tuple[str, str, str], tuple[float, int]] = OrderedDict()

    def notice(self, address: Address, reason: str, now: float) -> str:
        """What to tell a chat about one more message that is not taken, at the wall time `now`.
        "" when it was told a short while ago: the next notice counts those."""
        key = (address.account_key, address.chat_id, reason)
        last, untold = self._told.pop(key, (float("-inf"), 0))
        quiet = 0 <= now - last < QUIET_SECONDS
        self._told[key] = (last, untold + 1) if quiet else (now, 0)
        if len(self._told) > MAX_REMEMBERED:
            self._told.popitem(last=False)
        if quiet:
            return ""
        before = f" (nor were {untold} before it)" if untold else ""
        return f"Not taken: {reason}{before}."
