"""The floor: bare asyncio lanes and raw sqlite3, the same rows in grouped transactions, and nothing
else.

No plugins, no gate, no types, no hooks, no errors handled. What a pipeline costs above it is what
it does.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE inbox (sequence INTEGER PRIMARY KEY, chat TEXT, event TEXT, payload TEXT, state TEXT,
turn TEXT,
    UNIQUE (chat, event));
CREATE TABLE session (id TEXT PRIMARY KEY, active REAL);
CREATE TABLE turn (id TEXT PRIMARY KEY, session TEXT, state TEXT);
CREATE TABLE message (id INTEGER PRIMARY KEY, session TEXT, turn TEXT, role TEXT, text TEXT);
CREATE TABLE outbox (sequence INTEGER PRIMARY KEY, id TEXT, chat TEXT, payload TEXT, state TEXT);
"""

Statement = tuple[str, tuple[Any, ...]]


class Floor:
    """The driver."""

    on_start: Callable[[str, str], Awaitable[None]]
    on_reply: Callable[[str], None]

    def __init__(self, durability: str = "full") -> None:
        self._durability = durability
        self._ids = itertools.count()
        self._lanes: dict[str, deque[tuple[str, str]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: deque[tuple[list[Statement], asyncio.Future[None]]] = deque()
        self._changed = threading.Condition()
        self._closed = False

    async def start(self, directory: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._write, args=(directory / "floor.db",))
        self._thread.start()

    async def inject(self, session: str, text: str) -> None:
        event = str(next(self._ids))
        payload = json.dumps({"chat": session, "sender": session, "event": event, "text": text})
        await self._commit(
            (
                "INSERT INTO inbox (chat, event, payload, state) VALUES (?, ?, ?, 'waiting')",
                (session, event, payload),
            ),
        )
        lane = self._lanes.get(session)
        if lane is not None:
            lane.append((event, text))
            return
        self._lanes[session] = deque([(event, text)])
        task = asyncio.create_task(self._drain(session))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    async def _drain(self, session: str) -> None:
        lane = self._lanes[session]
        while lane:
            await self._turn(session, *lane.popleft())
        del self._lanes[session]

    async def _turn(self, session: str, event: str, text: str) -> None:
        turn = f"t{next(self._ids)}"
        await self._commit(
            ("SELECT sequence, payload FROM inbox WHERE chat = ? AND event = ?", (session, event)),
            ("INSERT INTO turn (id, session, state) VALUES (?, ?, 'running')", (turn, session)),
            (
                "UPDATE inbox SET state = 'running', turn = ? WHERE chat = ? AND event = ?",
                (turn, session, event),
            ),
        )
        await self.on_start(session, text)
        outbound = f"o{next(self._ids)}"
        payload = json.dumps({"id": outbound, "chat": session, "text": text})
        line = "INSERT INTO message (session, turn, role, text) VALUES (?, ?, ?, ?)"
        await self._commit(
            ("UPDATE turn SET state = 'answered' WHERE id = ?", (turn,)),
            (line, (session, turn, "user", text)),
            (line, (session, turn, "assistant", text)),
            ("UPDATE inbox SET state = 'done' WHERE chat = ? AND event = ?", (session, event)),
            (
                "INSERT INTO session (id, active) VALUES (?, 0)"
                " ON CONFLICT (id) DO UPDATE SET active = 1",
                (session,),
            ),
            (
                "INSERT INTO outbox (id, chat, payload, state) VALUES (?, ?, ?, 'attempting')",
                (outbound, session, payload),
            ),
        )
        self.on_reply(session)
        await self._commit(
            ("UPDATE outbox SET state = 'delivered' WHERE id = ?", (outbound,)),
        )

    def _commit(self, *statements: Statement) -> asyncio.Future[None]:
        done: asyncio.Future[None] = self._loop.create_future()
        with self._changed:
            self._waiting.append((list(statements), done))
            self._changed.notify()
        return done

    def _write(self, path: Path) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self._durability.upper()}")
        connection.executescript(SCHEMA)
        connection.execute("CREATE INDEX outbox_id ON outbox (id)")
        while batch := self._take():
            connection.execute("BEGIN IMMEDIATE")
            for statements, _ in batch:
                for sql, parameters in statements:
                    connection.execute(sql, parameters)
            connection.execute("COMMIT")
            self._loop.call_soon_threadsafe(_resolve, [done for _, done in batch])
        connection.close()

    def _take(self) -> list[tuple[list[Statement], asyncio.Future[None]]]:
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            return [self._waiting.popleft() for _ in range(len(self._waiting))]


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
