"""Delivery: the outbox, sent first-in-first-out per (account, chat), each row until it has an end.

For every chat with something to send there is one sender task. Before each call of the adapter the
attempt is committed, after it the receipt. A text whose outcome is unknown is looked for, or sent
again with a mark: at least once. Everything has a time to live.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from hermes_core import hookspecs as specs
from hermes_core.attempts import MARKS, Again, Link, Over, Verdict, attempt
from hermes_core.events import DeliveryInfo
from hermes_core.ids import new_id
from hermes_core.messages import Address, Button, Outbound, OutboundAttachment, OutboundKind
from hermes_core.parts import split
from hermes_core.spool import Spool
from hermes_core.store import outbox
from hermes_core.store.outbox import Appended, Chat, NewRow, Row, Shown
from hermes_core.text import clean
from hermes_core.threads import in_thread

if TYPE_CHECKING:
    from hermes_core.moves import Moves
    from hermes_core.plugins import Hooks
    from hermes_core.profiles import ProfileScope
    from hermes_core.store import Store, Tx

log = logging.getLogger(__name__)

TIME_TO_LIVE = 86_400.0
"""Seconds after which a message is not sent any more: as long as networks keep undelivered
updates."""


@dataclass(frozen=True)
class Reply:
    """Where an answer goes and what it answers."""

    address: Address
    session_key: str
    turn_id: str | None = None
    reply_to: str | None = None
    answers: tuple[str, ...] = ()
    shown: Shown = field(default_factory=Shown)


class _Sender:
    """The one task that sends to a chat, the highest row it has to reach, the last one it has seen,
    and a row that was claimed for it."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.highest = 0
        self.seen = 0
        self.wakes = 0
        self.joins = 0
        self.task: asyncio.Task[None] | None = None
        self._claimed: Row | None = None

    def wake(self, highest: int, claimed: Row | None) -> None:
        """There is more to send. A row that is claimed is sent by nobody else."""
        self.highest = max(self.highest, highest)
        self.wakes += 1
        self._claimed = claimed or self._claimed

    def join(self) -> None:
        """Rows of another chat have come: some may be older than what was seen."""
        self.joins += 1
        self.seen = 0

    def saw(self, sequence: int, joins: int) -> None:
        """There is nothing open up to here, if nothing has `joined` since."""
        if joins == self.joins:
            self.seen = sequence

    def take(self) -> Row | None:
        claimed, self._claimed = self._claimed, None
        return claimed


