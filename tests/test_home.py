from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from hermes_core.errors import ConfigError, HermesError
from hermes_core.home import Home


@pytest.fixture(autouse=True)
def _own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HERMES_HOME", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def located(monkeypatch: pytest.MonkeyPatch, value: str | Path) -> Home:
    monkeypatch.setenv("HERMES_HOME", str(value))
    return Home.locate()


def test_everything_is_under_hermes_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = located(monkeypatch, tmp_path / "h")
    root = tmp_path / "h"
    assert home.config_file() == root / "config.toml"
    assert home.secrets_file() == root / "secrets.env"
    assert home.database() == root / "state.db"
    assert home.log_dir() == root / "logs"
    assert home.lock_path == root / "gateway.lock"
    assert home.database("work") == root / "profiles" / "work" / "state.db"
    assert home.config_file("work") == root / "profiles" / "work" / "config.toml"
    assert list(tmp_path.iterdir()) == []


def test_without_hermes_home_the_user_s_directories_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for home in (Home.locate(), located(monkeypatch, "")):
        assert home.config_root.name == home.state_root.name == "hermes-gateway"
        if os.uname().sysname == "Linux":
            assert home.config_root.parent == tmp_path / "config"
            assert home.state_root.parent == tmp_path / "state"
        assert home.config_dir("work") == home.config_root / "profiles" / "work"


@pytest.mark.case("CL-04")
def test_one_directory_is_one_home_however_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "h"
    root.mkdir()
    (tmp_path / "link").symlink_to(root)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    ways: list[str | Path] = [
        root,
        f"{root}/",
        "h",
        "./h//",
        "../" + tmp_path.name + "/h",
        "link",
        "link/",
        "~/h",
    ]
    homes = [located(monkeypatch, way) for way in ways]
    assert len(set(homes)) == 1
    assert {home.socket_path for home in homes} == {homes[0].socket_path}
    monkeypatch.chdir(root)
    assert located(monkeypatch, ".") == homes[0]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "/etc", "A", "-a", "a\0b", "ä", "a b", "x" * 65]
)
def test_a_profile_never_leads_out_of_the_home(name: str, tmp_path: Path) -> None:
    home = Home(tmp_path, tmp_path)
    for directory in (home.config_dir, home.state_dir):
        with pytest.raises(ConfigError, match="cannot name a profile"):
            directory(name)


def test_directories_are_made_for_this_user_only(tmp_path: Path) -> None:
    home = Home(tmp_path / "a" / "config", tmp_path / "b" / "state")
    for _ in range(2):
        home.ensure()
        home.ensure("work")
    made = [home.config_root, home.state_root, home.config_dir("work"), home.state_dir("work")]
    for directory in [*made, tmp_path / "a", home.state_root / "profiles"]:
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == []


def test_existing_directories_keep_their_permissions(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    Home(tmp_path, tmp_path).ensure()
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o750


def test_a_home_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    unwritable = Path("/sys") if os.geteuid() == 0 else tmp_path / "read-only"
    unwritable.mkdir(0o500, exist_ok=True)
    for root in (file, file / "home", dangling, unwritable / "home", tmp_path / ("x" * 300)):
        with pytest.raises(HermesError, match="cannot make the directory") as error:
            Home(root, root).ensure()
        assert "\n" not in str(error.value)
        assert str(root) in str(error.value)


def test_a_value_that_names_no_directory_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(HermesError):
        located(monkeypatch, loop).ensure()
    with pytest.raises(HermesError, match="HERMES_HOME: not a usable directory"):
        located(monkeypatch, "~no-such-user-here/x")
