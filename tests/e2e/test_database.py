"""What other people do to the state database of a gateway that runs, or before it starts."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import threading
import time
from contextlib import closing

import pytest

from hermes_core.errors import HermesError
from tests.e2e.stage import HERMES, Stage, until

TALK = [f"message {number}" for number in range(10)]


def stored(stage: Stage) -> list[str]:
    """What people said, as `hermes sessions` shows it."""
    shown = stage.hermes("sessions", "show", "--json")
    assert shown.returncode == 0, shown.stderr
    transcript = json.loads(shown.stdout)["transcript"]
    return [line["text"] for line in transcript if line["role"] == "user"]


@pytest.mark.case("DB-03")
def test_a_log_that_is_deleted_costs_nothing_that_was_answered(stage: Stage) -> None:
    gateway = stage.run().ready()
    stage.say_all(TALK[:5])
    stage.answered(*TALK[:5])
    (stage.home / "state.db-wal").unlink()
    stage.say_all(TALK[5:])
    stage.answered(*TALK)
    assert "write-ahead log" in stage.hermes("status").stdout
    gateway.kill()
    assert stored(stage) == TALK
    assert stage.run().ready().stop() == 0
    assert stored(stage) == TALK
    assert stage.answers() == TALK


@pytest.mark.case("DB-03")
def test_a_replaced_file_is_not_written_and_nothing_more_is_taken_in(stage: Stage) -> None:
    gateway = stage.run().ready()
    stage.say("before")
    stage.answered("before")
    other = stage.path / "other"
    other.write_bytes(b"x" * 8192)
    other.replace(stage.home / "state.db")
    with pytest.raises((HermesError, AssertionError)):
        stage.say("after")
    assert "removed or replaced" in stage.profile()["trouble"]
    assert "degraded: the state database was removed" in stage.hermes("status").stdout
    assert gateway.stop() == 0
    assert (stage.home / "state.db").read_bytes() == b"x" * 8192
    (copy,) = stage.home.glob("state.db.rescued-*")
    with closing(sqlite3.connect(copy)) as rescued:
        assert rescued.execute("SELECT COUNT(*) FROM inbox").fetchone() == (1,)


@pytest.mark.case("DB-06")
def test_while_somebody_holds_the_write_lock_status_answers_and_messages_wait(
    stage: Stage,
) -> None:
    gateway = stage.run().ready()
    with closing(sqlite3.connect(stage.home / "state.db", isolation_level=None)) as stranger:
        stranger.execute("BEGIN IMMEDIATE")
        speaking = threading.Thread(target=stage.say_all, args=(TALK,))
        speaking.start()
        gateway.logged("another process holds the write lock")
        for _ in range(2):
            assert stage.status()[0] == 0
        assert stage.runs() == []
        stranger.execute("ROLLBACK")
    speaking.join()
    stage.answered(*TALK)
    assert stage.answers() == TALK
    assert gateway.log.count("another process holds the write lock") == 1
    assert gateway.log.count("the state database can be written again") == 1
    assert stage.hermes("doctor").returncode == 0
    assert gateway.stop() == 0


@pytest.mark.case("DB-07")
def test_reading_and_then_writing_beside_another_writer_is_no_error(stage: Stage) -> None:
    gateway = stage.run("--log-level", "debug").ready()
    path = stage.home / "state.db"
    over = threading.Event()
    written = 0
    with closing(sqlite3.connect(path, isolation_level=None, timeout=30)) as stranger:
        stranger.execute("INSERT INTO kv VALUES ('stranger', 'count', x'00')")
        speaking = [
            threading.Thread(target=stage.say_all, args=(TALK,), kwargs={"chat": f"c{number}"})
            for number in range(8)
        ]
        for thread in speaking:
            thread.start()
        while not over.is_set():
            stranger.execute("BEGIN IMMEDIATE")
            ((found,),) = stranger.execute("SELECT value FROM kv WHERE owner = 'stranger'")
            written += 1
            count = int.from_bytes(found, "big") + 1
            stranger.execute(
                "UPDATE kv SET value = ? WHERE owner = 'stranger'", (count.to_bytes(8, "big"),)
            )
            stranger.execute("COMMIT")
            if len(stage.answers()) == 8 * len(TALK):
                over.set()
        for thread in speaking:
            thread.join()
        ((found,),) = stranger.execute("SELECT value FROM kv WHERE owner = 'stranger'")
    assert int.from_bytes(found, "big") == written
    for number in range(8):
        assert stage.answers(f"c{number}") == TALK
    assert "locked" not in gateway.log
    assert gateway.stop() == 0


@pytest.mark.case("DB-16")
def test_kill_9_in_the_middle_of_traffic_tears_nothing(stage: Stage) -> None:
    said: list[str] = []
    for round_number in range(4):
        gateway = stage.run().ready()
        texts = [f"round {round_number} message {number}" for number in range(30)]
        enough = len(stage.sent()) + 5 * (round_number + 1)
        speaking = threading.Thread(target=_speak, args=(stage, texts, said))
        speaking.start()
        until(lambda enough=enough: len(stage.sent()) >= enough)  # type: ignore[misc]
        gateway.kill()
        speaking.join()
        with closing(sqlite3.connect(stage.home / "state.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    gateway = stage.run().ready()
    stage.answered(*said)
    answers = stage.answers()
    assert len(answers) == len(set(answers))
    assert sorted(answers, key=_place) == answers
    assert gateway.stop() == 0


def _speak(stage: Stage, texts: list[str], said: list[str]) -> None:
    """Say one after the other, as long as somebody listens, and note what was accepted."""
    for text in texts:
        try:
            if stage.say(text)["type"] == "Accepted":
                said.append(text)
        except (HermesError, AssertionError, OSError):
            return


def _place(text: str) -> tuple[int, int]:
    _, round_number, _, number = text.split()
    return int(round_number), int(number)


def unprivileged() -> list[str]:
    """What makes a command obey permissions even for root."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root may write everything")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


