"""What is kept of a denied event: that it happened, from whom and why. Never what was said."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from hermes_core import hookspecs as specs
from hermes_core.events import DenialInfo
from hermes_core.messages import Inbound
from hermes_core.text import clean

if TYPE_CHECKING:
    from hermes_core.plugins import Hooks
    from hermes_core.profiles import ProfileScope
    from hermes_core.store import Store, Tx

log = logging.getLogger(__name__)

QUIET_SECONDS = 3600.0
"""A sender who keeps trying is logged and stored once in this time."""
MAX_REMEMBERED = 10_000
"""Senders in memory and rows in the table at most: strangers cannot fill either."""
MAX_ID = 200
"""Characters kept of an id that a stranger sent."""


class Denials:
    """Counts, logs and stores denials, bounded in every direction."""

    def __init__(
        self, scope: ProfileScope, store: Store, hooks: Hooks, wall: Callable[[], float]
    ) -> None:
        self._scope = scope
        self._store = store
        self._hooks = hooks
        self._wall = wall
        self.counts: Counter[str] = Counter()
        self._seen: OrderedDict[tuple[str, str, str], tuple[float, int]] = OrderedDict()

    def note(self, event: Inbound, reason: str) -> None:
        """Take note of one denial. Returns at once; the row is committed in the background."""
        sender_id, address = _bounded(event.sender.id), event.address
        address = msgspec.structs.replace(
            address,
            chat_id=_bounded(address.chat_id),
            thread_id=None if address.thread_id is None else _bounded(address.thread_id),
        )
        info = DenialInfo(address=address, sender_id=sender_id, reason=reason)
        self.counts[reason] += 1
        self._hooks.notify(specs.on_message_denied, scope=self._scope, denial=info)
        key = (event.address.account_key, sender_id, reason)
        now = self._wall()
        last, pending = self._seen.pop(key, (float("-inf"), 0))
        quiet = 0 <= now - last < QUIET_SECONDS
        self._seen[key] = (last, pending + 1) if quiet else (now, 0)
        if len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)
        if quiet:
            return
        log.warning(
            "denied a sender: %s",
            reason,
            extra={"account": event.address.account_key, "sender": sender_id},
        )
        row = (address.account_key, address.chat_id, sender_id, reason, pending + 1, now, now)
        self._store.write(lambda tx: _upsert(tx, row)).add_done_callback(_report)


def _bounded(name: str) -> str:
    return clean(name[:MAX_ID])


def _upsert(tx: Tx, row: tuple[str, str, str, str, int, float, float]) -> None:
    tx.execute(
        "INSERT INTO denied (account, chat_id, sender_id, reason, count, first_at, last_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (account, chat_id, sender_id, reason)"
        " DO UPDATE SET count = count + excluded.count, last_at = excluded.last_at",
        row,
    )
    tx.execute("DELETE FROM denied WHERE id <= (SELECT MAX(id) FROM denied) - ?", (MAX_REMEMBERED,))


def _report(write: asyncio.Future[None]) -> None:
    if not write.cancelled() and (error := write.exception()) is not None:
        log.error("could not store a denial: %s", error)
