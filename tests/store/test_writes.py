"""Group commit: one order, one transaction, and nobody harmed by a neighbour."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.errors import PluginError, StoreError, StoreFault
from hermes_core.store import Tx
from tests.core.support import HASTY, until
from tests.core.support import run as speedily
from tests.store.support import keys, keys_in, one_batch, opened, put, run


def raising(error: BaseException) -> Callable[[Tx], None]:
    """An operation that writes something and then fails."""

    def op(tx: Tx) -> None:
        tx.execute("INSERT INTO kv (owner, key, value) VALUES ('test', 'half', x'')")
        raise error

    return op


@given(st.lists(st.booleans(), max_size=12), st.integers(0, 12))
@settings(max_examples=40)
def test_the_order_of_calls_is_the_order_of_commits_of_callbacks_and_of_results(
    works: list[bool], batched: int
) -> None:
    async def scenario(path: Path) -> None:
        told: list[str] = []
        async with opened(path / "state.db") as store:
            async with one_batch(store):
                writes = [
                    store.write(put(str(n)) if good else raising(ValueError(n)), told.append)
                    for n, good in enumerate(works[:batched])
                ]
            writes += [
                store.write(put(str(n)) if good else raising(ValueError(n)), told.append)
                for n, good in enumerate(works[batched:], start=batched)
            ]
            ended = await asyncio.gather(*writes, return_exceptions=True)
            stored = await keys(store)
        expected = [str(n) for n, good in enumerate(works) if good]
        assert stored == told == expected == keys_in(path / "state.db")
        for n, (good, end) in enumerate(zip(works, ended, strict=True)):
            assert end == str(n) if good else (isinstance(end, ValueError) and end.args == (n,))

    with tempfile.TemporaryDirectory() as directory:
        run(scenario(Path(directory)))


@pytest.mark.parametrize(
    "bad",
    [
        raising(ValueError("half done")),
        raising(sqlite3.IntegrityError("half done")),
        put("first"),
        lambda tx: tx.execute("SELECT * FROM nowhere"),
        lambda tx: tx.execute("INSERT INTO kv VALUES ('test', '\ud83d', x'')"),
    ],
    ids=["error", "sqlite error", "conflict", "bad statement", "bad text"],
)
def test_a_failing_operation_leaves_no_trace_and_harms_no_batch_mate(
    tmp_path: Path, bad: Callable[[Tx], Any]
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "state.db") as store:
            async with one_batch(store):
                before, failing, after = (
                    store.write(put("first")),
                    store.write(bad),
                    store.write(put("second")),
                )
            assert (await before, await after) == ("first", "second")
            with pytest.raises((StoreFault, ValueError)):
                await failing
            assert await keys(store) == ["first", "second"]

    run(scenario())


def test_a_commit_is_told_even_when_nobody_waits_for_it_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        told: list[str] = []
        async with opened(tmp_path / "state.db") as store:

            async def wait_for(key: str) -> None:
                await store.write(put(key), told.append)

            async with one_batch(store):
                tasks = [asyncio.create_task(wait_for(key)) for key in "abc"]
                await asyncio.sleep(0)
                tasks[1].cancel()
                await asyncio.sleep(0)
            await asyncio.gather(*tasks, return_exceptions=True)
            assert tasks[1].cancelled()
            assert told == await keys(store) == ["a", "b", "c"]

    run(scenario())


def test_a_callback_that_raises_keeps_nobody_waiting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(key: str) -> None:
        raise RuntimeError(key)

    async def scenario() -> None:
        told: list[str] = []
        async with opened(tmp_path / "state.db") as store:
            async with one_batch(store):
                writes = [store.write(put("a"), broken), store.write(put("b"), told.append)]
            assert await asyncio.gather(*writes) == ["a", "b"]
            assert told == ["b"]

    run(scenario())
    assert "RuntimeError: a" in caplog.text


def test_a_full_database_fails_the_whole_batch_and_nothing_else(tmp_path: Path) -> None:
    def fill(tx: Tx) -> None:
        # SQLite itself says "database or disk is full", and drops the transaction.
        (pages,) = tx.execute("PRAGMA page_count").fetchone()
        tx.execute(f"PRAGMA max_page_count = {pages}")
        tx.execute("INSERT INTO kv VALUES ('test', 'big', randomblob(1000000))")

    async def scenario() -> None:
        told: list[str] = []
        async with opened(tmp_path / "state.db") as store:
            await store.write(put("earlier"))
            async with one_batch(store):
                writes = [
                    store.write(put("before"), told.append),
                    store.write(fill),
                    store.write(put("after"), told.append),
                ]
            ended = await asyncio.gather(*writes, return_exceptions=True)
            assert [type(end) for end in ended] == [StoreError] * 3
            assert "full" in str(ended[0])
            assert told == []
            await store.write(lambda tx: tx.execute("PRAGMA max_page_count = 1000000"))
            await store.write(put("later"))
            assert await keys(store) == ["earlier", "later"]

    run(scenario())
    assert keys_in(tmp_path / "state.db") == ["earlier", "later"]


FULL_DISK = """
import asyncio, json, resource, sys
from pathlib import Path
from hermes_core.errors import StoreError
from hermes_core.store import Store
from tests.store.support import one_batch, put

