"""What an attempt came to, and whether and when there is another one."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Literal

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 3600.0
LONGEST_RETRY_AFTER = 3600.0
"""Seconds that a receiver can put the next attempt off by `Retry-After`."""

_SUCCESS, _REDIRECT, _SERVER_ERROR = 2, 3, 5

State = Literal["delivered", "retry", "failed", "gone"]


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended. `status` is 0 without an answer; `reason` holds nothing that was
    received."""

    state: State
    reason: str = ""
    status: int = 0
    retry_after: float = 0.0


def judge(status: int, retry_after: str, now: float) -> Outcome:
    """The outcome of an answer. The table is in the README.

    `retry_after` is the header, "" without one; `now` is the time in UNIX seconds.
    """
    kind = status // 100
    if kind == _SUCCESS:
        return Outcome("delivered", status=status)
    if kind == _REDIRECT:
        return Outcome("failed", "redirect, which is not followed", status)
    if status == HTTPStatus.GONE:
        return Outcome("gone", "the target says that it is gone for good", status)
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        return Outcome("retry", f"status {status}", status, seconds_of(retry_after, now))
    if status == HTTPStatus.REQUEST_TIMEOUT or kind >= _SERVER_ERROR:
        return Outcome("retry", f"status {status}", status)
    return Outcome("failed", f"status {status}", status)


def seconds_of(header: str, now: float) -> float:
    """The pause that a `Retry-After` header asks for: seconds or a date; 0 when it says nothing."""
    text = header.strip()
    if text.isascii() and text.isdigit():
        return min(float(text), LONGEST_RETRY_AFTER)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0
    date = date.replace(tzinfo=date.tzinfo or UTC)
    wait = (date - datetime.fromtimestamp(now, UTC)).total_seconds()
    return min(max(wait, 0.0), LONGEST_RETRY_AFTER)


def pause(attempts: int, outcome: Outcome, spread: float | None = None) -> float:
    """Seconds before the next attempt after `attempts` of them.

    Exponential, up to half as much more by chance, and never less than the receiver asked for.
    `spread` replaces chance, 0 to 1."""
    chance = random.random() if spread is None else spread  # noqa: S311 - no secret
    own = min(FIRST_PAUSE * 2.0 ** min(attempts - 1, 20), LONGEST_PAUSE)
    return max(own * (1 + chance / 2), outcome.retry_after)
