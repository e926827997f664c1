from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from hermes_core.errors import HermesError, HomeLocked
from hermes_core.supervision.identity import Identity
from hermes_core.supervision.lock import HomeLock, holder


class SupportsFileno(Protocol):
    def fileno(self) -> int: ...


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "gateway.lock"


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    assert process.poll() is None, "the stranger was killed"
    process.kill()
    process.wait()


def test_one_at_a_time(path: Path) -> None:
    with HomeLock(path, runs="hermes run"):
        with pytest.raises(HomeLocked) as refusal:
            HomeLock(path).acquire()
        assert refusal.value.pid == os.getpid()
        assert str(os.getpid()) in str(refusal.value)
        assert "hermes run" in str(refusal.value)
    with HomeLock(path):
        pass


def test_the_holder_is_named_and_only_while_it_holds(path: Path) -> None:
    assert holder(path) is None
    with HomeLock(path, runs="hermes run"):
        found = holder(path)
        assert found is not None
        assert found.identity == Identity.current()
        assert found.pid == os.getpid()
        assert found.runs == "hermes run"
        assert found.socket is not None
    assert holder(path) is None


def test_looking_creates_nothing_and_disturbs_nobody(path: Path) -> None:
    assert holder(path) is None
    assert holder(path.parent / "missing" / "gateway.lock") is None
    assert list(path.parent.iterdir()) == []
    with HomeLock(path):
        before = path.read_bytes(), path.stat().st_mtime_ns
        holder(path)
        assert (path.read_bytes(), path.stat().st_mtime_ns) == before
        with pytest.raises(HomeLocked):
            HomeLock(path).acquire()


def test_the_file_is_private_whatever_it_was(path: Path) -> None:
    with HomeLock(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o666)
    with HomeLock(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_removing_the_file_frees_nothing(path: Path) -> None:
    with HomeLock(path):
        path.unlink()
        with pytest.raises(HomeLocked):
            HomeLock(path).acquire()
        assert holder(path) is not None
        assert not path.exists(), "the one that was refused touched the home"


def test_the_same_lock_is_not_taken_twice(path: Path) -> None:
    lock = HomeLock(path)
    with lock, pytest.raises(HermesError, match="already locked"):
        lock.acquire()
    lock.release()
    assert not lock.held


def without_locks_on(monkeypatch: pytest.MonkeyPatch, *kinds: int) -> None:
    """A file system that cannot lock some kinds of file, as NFS cannot lock directories."""
    lock = fcntl.flock

    def flock(file: SupportsFileno, operation: int) -> None:
        if stat.S_IFMT(os.fstat(file.fileno()).st_mode) in kinds:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)


def test_where_directories_cannot_be_locked_the_file_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_locks_on(monkeypatch, stat.S_IFDIR)
    with HomeLock(path):
        with pytest.raises(HomeLocked) as refusal:
            HomeLock(path).acquire()
        assert refusal.value.pid == os.getpid()
        assert holder(path) is not None
    assert holder(path) is None


def test_where_nothing_can_be_locked_nothing_runs(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_locks_on(monkeypatch, stat.S_IFDIR, stat.S_IFREG)
    with pytest.raises(HermesError, match="cannot lock the home"):
        HomeLock(path).acquire()


def contents(stranger: int) -> dict[str, str]:
    return {
        "empty": "",
        "text": "hello",
        "number": "1",
        "negative": json.dumps({"pid": -1, "started": "x"}),
        "dead": json.dumps({"pid": 2**22 + 1, "started": "x"}),
        "init": json.dumps({"pid": 1, "started": "x"}),
        "parent": json.dumps({"pid": os.getppid(), "started": "x"}),
        "deep": "[" * 4000,
        "long": "x" * 100_000,
        "not text": "\x00\ufffd",
        "stranger": json.dumps({"pid": stranger, "started": "x"}),
        "verified stranger": json.dumps(
            {**(Identity.of(stranger) or Identity.current()).to_json(), "runs": "hermes run"}
        ),
    }


@pytest.mark.case("SH-04")
@pytest.mark.case("SH-05")
def test_what_the_file_says_never_decides(path: Path, stranger: subprocess.Popen[bytes]) -> None:
    for name, content in contents(stranger.pid).items():
        path.write_text(content)
        assert holder(path) is None, name
        with HomeLock(path):
            found = holder(path)
            assert found is not None
            assert found.pid == os.getpid(), name
        assert holder(path) is None, name


@pytest.mark.case("SH-05")
def test_a_holder_is_not_named_after_a_stranger(
    path: Path, stranger: subprocess.Popen[bytes]
) -> None:
    with HomeLock(path):
        path.write_text(json.dumps({"pid": stranger.pid, "started": "x", "socket": "/x"}))
        with pytest.raises(HomeLocked) as refusal:
            HomeLock(path).acquire()
        assert refusal.value.pid is None
        found = holder(path)
        assert found is not None
        assert (found.pid, found.socket) == (None, None)


@pytest.mark.case("SH-04")
def test_a_directory_in_the_place_of_the_file_is_one_clear_line(path: Path) -> None:
    path.mkdir()
    with pytest.raises(HermesError, match="a directory stands where a file is needed") as error:
        HomeLock(path).acquire()
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
    assert holder(path) is None


def test_other_things_in_the_place_of_the_file(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(HermesError, match="not a regular file"):
        HomeLock(path).acquire()
    assert holder(path) is None
    path.unlink()

    target = path.with_name("target")
    target.write_text("mine")
    path.symlink_to(target)
    with pytest.raises(HermesError, match="symbolic link"):
        HomeLock(path).acquire()
    assert target.read_text() == "mine"


def test_a_missing_or_unwritable_home_is_one_clear_line(path: Path) -> None:
    missing = path.parent / "missing" / "gateway.lock"
    with pytest.raises(HermesError, match="No such file or directory"):
        HomeLock(missing).acquire()
    assert not missing.parent.exists()

    home = Path("/sys") if os.geteuid() == 0 else path.parent / "read-only"
    home.mkdir(0o500, exist_ok=True)
    with pytest.raises(HermesError, match="cannot lock the home"):
        HomeLock(home / "gateway.lock").acquire()
    assert holder(home / "gateway.lock") is None
