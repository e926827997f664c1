"""Delivery: the outbox, sent first-in-first-out per (account, chat), each row until it has an end.

For every chat with something to send there is one sender task. Before each call of the adapter the attempt
is committed, after it the receipt. A final text whose outcome is unknown is sent again, marked where the
platform cannot recognise the repeat: at least once. Everything has a time to live.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from hermes_core import hookspecs as specs
from hermes_core.errors import (
    AccountFailed,
    RateLimited,
    SendFailed,
    SendRejected,
    Unreachable,
)
from hermes_core.events import DeliveryInfo
from hermes_core.ids import new_id
from hermes_core.messages import Address, Outbound, OutboundKind, Receipt
from hermes_core.store import outbox
from hermes_core.store.outbox import Appended, Chat, NewRow, Row
from hermes_core.text import split

if TYPE_CHECKING:
    from hermes_core.platforms import Platform
    from hermes_core.plugins import Hooks
    from hermes_core.profiles import ProfileScope
    from hermes_core.store import Store, Tx

log = logging.getLogger(__name__)

TIME_TO_LIVE = 86_400.0
"""Seconds after which a message is not sent any more: a day, as long as networks keep undelivered updates."""
MAX_ATTEMPTS = 8
"""Calls of the adapter for one row. With doubling pauses the last comes about two minutes after the first."""
MAX_PAUSE = 60.0
REPEAT_MARK = "[repeated] "
"""Put before a text that may have arrived already. Room for it is kept when texts are split."""


class Link(Protocol):
    """What delivery needs of an account."""

    @property
    def platform(self) -> Platform: ...

    @property
    def connected(self) -> bool: ...

    async def send(self, message: Outbound) -> Receipt: ...

    async def edit(self, message_id: str, message: Outbound) -> Receipt: ...


@dataclass(frozen=True)
class Reply:
    """Where an answer goes and what it answers."""

    address: Address
    session_key: str
    turn_id: str | None = None
    reply_to: str | None = None
    answers: tuple[str, ...] = ()
    edits: str = ""


@dataclass(frozen=True)
class _Again:
    """The row is not over: try again after `pause` seconds, or when the chat is back (None)."""

    pause: float | None
    message: Outbound
    spent: bool
    edits: str


@dataclass(frozen=True)
class _Over:
    """The row is over."""

    state: outbox.Ended
    message_id: str = ""
    reason: str = ""


class _Sender:
    """The one task that sends to a chat, and the highest row it has to reach."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.highest = 0
        self.task: asyncio.Task[None] | None = None


