"""One event on its way to one target, and the worker that delivers them."""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from hermes_outbound_webhooks.document import document, facts_of
from hermes_outbound_webhooks.retry import Outcome, pause
from hermes_outbound_webhooks.signing import sign
from hermes_outbound_webhooks.targets import Target

log = logging.getLogger(__name__)

QUEUE = 256
"""Events that may wait for one target that is not durable."""
REMEMBERED = 100
"""Ended deliveries of one target that are kept in memory for the listing."""

Ending = Literal["delivered", "failed", "dropped"]


@dataclass
class Delivery:
    """An event on its way. The body is made at the first attempt and is the same in each."""

    event: str
    hook: str
    created_at: float
    values: Mapping[str, object] = field(repr=False)
    truncated: bool = False
    """Something was left out of the values before."""
    id: str = field(default_factory=lambda: os.urandom(16).hex())
    body: bytes = field(default=b"", repr=False)
    attempts: int = 0
    state: str = "pending"
    reason: str = ""
    status: int = 0
    sequence: int = 0
    """Its row in the table, 0 in memory."""
    since: float = 0.0
    """From when its age counts: from the event, or from the last replay. 0 in memory."""

    def row(self, target: str) -> dict[str, Any]:
        """What listings show."""
        return {
            "id": self.id,
            "target": target,
            "event": self.event,
            "state": self.state,
            "attempts": self.attempts,
            "status": self.status,
            "reason": self.reason,
            "created_at": self.created_at,
        }


class Backlog(Protocol):
    """Where the deliveries of one target wait."""

    async def take(self) -> Delivery:
        """The next one that is due; waits for it. It stays until it is settled or put back."""

    def put_back(self, delivery: Delivery, seconds: float) -> bool:
        """Let it wait for another attempt. False when there is to be none."""

    def settle(self, delivery: Delivery) -> None:
        """It ended."""

    def waiting(self) -> int:
        """How many wait, as far as is known without asking the database."""


class MemoryBacklog:
    """A bounded queue, and the deliveries that wait for another attempt."""

    def __init__(self, target: Target, dropped: Callable[[Delivery], None]) -> None:
        self._target = target
        self._dropped = dropped
        self._queue: deque[Delivery] = deque()
        self._later: list[tuple[float, int, Delivery]] = []
        self._counter = 0
        self._changed = asyncio.Event()

    def put(self, delivery: Delivery) -> None:
        """Take an event in; when there is no room, drop it or the oldest one."""
        if self.waiting() >= QUEUE:
            if self._target.settings.overflow == "drop_newest" or not self._queue:
                self._dropped(delivery)
                return
            self._dropped(self._queue.popleft())
        self._queue.append(delivery)
        self._changed.set()

    async def take(self) -> Delivery:
        loop = asyncio.get_running_loop()
        while True:
            due = self._later[0][0] - loop.time() if self._later else None
            if due is not None and due <= 0:
                return heapq.heappop(self._later)[2]
            if self._queue:
                return self._queue.popleft()
            self._changed.clear()
            try:
                async with asyncio.timeout(due):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def put_back(self, delivery: Delivery, seconds: float) -> bool:
        if delivery.attempts > self._target.settings.max_retries:
            return False
        self._counter += 1
        due = asyncio.get_running_loop().time() + seconds
        heapq.heappush(self._later, (due, self._counter, delivery))
        return True

    def settle(self, delivery: Delivery) -> None:
        """Nothing is kept here."""

    def waiting(self) -> int:
        return len(self._queue) + len(self._later)

    def left(self) -> list[Delivery]:
        """Take out what did not end."""
        left = [*(entry[2] for entry in self._later), *self._queue]
        self._later.clear()
        self._queue.clear()
        return left


Post = Callable[[bytes, Mapping[str, str]], Awaitable[Outcome]]


