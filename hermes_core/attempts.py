"""One attempt to send a row: what is tried, and what its outcome means for the row."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from hermes_core.errors import (
    AccountFailed,
    RateLimited,
    SendError,
    SendFailed,
    SendRejected,
    Unreachable,
    described,
)
from hermes_core.messages import Address, Outbound, Receipt
from hermes_core.store.outbox import Ended, Row, Shown
from hermes_core.text import clean

if TYPE_CHECKING:
    from hermes_core.budget import Budget
    from hermes_core.platforms import Platform

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 8
"""Calls of the adapter for one row. With doubling pauses the last comes two minutes after the
first."""
MAX_PAUSE = 60.0
LATE = 600.0
"""Seconds after which a message says that it is late."""
REPEAT_MARK = "[repeated] "
LATE_MARK = "[delayed] "
_NOT_NOW = (RateLimited, Unreachable)
"""Errors of a platform that can be asked again."""
MARKS = REPEAT_MARK + LATE_MARK
"""Room for these is kept when texts are split."""


class Link(Protocol):
    """What sending needs of an account."""

    @property
    def platform(self) -> Platform: ...

    @property
    def budget(self) -> Budget: ...

    @property
    def connected(self) -> bool: ...

    @property
    def on_unknown(self) -> Literal["repeat", "drop"]: ...

    @property
    def progress(self) -> Literal["none", "typing", "status", "full"]: ...

    @property
    def types(self) -> bool:
        """Whether people see that an answer is being written."""

    @property
    def streams(self) -> bool:
        """Whether the answer is shown while it is written."""

    async def send(self, message: Outbound) -> Receipt: ...

    async def edit(self, message_id: str, message: Outbound) -> Receipt: ...

    async def draft(self, message: Outbound) -> None: ...

    async def reconcile(self, message: Outbound) -> Receipt | None:
        """What became of an earlier attempt. Raises when nobody can tell."""

    async def set_typing(self, address: Address, active: bool) -> None: ...


@dataclass(frozen=True)
class Over:
    """The row is over."""

    state: Ended
    message_id: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Again:
    """The row, as it is now, is tried again: after `pause` seconds, or (None) when it can be
    reached.

    `limit` is a pause that the platform asked for, for the chat or the whole account.
    """

    row: Row
    pause: float | None
    limit: RateLimited | None = None


Verdict = Over | Again


async def attempt(row: Row, link: Link, wall: Callable[[], float]) -> Verdict:
    """Call the adapter for a row whose attempt is committed."""
    now = wall()
    if now >= row.expires_at:
        return Over("expired", reason="too old to be sent")
    if not link.connected:
        return Again(_unspent(row), None)
    try:
        row = replace(row, shown=await _shown(row, link))
        if row.doubtful and not _harmless(row, link):
            found = await _look_for(row, link)
            if isinstance(found, Over):
                return found
            row = found
    except _NOT_NOW as error:
        return _refused(row, error)
    message = _marked(row, link, now)
    try:
        target = row.shown.message_id
        call = link.edit(target, message) if target else link.send(message)
        receipt = await call
    except SendError as error:
        return _refused(row, error)
    except Exception as error:
        return _later(replace(row, doubtful=True), error)
    return Over("delivered", receipt.message_id)


async def look_for(shown: Shown, link: Link) -> Shown:
    """Find out whether the message arrived that is to show an answer. Raises when nobody can
    tell."""
    if shown.unsure is None:
        return shown
    receipt = await link.reconcile(shown.unsure)
    return Shown() if receipt is None else Shown(receipt.message_id)


def may_have_arrived(error: Exception) -> bool:
    """Whether a call that failed so may have shown something all the same."""
    return not isinstance(
        error, SendFailed | SendRejected | RateLimited | Unreachable | AccountFailed
    )


async def _shown(row: Row, link: Link) -> Shown:
    """What the row is to complete. A message that nobody can find is left alone. Raises what says
    that somebody can, later."""
    try:
        return await look_for(row.shown, link)
    except _NOT_NOW:
        raise
    except Exception as error:
        log.info("cannot tell whether a preview was shown: %s", error, extra={"turn": row.turn_id})
        return Shown()


async def _look_for(row: Row, link: Link) -> Over | Row:
    """Find out whether an earlier attempt arrived. The row to send, still doubtful if nobody
    knows. Raises what says that somebody does, later."""
    try:
        receipt = await link.reconcile(row.message)
    except _NOT_NOW:
        raise
    except Exception as error:
        log.info("cannot tell what became of a message: %s", error, extra={"turn": row.turn_id})
        if link.on_unknown == "drop":
            return Over("unknown", reason="it may have arrived; nobody can tell")
        return row
    if receipt is not None:
        return Over("delivered", receipt.message_id)
    return replace(row, doubtful=False)


def _refused(row: Row, error: SendError) -> Verdict:
    """What a typed error of the adapter means."""
    if isinstance(error, RateLimited):
        return Again(_unspent(row), error.retry_after, error)
    if isinstance(error, Unreachable):
        return Again(_unspent(row), None)
    if isinstance(error, AccountFailed):
        return Over("failed", reason=clean(error.what))
    if isinstance(error, SendRejected):
        return _rejected(row, error)
    return _later(replace(row, doubtful=row.doubtful or may_have_arrived(error)), error)


def _rejected(row: Row, error: SendRejected) -> Verdict:
    """Not with this text, or not at all: a preview that cannot be edited is followed by a new
    message, and formatting that is refused is left out, once."""
    if row.shown.message_id:
        return Again(replace(row, shown=Shown()), 0.0)
    if error.kind == "bad_format" and not row.message.plain:
        return Again(replace(row, message=msgspec.structs.replace(row.message, plain=True)), 0.0)
    return Over("failed", reason=f"refused by the platform: {clean(error.what)}")


def _later(row: Row, error: Exception) -> Verdict:
    reason = described(error)
    if row.attempts >= MAX_ATTEMPTS:
        state: Ended = "unknown" if row.doubtful else "failed"
        return Over(state, reason=f"gave up after {row.attempts} attempts: {reason}")
    pause = min(MAX_PAUSE, 2.0 ** (row.attempts - 1))
    log.warning(
        "a delivery failed and is tried again in %g s: %s",
        pause,
        reason,
        extra={"account": row.message.address.account_key, "turn": row.turn_id},
    )
    return Again(row, pause)


def _harmless(row: Row, link: Link) -> bool:
    """Whether the same call made twice shows one message."""
    return bool(row.shown.message_id) or link.platform.idempotent


def _marked(row: Row, link: Link, now: float) -> Outbound:
    """The message as it goes out: it says when it may be a repeat, and when it is late."""
    message = row.message
    repeat = row.doubtful and not _harmless(row, link)
    marks = (REPEAT_MARK if repeat else "") + (LATE_MARK if now - message.created_at > LATE else "")
    if not marks:
        return message
    return msgspec.structs.replace(message, text=marks + message.text, repeated=repeat)


def _unspent(row: Row) -> Row:
    return replace(row, attempts=row.attempts - 1)
