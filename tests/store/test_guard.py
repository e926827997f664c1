"""A file that is removed, replaced or damaged under the gateway: seen before anything is lost."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from hermes_core.errors import StoreError
from hermes_core.store import Tx
from hermes_core.store.database import connection_of
from tests.store.support import keys, keys_in, opened, put, run

PAGE = 4096


def fill(tx: Tx) -> None:
    """More rows than SQLite keeps in memory."""
    rows = (("big", f"{number:06}", bytes(1000)) for number in range(20_000))
    tx.executemany("INSERT INTO kv VALUES (?, ?, ?)", rows)


def read_all(tx: Tx) -> int:
    return len(tx.execute("SELECT value FROM kv NOT INDEXED").fetchall())


@pytest.mark.case("DB-03")
def test_a_removed_log_is_made_again_with_all_that_was_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state.db"

    async def scenario() -> None:
        async with opened(path) as store:
            await store.write(put("before"))
            assert await keys(store) == ["before"]
            path.with_name("state.db-wal").unlink()
            await store.write(put("after"))
            assert keys_in(path) == ["before", "after"], "another process sees both"
            assert await keys(store) == ["before", "after"]
            assert store.trouble == ""

    with caplog.at_level(logging.ERROR):
        run(scenario())
    assert "somebody removed the state database's write-ahead log" in caplog.text
    assert keys_in(path) == ["before", "after"]


@pytest.mark.case("DB-03")
@pytest.mark.parametrize("remove", [False, True])
def test_a_replaced_file_takes_no_more_writes_and_its_content_is_kept(
    tmp_path: Path, remove: bool
) -> None:
    path = tmp_path / "state.db"

    async def scenario() -> None:
        async with opened(path) as store:
            await store.write(put("before"))
            if remove:
                path.unlink()
            else:
                other = tmp_path / "other"
                other.write_bytes(b"something else")
                other.replace(path)
            for _ in range(2):
                with pytest.raises(StoreError, match="removed or replaced") as refused:
                    await store.write(put("lost"))
                assert refused.value.remedy
            assert "removed or replaced" in store.trouble

    run(scenario())
    assert not path.exists() if remove else path.read_bytes() == b"something else"
    (copy,) = tmp_path.glob("state.db.rescued-*")
    assert copy.stat().st_mode & 0o777 == 0o600
    assert keys_in(copy) == ["before"]


@pytest.mark.case("DB-03")
def test_a_log_that_another_program_made_anew_takes_no_more_writes(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def scenario() -> None:
        async with opened(path) as store:
            await store.write(put("before"))
            path.with_name("state.db-wal").rename(tmp_path / "away")
            path.with_name("state.db-wal").touch()
            with pytest.raises(StoreError, match="write-ahead log was replaced"):
                await store.write(put("lost"))

    run(scenario())
    (copy,) = tmp_path.glob("state.db.rescued-*")
    assert keys_in(copy) == ["before"]


@pytest.mark.case("DB-10")
@pytest.mark.parametrize("read", [False, True])
def test_a_page_that_is_damaged_while_the_file_is_open_ends_all_writing(
    tmp_path: Path, read: bool
) -> None:
    path = tmp_path / "state.db"

    async def scenario() -> bytes:
        async with opened(path) as store:
            await store.write(put("before"))
            await store.write(fill)
            await store.write(lambda tx: None)
            with closing(sqlite3.connect(path)) as stranger:
                stranger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            with path.open("r+b") as file:
                for page in range(500, 1500):
                    file.seek(page * PAGE)
                    file.write(b"\x55" * PAGE)
            work = (
                store.read(lambda database: read_all(connection_of(database)))
                if read
                else store.write(read_all)
            )
            with pytest.raises(StoreError, match="cannot use the state database"):
                await work
            with pytest.raises(StoreError, match="is damaged") as refused:
                await store.write(put("after"))
            assert refused.value.remedy
            assert "damaged" in store.trouble
            return path.read_bytes()

    assert run(scenario()) == path.read_bytes()
