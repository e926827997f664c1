from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from hermes_core.errors import HermesError
from hermes_core.supervision.control import socket_path
from hermes_core.supervision.control.address import MAX_PATH, peer_uid, prepare_directory


def test_the_path_is_short_however_long_the_home_is(tmp_path: Path) -> None:
    home = Path(tmp_path, *["long" * 50] * 5)
    path = socket_path(home)
    assert len(os.fsencode(path)) <= MAX_PATH
    assert path != socket_path(home / "other")
    assert not home.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.case("CL-04")
def test_one_home_has_one_socket_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    link = tmp_path / "link"
    link.symlink_to(home)
    monkeypatch.chdir(tmp_path)
    ways = [home, link, Path("home"), Path("./link/"), tmp_path / "x" / ".." / "home"]
    assert len({socket_path(way) for way in ways}) == 1


def test_a_runtime_directory_that_is_not_private_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    temporary = tmp_path / "t"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", "/t")
    for value in (str(shared), str(tmp_path / "missing"), "relative", ""):
        monkeypatch.setenv("XDG_RUNTIME_DIR", value)
        path = socket_path(tmp_path)
        assert path.is_relative_to("/t") or path.is_relative_to("/run/user"), value


def test_directories_that_are_too_long_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / ("long" * 25)
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("TMPDIR", str(runtime))
    path = socket_path(tmp_path)
    assert len(os.fsencode(path)) <= MAX_PATH
    assert not path.is_relative_to(runtime)


def test_the_directory_is_private_or_refused(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    prepare_directory(mine)
    prepare_directory(mine)
    assert stat.S_IMODE(mine.stat().st_mode) == 0o700

    mine.chmod(0o750)
    with pytest.raises(HermesError, match="other users have access"):
        prepare_directory(mine)

    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(HermesError):
        prepare_directory(link)

    with pytest.raises(HermesError, match="cannot make the directory"):
        prepare_directory(tmp_path / "missing" / "mine")


def test_the_kernel_says_who_the_peer_is() -> None:
    here, there = socket.socketpair()
    with here, there:
        assert peer_uid(here) == os.getuid()