@pytest.mark.case("DB-09")
@pytest.mark.parametrize("what", ["file", "directory", "log"])
def test_a_start_without_permission_to_write_says_where_and_why(stage: Stage, what: str) -> None:
    assert stage.run().ready().stop() == 0
    database = stage.home / "state.db"
    if what == "file":
        database.chmod(0o444)
    elif what == "log":
        database.with_name("state.db-wal").touch(0o444)
    else:
        stage.home.chmod(0o555)
    try:
        refused = subprocess.run(
            [*unprivileged(), *HERMES, "run"],
            env=stage.environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        stage.home.chmod(0o700)
    assert refused.returncode == 1
    assert str(stage.home) in refused.stderr
    assert "permission" in refused.stderr.lower() or "readonly" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert stage.hermes("status").returncode == 3


@pytest.mark.case("DB-09")
def test_a_disk_that_cannot_be_written_for_a_while(stage: Stage) -> None:
    gateway = stage.run().ready()
    stage.say("gate one")
    stage.began("gate one")
    stage.hermes("drain", "--for", "600")
    stage.say("waits", chat="c2")
    none, full = (4096, resource.RLIM_INFINITY), (resource.RLIM_INFINITY,) * 2
    resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, none)
    with pytest.raises((HermesError, AssertionError)):
        stage.say("not taken", event_id="again")
    stage.open_gate("one")
    stage.hermes("drain", "--end")
    assert "  degraded: cannot use the state database" in stage.hermes("status").stdout
    resource.prlimit(gateway.pid, resource.RLIMIT_FSIZE, full)
    stage.answered("gate one")
    stage.say("not taken", event_id="again")
    stage.answered("not taken", "waits")
    assert sorted(stage.answers()) == ["gate one", "not taken", "waits"]
    assert gateway.log.count("nothing can be written for now") == 1
    assert gateway.log.count("the state database can be written again") == 1
    assert "Traceback" not in gateway.log
    assert "degraded" not in stage.hermes("status").stdout
    assert gateway.stop() == 0


@pytest.mark.case("DB-10")
@pytest.mark.parametrize("damage", ["half", "first page"])
def test_a_damaged_file_is_no_start_and_stays_as_it_is(stage: Stage, damage: str) -> None:
    gateway = stage.run().ready()
    stage.say_all(TALK)
    stage.answered(*TALK)
    assert gateway.stop() == 0
    path = stage.home / "state.db"
    with path.open("r+b") as file:
        if damage == "half":
            file.truncate(path.stat().st_size // 2 // 4096 * 4096)
        else:
            file.write(b"\x55" * 4096)
    before = hashlib.sha256(path.read_bytes()).digest()
    began = time.monotonic()
    refused = stage.hermes("run")
    assert time.monotonic() - began < 10
    assert refused.returncode == 1
    assert str(path) in refused.stderr
    assert "Traceback" not in refused.stderr
    doctor = stage.hermes("doctor")
    assert doctor.returncode == 1
    assert "database" in doctor.stdout
    assert hashlib.sha256(path.read_bytes()).digest() == before
    until(lambda: stage.status()[0] == 3)
