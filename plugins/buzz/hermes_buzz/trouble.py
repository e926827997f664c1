"""What a relay's refusals mean, and what a wrong clock looks like."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from hermes_buzz.pacing import retry_after
from hermes_core import (
    AccountFailed,
    HermesError,
    RateLimited,
    SendError,
    SendFailed,
    SendRejected,
    Unreachable,
)

MAX_SKEW = 60
"""Seconds that the clocks may differ before the relay refuses authentication (NIP-42, NIP-98)."""


class RelayError(HermesError):
    """The relay cannot be used now; a new connection may help."""


class RelayRefused(RelayError):
    """The relay refused to authenticate the account."""


class ConnectionDown(RelayError):
    """The connection ended, or counts as dead. `code` is that of the close frame, 0 without one."""

    def __init__(self, what: str, *, where: str = "", code: int = 0) -> None:
        super().__init__(what, where=where)
        self.code = code


class RequestClosed(RelayError):
    """The relay closed one request. `reason` is its own text."""

    def __init__(self, reason: str, *, where: str = "") -> None:
        super().__init__(f"the relay closed a request: {reason}", where=where)
        self.reason = reason

    @property
    def is_final(self) -> bool:
        """Asking again does not help until something else changes."""
        return self.reason.startswith(("restricted", "blocked", "invalid", "unsupported"))


def first_of(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """What made a group of tasks end: the first error, unless one is for good."""
    for_good = errors.subgroup(AccountFailed)
    found: BaseException = errors if for_good is None else for_good
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def skew_from(header: str | None, now: float) -> float | None:
    """Seconds by which this machine's clock is behind (positive) that of a `Date` header."""
    try:
        return None if not header else parsedate_to_datetime(header).timestamp() - now
    except ValueError:
        return None


def clock_remedy(skew: float | None) -> str:
    """What to do about a clock that explains a refusal; "" when it does not."""
    if skew is None or abs(skew) < MAX_SKEW:
        return ""
    side = "behind" if skew > 0 else "ahead of"
    return (
        f"this machine's clock is {abs(skew):.0f} s {side} the relay's, which takes "
        f"{MAX_SKEW} s at most: set the clock"
    )


def is_missing_target(reason: str) -> bool:
    """The relay does not have (yet) what an event refers to."""
    text = reason.lower()
    refers = any(word in text for word in ("parent", "root", "target", "ancest", "thread"))
    return text.startswith(("invalid", "error", "blocked")) and refers


def send_error(reason: str, where: str, skew: float | None) -> SendError:
    """The error for an event that the relay refused with `reason` (the text of its OK)."""
    prefix, _, rest = reason.partition(":")
    text = rest.lower()
    if prefix == "rate-limited":
        return RateLimited(retry_after(reason), scope="account", where=where)
    if prefix in ("error", "auth-required"):
        return SendFailed(f"the relay failed: {reason}", where=where)
    if "timestamp" in text or "created_at" in text:
        remedy = clock_remedy(skew) or "compare this machine's clock with the relay's"
        return SendFailed(f"the relay refused the date: {reason}", where=where, remedy=remedy)
    if "restricted" in reason and "member" in text:
        return Unreachable(f"the relay refused: {reason}", where=where)
    if prefix in ("restricted", "blocked"):
        return SendRejected(f"the relay refused: {reason}", kind="forbidden", where=where)
    if any(word in text for word in ("too long", "too large", "exceeds")):
        return SendRejected(f"the relay refused: {reason}", kind="too_long", where=where)
    return SendRejected(f"the relay refused: {reason}", kind="bad_format", where=where)
