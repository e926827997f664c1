"""The file between processes: locks that hold, locks of others, ids that differ."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_core.ids import new_id
from tests.store.support import keys, keys_in, opened, put, run

ROOT = Path(__file__).parents[2]
LOCKS = Path("/proc/locks")

STRANGER = """
import sqlite3, sys

connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=10)
for line in sys.stdin:
    connection.execute(line)
    print("done", flush=True)
connection.close()
"""

SERVE = """
import asyncio, os, sys
from pathlib import Path
from tests.store.support import keys, opened, put

async def main(path):
    async with opened(path) as store:
        print(os.getpid(), flush=True)
        while key := (await asyncio.to_thread(sys.stdin.readline)).strip():
            await store.write(put(key))
            print(*await keys(store), flush=True)

asyncio.run(main(Path(sys.argv[1])))
"""


class Process:
    """A script that answers each line it is given with one line."""

    def __init__(self, script: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        assert self._process.returncode == 0

    def say(self, line: str) -> str:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)
        return self.hear()

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


class Heard(logging.Handler):
    """Counts the records of the store, and wakes whoever waits for one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self.messages: list[str] = []
        self.changed = asyncio.Event()
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        self._loop.call_soon_threadsafe(self.changed.set)


@pytest.mark.case("DB-06")
def test_while_another_process_holds_the_lock_writes_wait_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"

    async def scenario() -> list[str]:
        heard = Heard(asyncio.get_running_loop())
        log = logging.getLogger("hermes_core.store")
        async with opened(path) as store:
            await store.write(put("before"))
            with Process(STRANGER, path) as stranger:
                await asyncio.to_thread(stranger.say, "BEGIN IMMEDIATE")
                log.addHandler(heard)
                log.setLevel(logging.INFO)
                writes = [store.write(put(str(n))) for n in range(50)]
                await heard.changed.wait()  # the patience of SQLite itself has ended
                async with asyncio.timeout(1.0):
                    assert await keys(store) == ["before"]
                assert not any(write.done() for write in writes)
                await asyncio.to_thread(stranger.say, "COMMIT")
                await asyncio.gather(*writes)
                log.removeHandler(heard)
                log.setLevel(logging.NOTSET)
            return heard.messages

    messages = run(scenario())
    assert keys_in(path) == ["before", *map(str, range(50))]
    assert len(messages) == 2  # one episode: when it began, and when it was over


def _locked_inodes(pid: int) -> set[int]:
    """The inodes on which a process holds POSIX locks."""
    rows = [line.split() for line in LOCKS.read_text().splitlines()]
    return {int(row[5].split(":")[2]) for row in rows if row[1] == "POSIX" and row[4] == str(pid)}


@pytest.mark.case("DB-01")
@pytest.mark.skipif(not LOCKS.exists(), reason="needs /proc/locks")
def test_a_stranger_that_writes_and_leaves_takes_no_acknowledged_write_with_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state.db"
    log = path.with_name("state.db-wal")
    with Process(SERVE, path) as gateway:
        pid = int(gateway.hear())
        assert gateway.say("first") == "first"
        held = {path.stat().st_ino, path.with_name("state.db-shm").stat().st_ino}
        inode = log.stat().st_ino
        assert held <= _locked_inodes(pid)
        with Process(STRANGER, path) as stranger:
            stranger.say("INSERT INTO kv VALUES ('test', 'theirs', x'')")
        assert held <= _locked_inodes(pid)
        assert log.stat().st_ino == inode
        assert gateway.say("second") == "first theirs second"
        assert held <= _locked_inodes(pid)
        assert keys_in(path) == ["first", "theirs", "second"]
    assert keys_in(path) == ["first", "theirs", "second"]
    assert not log.exists()


@pytest.mark.case("DB-12")
def test_ids_made_at_once_in_two_processes_differ() -> None:
    make = "from hermes_core.ids import new_id; print(*(new_id('s') for _ in range(500)))"
    made = [
        subprocess.run(
            [sys.executable, "-c", make], check=True, capture_output=True, text=True, cwd=ROOT
        ).stdout.split()
        for _ in range(2)
    ]
    assert len({*made[0], *made[1]}) == 1000
    assert all(name.startswith("s_") for name in made[0])


def test_ids_made_at_once_in_many_threads_differ() -> None:
    found: list[str] = []

    def make(extend: Callable[[list[str]], None]) -> None:
        extend([new_id("t") for _ in range(2000)])

    threads = [threading.Thread(target=make, args=(found.extend,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == len(found) == 16_000
