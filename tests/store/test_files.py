"""Which files are opened, which are refused, and what is left behind in either case."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from hermes_core.errors import ForeignDatabase, NewerSchema, StoreError, StoreFault
from hermes_core.store import Store, migrations, open_read_only
from hermes_core.store.database import connection_of
from hermes_core.store.migrations import APPLICATION_ID, STEPS
from tests.store.support import keys, keys_in, opened, put, run

ROOT = Path(__file__).parents[2]


async def _touch(path: Path) -> None:
    async with opened(path) as store:
        await store.write(put("here"))


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.execute("INSERT INTO theirs VALUES (1)")
        connection.commit()


def foreign_with_its_own_id(path: Path) -> None:
    foreign(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 1234")


def foreign_in_wal_mode(path: Path) -> None:
    foreign(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def garbage(path: Path) -> None:
    path.write_bytes(b"this is no database\n" * 500)


def short_garbage(path: Path) -> None:
    path.write_bytes(b"\0")


def directory(path: Path) -> None:
    path.mkdir()


def dangling_link(path: Path) -> None:
    path.symlink_to("nowhere/state.db")


def newer(path: Path) -> None:
    run(_touch(path))
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {len(STEPS) + 1}")


def truncated(path: Path) -> None:
    run(_touch(path))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2 + 100)


def fingerprint(directory: Path) -> dict[str, tuple[int, str]]:
    """Every file with its mode and the hash of its content."""
    return {
        str(path.relative_to(directory)): (
            path.lstat().st_mode,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in directory.rglob("*")
    }


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (foreign, ForeignDatabase),
        (foreign_with_its_own_id, ForeignDatabase),
        (foreign_in_wal_mode, ForeignDatabase),
        (garbage, ForeignDatabase),
        (short_garbage, ForeignDatabase),
        (directory, StoreError),
        (dangling_link, StoreError),
        (newer, NewerSchema),
        (truncated, StoreError),
    ],
)
@pytest.mark.case("DB-17")
@pytest.mark.case("DB-10")
def test_what_is_not_ours_is_refused_and_stays_as_it_is(
    tmp_path: Path, make: Callable[[Path], None], error: type[StoreError]
) -> None:
    path = tmp_path / "state.db"
    make(path)
    before = fingerprint(tmp_path)
    for _ in range(2):
        with pytest.raises(error) as refused:
            run(_touch(path))
        assert str(path) in str(refused.value)
        assert refused.value.remedy
        assert fingerprint(tmp_path) == before


def test_an_empty_file_is_what_a_crash_left_of_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.touch(0o600)
    run(_touch(path))
    assert keys_in(path) == ["here"]


@pytest.mark.parametrize("steps", range(len(STEPS)))
def test_an_earlier_schema_is_brought_forward(tmp_path: Path, steps: int) -> None:
    path = tmp_path / "state.db"
    path.touch(0o600)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        for step in STEPS[:steps]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {steps}")
    run(_touch(path))
    assert keys_in(path) == ["here"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (len(STEPS),)


def test_a_migration_keeps_a_copy_of_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, copy = tmp_path / "state.db", tmp_path / f"state.db.schema-{len(STEPS)}.bak"
    run(_touch(path))
    monkeypatch.setattr(migrations, "STEPS", (*STEPS, ("CREATE TABLE added (x)",)))
    run(_touch_again(path))
    assert keys_in(path) == ["here", "again"]
    assert keys_in(copy) == ["here"]
    assert copy.stat().st_mode & 0o777 == 0o600


def test_a_migration_that_fails_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.db"
    run(_touch(path))
    monkeypatch.setattr(migrations, "STEPS", (*STEPS, ("CREATE TABLE added (x)", "nonsense")))
    with pytest.raises(StoreFault):
        run(_touch_again(path))
    monkeypatch.undo()
    run(_touch_again(path))
    assert keys_in(path) == ["here", "again"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA table_info(added)").fetchall() == []


async def _touch_again(path: Path) -> None:
    async with opened(path) as store:
        await store.write(put("again"))


def test_the_file_is_marked_as_ours_and_readable_by_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def scenario() -> None:
        async with opened(path) as store:
            await store.write(put("a"))
            assert {mode & 0o777 for mode, _ in fingerprint(tmp_path).values()} == {0o600}
            assert names_in(tmp_path) == ["state.db", "state.db-shm", "state.db-wal"]

    old = os.umask(0)
    try:
        run(scenario())
    finally:
        os.umask(old)
    # The SQLite file format has the application id at offset 68.
    assert path.read_bytes()[68:72] == b"HGW1" == APPLICATION_ID.to_bytes(4, "big")


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("normal", 1)])
def test_the_promise_rests_on_a_log_that_is_written_through(
    tmp_path: Path, durability: str, level: int
) -> None:
    async def scenario() -> None:
        store = Store(tmp_path / "state.db", durability)  # type: ignore[arg-type]
        await store.open()
        mode = await store.write(lambda tx: tx.execute("PRAGMA journal_mode").fetchone())
        assert mode == ("wal",)
        found = await store.write(lambda tx: tx.execute("PRAGMA synchronous").fetchone())
        assert found == (level,)
        await store.close()

    run(scenario())


def test_a_file_that_was_removed_is_not_made_again_by_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    async def scenario() -> None:
        async with opened(path) as store:
            for name in names_in(tmp_path):
                (tmp_path / name).unlink()
            with pytest.raises(StoreError):
                await keys(store)
            assert not path.exists()

    run(scenario())


READ = """
import json, sys
from pathlib import Path
from hermes_core.errors import StoreError
from hermes_core.store import open_read_only

