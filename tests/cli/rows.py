"""A state database with the rows that a gateway leaves behind, made by the gateway's own
operations."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from hermes_core.ids import new_id
from hermes_core.messages import Address, Message, Outbound, Sender, encode
from hermes_core.store import Tx, inbox, outbox, sessions, turns
from hermes_core.store.database import connection_of, open_writer

T = TypeVar("T")
KEY = "agent:main:demo:dm:{chat}"


class Rows:
    """Writes rows. Times are seconds; an event of the chat `c` belongs to the session of `c`."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    def write(self, op: Callable[[Tx], T]) -> T:
        self._tx.execute("BEGIN IMMEDIATE")
        result = op(self._tx)
        self._tx.execute("COMMIT")
        return result

    def arrive(
        self,
        text: str,
        *,
        event: str,
        chat: str = "c1",
        account: str = "demo",
        at: float = 100.0,
        ended: str = "",
        message: str = "",
    ) -> int:
        """Accept a message. Its sequence."""
        address = Address(platform=account, chat_id=chat)
        said = Message(address=address, sender=Sender(id="u1"), event_id=event, text=text)
        arrival = inbox.Arrival(
            account=account,
            chat_id=chat,
            event_id=event,
            message_id=message or event,
            sender_id="u1",
            type="message",
            session_key=KEY.format(chat=chat),
            payload=encode(said),
            received_at=at,
            max_waiting=1000,
            ended=ended,
        )
        return self.write(lambda tx: inbox.insert(tx, arrival)).sequence

    def take(self, chat: str = "c1", *, at: float = 101.0, coalesce: bool = False) -> turns.Taken:
        """Begin a turn for what waits."""
        key = KEY.format(chat=chat)
        taken = self.write(lambda tx: turns.take(tx, key, at, coalesce=coalesce))
        assert isinstance(taken, turns.Taken)
        return taken

    def answer(
        self,
        taken: turns.Taken,
        *texts: str,
        at: float = 102.0,
        state: turns.TurnState = "answered",
        reason: str = "",
    ) -> list[str]:
        """End a turn with an answer in so many parts. Their ids."""
        chat = taken.session_key.rpartition(":")[2]
        events = tuple(row.event_id for row in taken.rows)
        parts = [
            Outbound(
                id=new_id("o"),
                created_at=at,
                address=Address(platform="demo", chat_id=chat),
                text=text,
                answers=events,
                part=number,
                parts=len(texts),
            )
            for number, text in enumerate(texts, start=1)
        ]
        rows = [
            outbox.NewRow(part, taken.session_key, taken.turn_id, at + 86_400) for part in parts
        ]
        lines = [sessions.Line("assistant", "".join(texts))] if texts else []
        ending = turns.Ending(state, reason, at, lines, rows, claim_first=False)
        self.write(lambda tx: turns.finish(tx, taken, ending))
        return [part.id for part in parts]

    def settle(
        self,
        part: str,
        state: outbox.Ended,
        *,
        message: str = "",
        reason: str = "",
        at: float = 103.0,
    ) -> None:
        """Attempt a part and end it."""

        def op(tx: Tx) -> None:
            (sequence,) = tx.execute("SELECT sequence FROM outbox WHERE id = ?", (part,)).fetchone()
            tx.execute("UPDATE outbox SET attempts = 1 WHERE sequence = ?", (sequence,))
            outbox.settle(tx, sequence, state, at, message_id=message, reason=reason)

        self.write(op)

    def crash(self, *, at: float = 110.0) -> None:
        """What a gateway writes at its start after a crash."""
        self.write(lambda tx: turns.interrupt(tx, at, "the gateway crashed"))

    def dead(self, *, event: str = "e1", text: str = "the last straw") -> int:
        """A message that was given to the agent twice and given up. Its sequence."""
        sequence = self.arrive(text, event=event)
        for attempt in (1, 2):
            self.take(at=100.0 + attempt)
            self.crash(at=110.0 + attempt)
        return sequence


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run what a test does on an event loop; what hangs fails instead."""

    async def limited() -> T:
        async with asyncio.timeout(30.0):
            return await work

    return asyncio.run(limited())


@contextmanager
def rows_in(database: Path) -> Iterator[Rows]:
    """The rows of the database at this path, which is made."""
    database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    opened = open_writer(database)
    try:
        yield Rows(connection_of(opened))
    finally:
        opened.close()
