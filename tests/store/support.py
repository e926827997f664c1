"""Small things that the store's tests share."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, TypeVar

from hermes_core.store import Store, Tx
from hermes_core.store.database import connection_of

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], *, limit: float = 30.0) -> T:
    """Run what a test does on an event loop; what hangs fails instead."""

    async def limited() -> T:
        async with asyncio.timeout(limit):
            return await work

    return asyncio.run(limited())


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Store]:
    store = Store(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def one_batch(store: Store) -> AsyncIterator[None]:
    """Whatever is submitted inside is committed in one transaction, when the context is left."""
    loop = asyncio.get_running_loop()
    begun, go = asyncio.Event(), threading.Event()

    def hold(tx: Tx) -> None:
        loop.call_soon_threadsafe(begun.set)
        go.wait()

    held = store.write(hold)
    await begun.wait()
    try:
        yield
    finally:
        go.set()
        await held


def put(key: str, value: bytes = b"") -> Any:
    """An operation that stores one row, and fails when the key is taken."""

    def op(tx: Tx) -> str:
        tx.execute("INSERT INTO kv (owner, key, value) VALUES ('test', ?, ?)", (key, value))
        return key

    return op


async def keys(store: Store) -> list[str]:
    """What is committed, in the order in which it was stored."""
    return await store.read(
        lambda database: [
            str(key)
            for (key,) in connection_of(database).execute("SELECT key FROM kv ORDER BY rowid")
        ]
    )


def keys_in(path: Path) -> list[str]:
    """The same, from the file of a store that is closed."""
    with closing(sqlite3.connect(path)) as connection:
        return [str(key) for (key,) in connection.execute("SELECT key FROM kv ORDER BY rowid")]