class Delivery:
    """The way out, for one profile."""

    def __init__(
        self,
        *,
        scope: ProfileScope,
        store: Store,
        hooks: Hooks,
        link: Callable[[str], Link | None],
        wall: Callable[[], float],
    ) -> None:
        """`link(account_key)` finds a configured account of this profile, and of no other."""
        self._scope = scope
        self._store = store
        self._hooks = hooks
        self._link = link
        self._wall = wall
        self._senders: dict[Chat, _Sender] = {}
        self._stopping = False
        self.counts: Counter[str] = Counter()

    # ── what is to be sent ───────────────────────────────────────────────────────────────────────

    def compose(self, reply: Reply, text: str, kind: OutboundKind) -> list[NewRow]:
        """The rows of a text, cut to what the platform takes. Nothing is stored yet."""
        link = self._link(reply.address.account_key)
        parts = [text]
        if link is not None:
            platform = link.platform
            room = max(1, platform.max_length - platform.length(REPEAT_MARK))
            parts = split(text, room, platform.length)
        now = self._wall()
        return [
            NewRow(
                Outbound(
                    id=new_id("o"),
                    created_at=now,
                    address=reply.address,
                    text=part,
                    kind=kind,
                    reply_to=reply.reply_to,
                    answers=reply.answers,
                    part=number,
                    parts=len(parts),
                ),
                reply.session_key,
                reply.turn_id,
                now + TIME_TO_LIVE,
                reply.edits if number == 1 else "",
            )
            for number, part in enumerate(parts, start=1)
        ]

    def ready(self, address: Address) -> bool:
        """Whether a row for this address may be claimed in the transaction that adds it."""
        link = self._link(address.account_key)
        return link is not None and link.connected and not self._stopping

    def idle(self, address: Address) -> bool:
        """Whether nothing is on its way to this chat, so that a preview would not overtake it."""
        return Chat(address.account_key, address.chat_id) not in self._senders

    def appended(self, appended: Appended | None) -> None:
        """Rows are committed. Called by the store on the event loop, in the order of the commits."""
        if appended is not None:
            self._wake(appended.chat, appended.highest, appended.claimed)

    def tell(self, reply: Reply, text: str, kind: OutboundKind = "notice") -> None:
        """Send a text from the core itself. Returns at once; it is committed in the background."""
        rows = self.compose(reply, text, kind)
        ready = self.ready(reply.address)
        self._store.write(
            lambda tx: outbox.append(tx, rows, claim_first=ready), self.appended
        ).add_done_callback(_log_failure)

    # ── when to send ─────────────────────────────────────────────────────────────────────────────

    async def resume(self, account: str, chat_id: str | None = None) -> None:
        """An account, or one chat of it, can be reached: send what waits there."""
        for chat, highest in await self._store.write(lambda tx: outbox.open_chats(tx, account)):
            if chat_id is None or chat.chat_id == chat_id:
                self._wake(chat, highest, None)

    async def recover(self) -> None:
        """After a start: attempts that a crash cut have an unknown outcome; prepare them to be repeated."""

        def put_back(tx: Tx) -> int:
            rows = outbox.unfinished(tx)
            for row in rows:
                again = self._repeat(row)
                outbox.put_back(tx, row, message=again.message, spent=True, edits=again.edits)
            return len(rows)

        count = await self._store.write(put_back)
        if count:
            log.warning("%d deliveries were cut by a crash and will be repeated", count)

    async def stop(self, grace: float) -> None:
        """Let the calls in progress end within `grace` seconds. What is not sent stays in the outbox."""
        self._stopping = True
        tasks = {sender.task for sender in self._senders.values() if sender.task is not None}
        if not tasks:
            return
        await asyncio.wait(tasks, timeout=grace)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    async def settled(self) -> None:
        """Wait until nothing is on its way that could be sent now."""
        while self._senders:
            tasks = {sender.task for sender in self._senders.values() if sender.task is not None}
            await asyncio.wait(tasks)

    def _wake(self, chat: Chat, highest: int, claimed: Row | None) -> None:
        sender = self._senders.get(chat)
        if sender is not None:
            sender.highest = max(sender.highest, highest)
            return
        if self._stopping:
            return
        sender = self._senders[chat] = _Sender(chat)
        sender.highest = highest
        sender.task = asyncio.get_running_loop().create_task(
            self._run(sender, claimed), name=f"send {chat.account} {chat.chat_id}"
        )

    async def _run(self, sender: _Sender, row: Row | None) -> None:
        """Send while rows are open. Nothing is awaited between the last look and the retirement."""
        seen = row.sequence - 1 if row is not None else 0
        try:
            while sender.highest > seen:
                mark = sender.highest
                if row is None:
                    if not self._connected(sender.chat):
                        return
                    row = await self._store.write(lambda tx: outbox.claim(tx, sender.chat))
                if row is None:
                    seen = mark
                    continue
                ended = await self._attempt(row)
                if isinstance(ended, _Over):
                    seen, row = await self._end(sender, row, ended, mark)
                elif ended.pause is None:
                    await self._put_back(row, ended)
                    return
                else:
                    await self._put_back(row, ended)
                    row = None
                    await asyncio.sleep(ended.pause)
        finally:
            if self._senders.get(sender.chat) is sender:
                del self._senders[sender.chat]

    def _connected(self, chat: Chat) -> bool:
        link = self._link(chat.account)
        return link is not None and link.connected and not self._stopping

    async def _end(
        self, sender: _Sender, row: Row, ended: _Over, mark: int
    ) -> tuple[int, Row | None]:
        """Commit the end of a row and, in the same transaction, the attempt of the next one."""
        now = self._wall()
        more = mark > row.sequence and self._connected(sender.chat)

        def op(tx: Tx) -> Row | None:
            outbox.settle(tx, row.sequence, ended.state, now, ended.message_id, ended.reason)
            return outbox.claim(tx, sender.chat) if more else None

        following = await self._store.write(op)
        self._report(row, ended)
        if following is not None:
            return following.sequence - 1, following
        return (mark if more else row.sequence), None

    async def _put_back(self, row: Row, again: _Again) -> None:
        await self._store.write(
            lambda tx: outbox.put_back(
                tx, row, message=again.message, spent=again.spent, edits=again.edits
            )
        )

    # ── one attempt ──────────────────────────────────────────────────────────────────────────────

    async def _attempt(self, row: Row) -> _Over | _Again:
        """Call the adapter once and say what that means for the row."""
        link = self._link(row.message.address.account_key)
        if link is None:
            return _Over("failed", reason="the account is not configured any more")
        if self._wall() >= row.expires_at:
            return _Over("expired", reason="too old to be sent")
        if not link.connected:
            return _Again(None, row.message, spent=False, edits=row.edits)
        try:
            if row.edits:
                receipt = await link.edit(row.edits, row.message)
            else:
                receipt = await link.send(row.message)
        except RateLimited as error:
            return _Again(error.retry_after, row.message, spent=False, edits=row.edits)
        except Unreachable:
            return _Again(None, row.message, spent=False, edits=row.edits)
        except AccountFailed as error:
            return _Over("failed", reason=error.what)
        except SendRejected as error:
            if row.edits:
                return _Again(0.0, row.message, spent=True, edits="")
            return _Over("failed", reason=error.what)
        except SendFailed as error:
            return self._later(row, error, row.message, row.edits)
        except Exception as error:
            again = self._repeat(row)
            return self._later(row, error, again.message, again.edits)
        return _Over("delivered", message_id=receipt.message_id)

    def _later(self, row: Row, error: Exception, message: Outbound, edits: str) -> _Over | _Again:
        reason = f"{type(error).__name__}: {error}"
        if row.attempts >= MAX_ATTEMPTS:
            return _Over("failed", reason=f"gave up after {row.attempts} attempts: {reason}")
        pause = min(MAX_PAUSE, 2.0 ** (row.attempts - 1))
        log.warning(
            "a delivery failed and is tried again in %g s: %s",
            pause,
            reason,
            extra={"account": message.address.account_key, "turn": row.turn_id},
        )
        return _Again(pause, message, spent=True, edits=edits)

    def _repeat(self, row: Row) -> _Again:
        """The same row, to be sent although it may have arrived: marked, unless that is harmless."""
        link = self._link(row.message.address.account_key)
        harmless = bool(row.edits) or (link is not None and link.platform.idempotent)
        if harmless or row.message.repeated:
            return _Again(0.0, row.message, spent=True, edits=row.edits)
        text = REPEAT_MARK + row.message.text
        marked = msgspec.structs.replace(row.message, text=text, repeated=True)
        return _Again(0.0, marked, spent=True, edits="")

    def _report(self, row: Row, ended: _Over) -> None:
        self.counts[ended.state] += 1
        delivered = ended.state == "delivered"
        spec = specs.on_delivered if delivered else specs.on_delivery_failed
        if not delivered:
            log.error(
                "a message was not delivered: %s",
                ended.reason,
                extra={"account": row.message.address.account_key, "turn": row.turn_id},
            )
        if self._hooks.has(spec):
            info = DeliveryInfo(
                message=row.message,
                session_key=row.session_key,
                turn_id=row.turn_id,
                message_id=ended.message_id,
                attempts=row.attempts,
                reason=ended.reason,
            )
            self._hooks.notify(spec, scope=self._scope, delivery=info)


def _log_failure(write: asyncio.Future[Appended | None]) -> None:
    if not write.cancelled() and (error := write.exception()) is not None:
        log.error("could not store a notice: %s", error)