async def main(path, big):
    store = Store(path)
    await store.open()
    await store.write(put("earlier"))
    wal = path.with_name("state.db-wal").stat().st_size
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal + 8192, hard))
    told = []
    async with one_batch(store):
        writes = [
            store.write(put("before"), told.append),
            store.write(put("big", b"x" * big), told.append),
            store.write(put("after"), told.append),
        ]
    ended = await asyncio.gather(*writes, return_exceptions=True)
    await store.look_again()
    troubles = [store.trouble != ""]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    troubles.append(store.trouble != "")
    await store.look_again()
    troubles.append(store.trouble != "")
    kept = store.persist(put("later"))
    print(json.dumps([[type(end).__name__ for end in ended], told, troubles, await kept]))
    await store.close()

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
"""


@pytest.mark.parametrize("big", [100_000, 20_000_000], ids=["in the commit", "before the commit"])
def test_a_full_disk_fails_the_whole_batch_and_the_database_opens_afterwards(
    tmp_path: Path, big: int
) -> None:
    path = tmp_path / "state.db"
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, path, str(big)],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert json.loads(done.stdout) == [["StoreError"] * 3, [], [True, True, False], "later"]

    async def reopen() -> list[str]:
        async with opened(path) as store:
            return await keys(store)

    assert run(reopen()) == ["earlier", "later"]


def no_more_pages(tx: Tx) -> None:
    (pages,) = tx.execute("PRAGMA page_count").fetchone()
    tx.execute(f"PRAGMA max_page_count = {pages}")


def enough_pages(tx: Tx) -> None:
    tx.execute("PRAGMA max_page_count = 1000000")


def test_what_has_to_be_stored_is_tried_until_it_is_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hermes_core.store")
    attempts: list[str] = []

    def big(key: str) -> Callable[[Tx], str]:
        def op(tx: Tx) -> str:
            attempts.append(key)
            return str(put(key, bytes(100_000))(tx))

        return op

    async def scenario() -> None:
        told: list[str] = []
        async with opened(tmp_path / "state.db") as store:
            await store.write(no_more_pages)
            kept = [asyncio.create_task(store.persist(big(key), told.append)) for key in "abc"]
            await until(lambda: len(attempts) > 9)
            await store.write(lambda tx: tx.execute("SELECT 1"))
            assert "disk is full" in store.trouble
            await store.write(enough_pages)
            assert await asyncio.gather(*kept) == ["a", "b", "c"]
            assert sorted(told) == sorted(await keys(store)) == ["a", "b", "c"]
            assert store.trouble == ""

    speedily(scenario(), speed=HASTY)
    begun, over = caplog.records
    assert "disk is full" in begun.getMessage()
    assert "can be written again, after" in over.getMessage()
    assert not any(record.exc_info for record in caplog.records)


def test_a_small_change_that_finds_room_is_not_the_end_of_an_outage(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "state.db") as store:
            await store.write(no_more_pages)
            with pytest.raises(StoreError, match="full"):
                await store.write(put("lost", bytes(100_000)))
            await store.write(put("small"))
            assert "full" in store.trouble
            await store.write(enough_pages)
            assert store.trouble == ""
            assert await keys(store) == ["small"]

    run(scenario())


@pytest.mark.parametrize(
    "wrong",
    [
        put("taken"),
        lambda tx: tx.execute("SELECT * FROM nowhere"),
        lambda tx: tx.execute("SELECT ?", ()),
        lambda tx: tx.execute("COMMIT"),
        lambda tx: tx.execute("COMMIT").nonsense,
    ],
    ids=["constraint", "no such table", "parameters", "commit", "commit and an error"],
)
def test_an_operation_that_is_wrong_is_not_tried_again(
    tmp_path: Path, wrong: Callable[[Tx], Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "state.db") as store:
            await store.write(put("taken"))
            with pytest.raises(StoreFault):
                await store.persist(wrong)
            assert store.trouble == ""
            assert await store.write(put("next")) == "next"

    run(scenario())
    assert caplog.records == []


def test_nothing_is_taken_after_the_end_and_everything_before_it_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def scenario() -> None:
        async with opened(path) as store:
            writes = [store.write(put(str(n))) for n in range(2000)]
            await store.close()
            assert all(write.done() for write in writes)
            with pytest.raises(StoreError):
                await store.persist(put("too late"))

    run(scenario())
    assert keys_in(path) == [str(n) for n in range(2000)]


def test_closing_leaves_no_file_open_and_no_log_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "state.db") as store:
            await store.write(put("a"))
            await asyncio.gather(*(keys(store) for _ in range(8)))
            # Anybody may do that: it must not keep the store from closing.
            await asyncio.get_running_loop().shutdown_default_executor()

    run(scenario())
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.db"]
    if (descriptors := Path("/proc/self/fd")).exists():
        targets = [entry.readlink() for entry in descriptors.iterdir() if entry.is_symlink()]
        assert not [target for target in targets if target.is_relative_to(tmp_path)]


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3), KeyboardInterrupt()])
def test_an_operation_that_raises_what_no_future_takes_harms_nobody(
    tmp_path: Path, error: BaseException
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "state.db") as store:
            async with one_batch(store):
                bad, good = store.write(raising(error)), store.write(put("good"))
            assert await good == "good"
            with pytest.raises(PluginError, match=type(error).__name__):
                await bad
            assert await store.write(put("next")) == "next"
            assert await keys(store) == ["good", "next"]

    run(scenario())


def test_a_read_after_the_end_is_refused_like_a_write(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "state.db") as store:
            pass
        with pytest.raises(StoreError, match="closed"):
            await keys(store)

    run(scenario())