class Delivery:
    """The way out, for one profile."""

    def __init__(
        self,
        *,
        scope: ProfileScope,
        store: Store,
        hooks: Hooks,
        spool: Spool,
        link: Callable[[str], Link | None],
        moves: Moves,
        wall: Callable[[], float],
    ) -> None:
        """`link(account_key)` finds a configured account of this profile, and of no other; `moves`
        are its chats that have moved."""
        self._scope = scope
        self._store = store
        self._hooks = hooks
        self._spool = spool
        self._link = link
        self._moves = moves
        self._wall = wall
        self._senders: dict[Chat, _Sender] = {}
        self._told: set[asyncio.Future[Appended | None]] = set()  # texts that are not stored yet
        self._closing = asyncio.Event()
        self._deadline = 0.0
        self._stopping = False
        self.counts: Counter[str] = Counter()

    # ── what is to be sent ───────────────────────────────────────────────────────────────────────

    def compose(
        self,
        reply: Reply,
        text: str,
        kind: OutboundKind,
        attachments: tuple[OutboundAttachment, ...] = (),
    ) -> list[NewRow]:
        """The rows of a text, cut to what the platform takes; files go with the last one. Nothing
        is stored yet."""
        text = clean(text)
        reply = self.where_it_is(reply)
        link = self._link(reply.address.account_key)
        parts = [text]
        if link is not None:
            platform = link.platform
            room = max(1, platform.max_length - platform.length(MARKS))
            parts = split(text, room, platform.length) or [""]
        if attachments and len(parts) == 1 and reply.shown != Shown() and text.strip():
            parts.append("")  # the text completes a preview, and an edit takes no files along
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
                    attachments=attachments if number == len(parts) else (),
                ),
                reply.session_key,
                reply.turn_id,
                now + TIME_TO_LIVE,
                reply.shown if number == 1 else Shown(),
            )
            for number, part in enumerate(parts, start=1)
        ]

    def where_it_is(self, reply: Reply) -> Reply:
        """A reply to where its chat is now. The ids of messages belong to the chat that is gone."""
        address = self._moves.address(reply.address)
        if address is reply.address:
            return reply
        key = self._moves.key(reply.session_key)
        return replace(reply, address=address, session_key=key, reply_to=None, shown=Shown())

    def ready(self, address: Address) -> bool:
        """Whether a row for this address may be claimed in the transaction that adds it."""
        return self._has_room(self._chat(address))

    def idle(self, address: Address) -> bool:
        """Whether nothing is on its way to this chat, so that a preview would not overtake it."""
        return self._chat(address) not in self._senders

    def _chat(self, address: Address) -> Chat:
        return Chat(address.account_key, self._moves.address(address).chat_id)

    def appended(self, appended: Appended | None) -> None:
        """Rows are committed. Called by the store on the event loop, in the order of the
        commits."""
        if appended is not None:
            self._wake(appended.chat, appended.highest, appended.claimed)

    def tell(self, reply: Reply, text: str, kind: OutboundKind = "notice") -> None:
        """Send a text from the core itself. Returns at once; it is committed in the background."""
        self._append(reply, self.compose(reply, text, kind))

    def ask(self, reply: Reply, text: str, buttons: tuple[Button, ...], *, lives: float) -> str:
        """Send a question that is of no use after `lives` seconds. Returns at once, with the text
        of the message that has the buttons: the last part."""
        rows = self.compose(reply, text, "question")
        last = rows[-1]
        rows[-1] = replace(last, message=msgspec.structs.replace(last.message, buttons=buttons))
        until = self._wall() + lives
        self._append(reply, [replace(row, expires_at=until) for row in rows])
        return last.message.text

    def _append(self, reply: Reply, rows: list[NewRow]) -> None:
        ready = self.ready(reply.address)
        write = self._store.write(
            lambda tx: outbox.append(tx, rows, claim_first=ready), self.appended
        )
        self._told.add(write)
        write.add_done_callback(self._told.discard)
        write.add_done_callback(_log_failure)

    # ── when to send ─────────────────────────────────────────────────────────────────────────────

    async def resume(self, account: str, chat_id: str | None = None) -> None:
        """An account, or one chat of it, can be reached: send what waits there."""
        for chat, highest in await self._store.persist(lambda tx: outbox.open_chats(tx, account)):
            if chat_id is None or chat.chat_id == chat_id:
                self._wake(chat, highest, None)

    def moved(self, old: Chat, chat_id: str, highest: int, pause: float) -> None:
        """The rows of a chat are those of another now, which has open ones up to `highest`, and
        wants silence for `pause` seconds. Called by the store on the event loop, on the commit.

        The sender goes on there. Should that chat have one of its own, that one takes the rows
        over, and the other ends with the row in its hands.
        """
        new = Chat(old.account, chat_id)
        link = self._link(new.account)
        if pause and link is not None:
            link.budget.pause(chat_id, asyncio.get_running_loop().time() + pause)
        if old in self._senders and new not in self._senders:
            sender = self._senders[new] = self._senders.pop(old)
            sender.chat = new
        if highest:
            self._wake(new, highest, None, join=True)

    async def recover(self) -> None:
        """After a start: take up what a crash cut, and the pauses that platforms asked for."""
        now = self._wall()
        cut = await self._store.write(outbox.doubt_unfinished)
        if cut:
            log.warning("%d deliveries were cut by a crash; what became of them is unknown", cut)
        if self._spool.is_used():
            files = await self._store.write(outbox.files)
            await in_thread(self._spool.sweep, files)
        loop = asyncio.get_running_loop()
        for account, chat_id, left in await self._store.write(lambda tx: outbox.pauses(tx, now)):
            link = self._link(account)
            if link is not None:
                link.budget.pause(chat_id or None, loop.time() + left)

    async def stop(self, grace: float) -> None:
        """Send what can be sent within `grace` seconds. The rest stays in the outbox."""
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + grace
        self._closing.set()
        while (self._senders or self._told) and loop.time() < self._deadline:
            waits: set[asyncio.Future[Any]] = {*self._tasks(), *self._told}
            await asyncio.wait(waits, timeout=self._deadline - loop.time())
        self._stopping = True
        if tasks := self._tasks():
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def settled(self) -> None:
        """Wait until nothing is on its way that could be sent now."""
        while self._senders:
            await asyncio.wait(self._tasks())

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {sender.task for sender in self._senders.values() if sender.task is not None}

    def _wake(self, chat: Chat, highest: int, claimed: Row | None, *, join: bool = False) -> None:
        sender = self._senders.get(chat)
        if sender is not None:
            if join:
                sender.join()
            sender.wake(highest, claimed)
            return
        if self._stopping:
            return
        sender = self._senders[chat] = _Sender(chat)
        sender.wake(highest, claimed)
        sender.task = asyncio.get_running_loop().create_task(
            self._run(sender), name=f"send {chat.account} {chat.chat_id}"
        )

    async def _run(self, sender: _Sender) -> None:
        """Send while rows are open. Nothing is awaited between the last look and the
        retirement."""
        row: Row | None = None
        try:
            while sender.highest > sender.seen:
                mark, joins = sender.highest, sender.joins
                row = row or sender.take()
                if row is None:
                    link = self._usable(sender.chat)
                    if link is None:
                        return
                    row = await self._claim(link, sender.chat)
                if row is None:
                    sender.saw(mark, joins)
                    continue
                wakes = sender.wakes
                verdict = await self._attempt(row)
                if isinstance(verdict, Over):
                    seen, row = await self._end(sender, row, verdict, mark)
                    sender.saw(seen, joins)
                    continue
                row = None
                if not await self._again(sender.chat, verdict) and sender.wakes == wakes:
                    return  # the chat did not come back in the meantime
        finally:
            if self._senders.get(sender.chat) is sender:
                del self._senders[sender.chat]

    def _usable(self, chat: Chat) -> Link | None:
        """The account of a chat, if something can be sent by it now."""
        link = self._link(chat.account)
        return link if link is not None and link.connected and not self._stopping else None

    async def _claim(self, link: Link, chat: Chat) -> Row | None:
        """The oldest open row of a chat, its attempt committed, once the platform has room for
        it. None when there is none, or no time left for it."""
        loop = asyncio.get_running_loop()
        while (delay := link.budget.delay(chat.chat_id, loop.time())) > 0:
            if not await self._pause(delay):
                return None
        now = self._wall()
        return await self._store.persist(lambda tx: outbox.claim(tx, chat, now))

    async def _pause(self, seconds: float) -> bool:
        """Wait. False, at once, when the gateway stops before that."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        try:
            async with asyncio.timeout_at(due):
                await self._closing.wait()
        except TimeoutError:
            return True
        if due > self._deadline:
            return False
        await asyncio.sleep(due - loop.time())
        return True

    async def _again(self, chat: Chat, again: Again) -> bool:
        """Put a row back and pause. False when it cannot be sent before the chat is back, or the
        gateway stops."""
        await self._put_back(chat, again)
        if again.pause is None:
            return False
        return again.limit is not None or await self._pause(again.pause)

    async def _attempt(self, row: Row) -> Verdict:
        link = self._link(row.message.address.account_key)
        if link is None:
            return Over("failed", reason="the account is not configured any more")
        link.budget.spend(row.message.address.chat_id, asyncio.get_running_loop().time())
        return await attempt(row, link, self._wall)

    async def _end(
        self, sender: _Sender, row: Row, ended: Over, mark: int
    ) -> tuple[int, Row | None]:
        """Commit the end of a row and, in the same transaction, the attempt of the next one."""
        now = self._wall()
        more = mark > row.sequence and self._has_room(sender.chat)

        def op(tx: Tx) -> Row | None:
            outbox.settle(
                tx,
                row.sequence,
                ended.state,
                now,
                message_id=ended.message_id,
                reason=ended.reason,
            )
            return outbox.claim(tx, sender.chat, now) if more else None

        following = await self._store.persist(op)
        self._report(row, ended)
        if row.message.attachments and ended.state == "delivered":
            await in_thread(self._spool.discard, row.message.attachments)
        if following is not None:
            return following.sequence - 1, following
        return (mark if more else row.sequence), None

    def _has_room(self, chat: Chat) -> bool:
        link = self._usable(chat)
        now = asyncio.get_running_loop().time()
        return link is not None and link.budget.delay(chat.chat_id, now) <= 0

    async def _put_back(self, chat: Chat, again: Again) -> None:
        limit, now = again.limit, self._wall()
        row = again.row
        message = self._moves.message(row.message)
        if message is not row.message:
            row = replace(row, message=message, shown=Shown())
        paused = None
        if limit is not None:
            paused = chat if limit.scope == "chat" else Chat(chat.account, "")
            until = asyncio.get_running_loop().time() + limit.retry_after
            link = self._link(chat.account)
            if link is not None:
                link.budget.pause(paused.chat_id or None, until)

        def op(tx: Tx) -> None:
            outbox.put_back(tx, row)
            if paused is not None and limit is not None:
                outbox.pause(tx, paused, limit.retry_after, now)

        await self._store.persist(op)
        if (now_at := self._chat(message.address)) != chat:
            self._wake(now_at, row.sequence, None, join=True)

    def _report(self, row: Row, ended: Over) -> None:
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