class Worker:
    """Delivers to one target, one after the other: a slow target is slow for itself alone."""

    def __init__(
        self,
        target: Target,
        backlog: Backlog,
        *,
        profile: str,
        post: Post,
        mask: Callable[[str], str],
        wall: Callable[[], float],
    ) -> None:
        self.target = target
        self.backlog = backlog
        self.counts: Counter[str] = Counter()
        self.ended: deque[Delivery] = deque(maxlen=REMEMBERED)
        self.gone = False
        self.busy: Delivery | None = None
        self._profile = profile
        self._post = post
        self._mask = mask
        self._wall = wall
        self._hold_until = 0.0
        self._settled = asyncio.Event()

    async def run(self) -> None:
        """Deliver until cancelled, or until the target is gone."""
        loop = asyncio.get_running_loop()
        while not self.gone:
            delivery = await self.backlog.take()
            self.busy = delivery
            if (hold := self._hold_until - loop.time()) > 0:
                await asyncio.sleep(hold)
            try:
                self._take_in(delivery, await self.attempt(delivery))
            except Exception:  # one event that cannot be told must not end the others
                log.exception("webhook %s: a delivery failed", self.target.name)
                self.end(delivery, "failed", "it could not be written as JSON")
            self.busy = None
            self._settled.set()

    async def attempt(self, delivery: Delivery) -> Outcome:
        """One attempt, whatever came of those before."""
        if not delivery.body:
            delivery.body = self._body(delivery)
        delivery.attempts += 1
        headers = {"X-Hermes-Event": delivery.event, "X-Hermes-Delivery": delivery.id}
        if self.target.secrets:
            headers |= sign(
                delivery.body,
                delivery_id=delivery.id,
                timestamp=int(self._wall()),
                secrets=self.target.secrets,
            )
        return await self._post(delivery.body, headers)

    def end(self, delivery: Delivery, state: Ending, reason: str, status: int = 0) -> None:
        """A delivery ended; keep what the listing shows."""
        delivery.state, delivery.reason, delivery.status = state, reason, status
        delivery.values = {}
        self.counts[state] += 1
        self.backlog.settle(delivery)
        if state == "delivered":
            delivery.body = b""
        self.ended.append(delivery)
        if state != "delivered":
            log.warning(
                "webhook %s: %s was not delivered: %s", self.target.name, delivery.event, reason
            )

    async def drained(self) -> None:
        """Wait until nothing is under way and nothing waits, or the target is gone."""
        while not self.gone and (self.busy is not None or self.backlog.waiting()):
            self._settled.clear()
            await self._settled.wait()

    def status(self) -> dict[str, Any]:
        return {
            "state": "gone" if self.gone else "running",
            "waiting": self.backlog.waiting() + (self.busy is not None),
            **{name: self.counts[name] for name in ("delivered", "failed", "dropped", "retries")},
        }

    def _body(self, delivery: Delivery) -> bytes:
        facts, cut = facts_of(delivery.values)
        return document(
            facts,
            event=delivery.event,
            profile=self._profile,
            delivery_id=delivery.id,
            created_at=delivery.created_at,
            cut=cut or delivery.truncated,
            redact=self.target.settings.redact,
            mask=self._mask,
        )

    def _take_in(self, delivery: Delivery, outcome: Outcome) -> None:
        if outcome.state == "delivered":
            self.end(delivery, "delivered", "", outcome.status)
        elif outcome.state == "retry":
            self._again(delivery, outcome)
        else:
            self.end(delivery, "failed", outcome.reason, outcome.status)
            if outcome.state == "gone":
                self.gone = True
                log.error(
                    "webhook %s: %s; nothing more is sent to it until the gateway starts again",
                    self.target.name,
                    outcome.reason,
                )

    def _again(self, delivery: Delivery, outcome: Outcome) -> None:
        delivery.reason, delivery.status = outcome.reason, outcome.status
        wait = pause(delivery.attempts, outcome)
        if outcome.retry_after:
            self._hold_until = asyncio.get_running_loop().time() + outcome.retry_after
        if self.backlog.put_back(delivery, wait):
            self.counts["retries"] += 1
        else:
            reason = f"{outcome.reason}, after {delivery.attempts} attempts"
            self.end(delivery, "failed", reason, outcome.status)