try:
    database = open_read_only(Path(sys.argv[1]))
except StoreError as error:
    print(json.dumps([type(error).__name__]))
else:
    print(json.dumps([key for (key,) in database.execute_sql("SELECT key FROM kv ORDER BY rowid")]))
    database.close()
"""

WRITE_AND_HOLD = """
import asyncio, os, sys
from pathlib import Path
from tests.store.support import opened, put

async def main(path):
    async with opened(path) as store:
        for key in ("a", "b"):
            await store.write(put(key))
        print(os.getpid(), flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main(Path(sys.argv[1])))
"""


def elsewhere(script: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def read_elsewhere(path: Path) -> list[str]:
    out, _ = elsewhere(READ, path).communicate()
    found: list[str] = json.loads(out)
    return found


def test_another_process_reads_without_making_anything(tmp_path: Path) -> None:
    path = tmp_path / "home" / "state.db"
    assert read_elsewhere(path) == ["StoreError"]
    assert not path.parent.exists()
    path.parent.mkdir()

    writer = elsewhere(WRITE_AND_HOLD, path)
    assert writer.stdout is not None
    writer.stdout.readline()
    names = names_in(path.parent)
    assert read_elsewhere(path) == ["a", "b"]
    assert names_in(path.parent) == names

    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    crashed = names_in(path.parent)
    assert read_elsewhere(path) == ["a", "b"]
    assert names_in(path.parent) == crashed

    run(_touch(path))
    closed = fingerprint(path.parent)
    assert read_elsewhere(path) == ["a", "b", "here"]
    assert fingerprint(path.parent) == closed


@pytest.mark.parametrize(("make", "error"), [(foreign, ForeignDatabase), (newer, NewerSchema)])
def test_reading_refuses_what_opening_would_refuse(
    tmp_path: Path, make: Callable[[Path], None], error: type[StoreError]
) -> None:
    path = tmp_path / "state.db"
    make(path)
    before = fingerprint(tmp_path)
    with pytest.raises(error):
        open_read_only(path)
    assert fingerprint(tmp_path) == before


def test_nothing_can_be_written_through_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    run(_touch(path))
    database = open_read_only(path)
    with pytest.raises(sqlite3.OperationalError):
        connection_of(database).execute("DELETE FROM kv")
    database.close()
    assert keys_in(path) == ["here"]
