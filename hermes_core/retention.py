"""What is over goes with age: first its content, later its keys, as ``[retention]`` says.

Ages are measured with the wall clock, which may be wrong. So nothing is erased before it has gone
on evenly for a while, and then little at a time: a clock that steps ahead, and is set right soon,
costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hermes_core.store import erasing, search
from hermes_core.threads import in_thread

if TYPE_CHECKING:
    from hermes_core.attachments import Attachments
    from hermes_core.config.sections import RetentionSettings
    from hermes_core.spool import Spool
    from hermes_core.store import Store
    from hermes_core.store.erasing import Step

log = logging.getLogger(__name__)

PERIOD = 600.0
"""Seconds between two rounds, and for which the clock has to go on evenly before one. A machine
without a clock of its own has the time from the network by then."""
STEP = 60.0
"""Seconds that the clock may gain on the event loop before it counts as a step."""
ROUNDS = 250
"""Transactions of one kind in a round: 50,000 rows, which take the writer about a second."""

_HIDDEN = "lines that were taken back"
_SESSIONS = "sessions and their lines"
_CONTENT: tuple[tuple[str, Step], ...] = (
    ("content of events", erasing.erase_inbox),
    ("content of messages", erasing.erase_outbox),
    ("content of turns", erasing.erase_turns),
    (_HIDDEN, erasing.delete_hidden),
    ("durable events", erasing.delete_events),
)
_KEYS: tuple[tuple[str, Step], ...] = (
    ("events", erasing.delete_inbox),
    ("messages", erasing.delete_outbox),
    ("turns", erasing.delete_turns),
    ("denials", erasing.delete_denials),
)


class Retention:
    """Erases what one profile has kept for long enough."""

    def __init__(
        self,
        store: Store,
        spool: Spool,
        attachments: Attachments,
        policy: RetentionSettings,
        wall: Callable[[], float],
    ) -> None:
        self._store = store
        self._spool = spool
        self._attachments = attachments
        self.policy = policy
        self._wall = wall
        self._seen: tuple[float, float] | None = None
        self._even_since = 0.0

    async def keep_house(self) -> None:
        """Erase if it is time to. To be called about once a minute; raises StoreError."""
        if self._is_due():
            await self.erase()

    async def erase(self) -> None:
        """Erase what is old enough, up to a limit. Raises StoreError; what was done stays done."""
        now = self._wall()
        done: Counter[str] = Counter()
        for name, step, before in self._steps(now):
            done[name] = await self._repeat(step, before)
        done["files"] = await in_thread(self._attachments.expire, now - self.policy.content)
        if done[_HIDDEN] or done[_SESSIONS]:
            await search.purge_all(self._store)
        if +done:
            await self._store.empty_log()
            log.info("erased by age: %s", ", ".join(f"{name} {done[name]}" for name in +done))

    async def _repeat(self, step: Step, before: float) -> int:
        """Take one step after the other until nothing is left, or it is enough for once."""
        count = 0
        for _ in range(ROUNDS):
            erased = await self._store.write(lambda tx: step(tx, before))
            count += erased.count
            if erased.files:
                await in_thread(self._spool.discard, erased.files)
            if erased.count < erasing.BATCH:
                break
        return count

    def _steps(self, now: float) -> Iterator[tuple[str, Step, float]]:
        for name, step in _CONTENT:
            yield name, step, now - self.policy.content
        for name, step in _KEYS:
            yield name, step, now - self.policy.keys
        if self.policy.transcript is not None:
            yield _SESSIONS, erasing.delete_sessions, now - self.policy.transcript

    def _is_due(self) -> bool:
        """Whether the clock has gone on evenly since the last round, or since it was first looked
        at."""
        seen, now, at = self._seen, self._wall(), asyncio.get_running_loop().time()
        self._seen = now, at
        if seen is None or now - seen[0] > at - seen[1] + STEP:
            self._even_since = at
        if at - self._even_since < PERIOD:
            return False
        self._even_since = at
        return True
