"""Asking for updates, and acknowledging only those that the core has taken in.

An update is confirmed by the offset of the next question. The offset lives in memory and is sent
only until Telegram has heard it: after a week without updates their ids start anew at random, and
an old offset would confirm, and so lose, whatever has a lower id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from telegram.error import Conflict, InvalidToken, TelegramError

from hermes_core import AccountFailed, HermesError, SendFailed
from hermes_telegram.client import Flood
from hermes_telegram.failures import translate
from hermes_telegram.intake import Intake
from hermes_telegram.settings import Timing
from hermes_telegram.wire import Update

log = logging.getLogger(__name__)

CONFLICT = "another program asks for the updates of this bot"
WEBHOOK = "another program has set a webhook for this bot"
CONFLICT_REMEDY = "stop it, or give it a bot of its own"


class Source(Protocol):
    """Where updates come from."""

    async def updates(self, offset: int | None, timeout: int) -> Sequence[Update]: ...

    async def renew_updates(self) -> None: ...


class Window:
    """The updates that Telegram has shown us and still keeps.

    Running ones are on their way into the core, refused ones were given back by it, finished ones
    may be confirmed once nothing before them is unfinished.
    """

    def __init__(self) -> None:
        self._running: set[int] = set()
        self._refused: set[int] = set()
        self._finished: set[int] = set()

    @property
    def busy(self) -> bool:
        return bool(self._running)

    @property
    def unfinished(self) -> bool:
        return bool(self._running or self._refused)

    @property
    def offset(self) -> int | None:
        """What the next question has to say, None when there is nothing to confirm."""
        if self._running or self._refused:
            return min(self._running | self._refused)
        return max(self._finished) + 1 if self._finished else None

    def shown(self, offset: int | None, ids: Iterable[int]) -> set[int]:
        """A question with `offset` was answered with `ids`; returns those that are to be started.

        What was given back and is not shown again is gone from Telegram, or will be shown later.
        """
        ids = set(ids)
        if offset is not None:
            self._finished = {number for number in self._finished if number >= offset}
        self._refused &= ids
        fresh = ids - self._running - self._finished
        self._refused -= fresh
        self._running |= fresh
        return fresh

    def finished(self, update_id: int) -> None:
        self._running.discard(update_id)
        self._finished.add(update_id)

    def refused(self, update_id: int) -> None:
        self._running.discard(update_id)
        self._refused.add(update_id)


class _Pauses:
    """Pauses that grow while the same trouble lasts."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._last = 0.0
        self._trouble = ""

    async def pause(self, trouble: str) -> None:
        """Log a new `trouble` once, and wait."""
        if trouble != self._trouble:
            log.warning("no updates for now: %s", trouble)
            self._trouble = trouble
        longest = self._timing.longest_pause
        self._last = min(longest, self._last * 2 or self._timing.first_pause)
        await self._timing.sleep(self._last)

    def over(self) -> None:
        """The trouble is over."""
        if self._trouble:
            log.info("updates are coming in again")
        self._last, self._trouble = 0.0, ""


class Poller:
    """Asks until it is cancelled, or until it says through `lost` that it cannot go on."""

    def __init__(
        self,
        source: Source,
        intake: Intake,
        timing: Timing,
        lost: Callable[[Exception], None],
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`clock` is monotonic; the running loop's by default."""
        self._source = source
        self._intake = intake
        self._timing = timing
        self._lost = lost
        self._clock = clock or asyncio.get_running_loop().time
        self._window = Window()
        self._settled = asyncio.Event()
        self._given_back = False
        self._network = _Pauses(timing)
        self._refusal = _Pauses(timing)
        self._last_answer = self._clock()
        self._said: int | None = None

    async def ask(self, timeout: int) -> None:
        """One question: confirm what is finished, start what is new. Raises as the client does."""
        offset = self._said = self._window.offset
        async with asyncio.timeout(timeout + self._timing.slack):
            updates = await self._source.updates(offset, timeout)
        self._last_answer = self._clock()
        fresh = self._window.shown(offset, (update.update_id for update in updates))
        for update in updates:
            if update.update_id in fresh:
                fresh.discard(update.update_id)
                done = self._intake.put(update)
                done.add_done_callback(self._end_of(update.update_id))

    async def run(self) -> None:
        """Keep asking."""
        while True:
            await self._settle()
            try:
                await self.ask(0 if self._window.unfinished else self._timing.poll)
            except Flood as flood:
                if flood.seconds > self._timing.patience:
                    self._lost(translate(flood))
                    return
                log.warning("no updates for now: Telegram wants %g s of silence", flood.seconds)
                await self._timing.sleep(flood.seconds)
            except (TelegramError, TimeoutError) as error:
                if self._is_over(error):
                    return
                await self._recover(error)
            else:
                self._network.over()

    async def confirm(self) -> None:
        """Tell Telegram what is finished, so that it is not shown again after a restart.

        Unless the last question said so: it was heard, also if it has no answer yet.
        """
        offset = self._window.offset
        if offset not in {None, self._said}:
            await self._source.updates(offset, 0)

    # ── updates that are being taken in ──────────────────────────────────────────────────────────

    async def _settle(self) -> None:
        """Wait until everything is taken in, but only briefly: an album may want more."""
        if self._window.busy:
            self._settled.clear()
            await _first(self._settled.wait(), self._timing.sleep(self._timing.hold))
        if self._given_back:
            self._given_back = False
            await self._refusal.pause("the gateway takes nothing in at the moment")

    def _end_of(self, update_id: int) -> Callable[[asyncio.Future[None]], None]:
        def ended(done: asyncio.Future[None]) -> None:
            if done.cancelled() or done.exception() is not None:
                self._window.refused(update_id)
                self._given_back = True
            else:
                self._window.finished(update_id)
                self._refusal.over()
            if not self._window.busy:
                self._settled.set()

        return ended

    # ── trouble ──────────────────────────────────────────────────────────────────────────────────

    def _is_over(self, error: Exception) -> bool:
        """Whether the account is to be connected anew; the core is told then."""
        meaning = explain(error)
        silent = self._clock() - self._last_answer
        if isinstance(meaning, AccountFailed) or silent > self._timing.patience:
            self._lost(meaning)
            return True
        return False

    async def _recover(self, error: Exception) -> None:
        if not isinstance(error, Conflict):
            try:
                async with asyncio.timeout(self._timing.goodbye):
                    await self._source.renew_updates()
            except TimeoutError:
                log.warning("the old connection for updates does not close")
        await self._network.pause(str(explain(error)))


def explain(error: Exception) -> HermesError:
    """Why updates cannot be asked for, in words for the operator."""
    if isinstance(error, HermesError):
        return error
    if isinstance(error, Conflict):
        told = WEBHOOK if "webhook" in str(error).lower() else CONFLICT
        return SendFailed(told, remedy=CONFLICT_REMEDY)
    if isinstance(error, TimeoutError):
        return SendFailed("the connection for updates is dead: no answer came in time")
    if isinstance(error, InvalidToken | TelegramError):
        return translate(error)
    if isinstance(error, AttributeError | KeyError | TypeError):
        return SendFailed("an answer of the Bot API server has not the shape that it should have")
    return SendFailed(type(error).__name__)


async def _first(*waits: Awaitable[object]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
