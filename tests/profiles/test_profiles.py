"""Names, directories and scopes of profiles."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.cli import frame
from hermes_core.config import ProfileSettings
from hermes_core.errors import ConfigError
from hermes_core.home import Home
from hermes_core.names import profile_name_problem
from hermes_core.profiles import (
    ProfileScope,
    ProfileSecrets,
    check_profile_name,
    create_uuid,
    existing_profiles,
    read_uuid,
    require_profile,
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    return Home.locate()


BAD_NAMES = [
    "../x",
    "a/b",
    "",
    ".",
    "..",
    "A",
    "é",
    unicodedata.normalize("NFD", "é"),
    "а",  # Cyrillic
    "ａ",
    "x" * 300,
    "con",
    "nul",
    "com1",
    "main",
    "-x",
    "_x",
    "a b",
    "a\n",
    "a\x00",
    "a.b",
]


@pytest.mark.case("PR-11")
@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_alias_or_escape_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot name a profile") as caught:
        check_profile_name(name)
    assert caught.value.exit_code == 2
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["default", "a", "work", "a-b_c", "0", "x" * 64])
def test_names_that_are_fine(name: str) -> None:
    assert check_profile_name(name) == name


@given(st.text(max_size=70))
def test_a_name_that_passes_is_its_own_normal_form_and_one_part_of_a_path(name: str) -> None:
    if not profile_name_problem(name):
        assert name == name.lower() == unicodedata.normalize("NFKC", name)
        assert Path(name).name == name


def test_existing_profiles(home: Home) -> None:
    assert existing_profiles(home) == ["default"]
    assert not home.config_root.exists()
    for name in ("work", "art", "A", "con"):
        (home.config_root / "profiles" / name).mkdir(parents=True)
    (home.config_root / "profiles" / "file").touch()
    assert existing_profiles(home) == ["default", "art", "work"]


def test_a_profile_that_is_not_there(home: Home) -> None:
    (home.config_root / "profiles" / "work").mkdir(parents=True)
    with pytest.raises(ConfigError, match='did you mean "work"'):
        require_profile(home, "wrk")


@pytest.mark.case("PR-11")
def test_a_link_to_the_directory_of_another_profile_is_refused(home: Home) -> None:
    profiles = home.config_root / "profiles"
    (profiles / "a").mkdir(parents=True)
    (profiles / "b").symlink_to(profiles / "a")
    (profiles / "root").symlink_to(home.config_root)
    with pytest.raises(ConfigError, match="share one directory"):
        require_profile(home, "b")
    with pytest.raises(ConfigError, match="share one directory"):
        require_profile(home, "root")


@pytest.mark.case("PR-11")
@pytest.mark.parametrize("name", [name for name in BAD_NAMES if "\x00" not in name])
def test_the_command_line_refuses_the_same_names(
    home: Home, name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for command in (("config", "set", "sessions.busy", "steer"), ("config", "check")):
        assert frame.run(["--profile", name, *command]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("hermes: ")
    assert list(tmp_path.iterdir()) == []


def test_listing(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    (home.config_root / "profiles" / "work").mkdir(parents=True)
    home.config_file().write_text('[gateway]\nprofiles = ["default", "gone"]\n')
    assert frame.run(["profiles", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert [(row["served"], row["exists"]) for row in rows.values()] == [
        (True, True),
        (False, True),
        (True, False),
    ]
    assert frame.run(["profiles", "list"]) == 0
    assert "work" in capsys.readouterr().out


def test_showing_tells_names_of_secrets_and_no_values(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    home.ensure("work")
    home.secrets_file("work").write_text("TOKEN=marked-value\n")
    home.secrets_file("work").chmod(0o600)
    for more in ([], ["--json"]):
        assert frame.run(["profiles", "show", "work", *more]) == 0
        out = capsys.readouterr().out
        assert "TOKEN" in out
        assert "marked-value" not in out
    assert frame.run(["profiles", "show", "wrk"]) == 2


# ── identity ─────────────────────────────────────────────────────────────────────────────────────


def test_a_uuid_is_made_once(tmp_path: Path) -> None:
    assert read_uuid(tmp_path) is None
    made = create_uuid(tmp_path)
    assert read_uuid(tmp_path) == create_uuid(tmp_path) == made
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_missing_directory_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        create_uuid(tmp_path / "gone")


@pytest.mark.parametrize("content", ["", "not a uuid", "\x00" * 200])
def test_a_uuid_that_cannot_be_read_is_left_alone(tmp_path: Path, content: str) -> None:
    create_uuid(tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text(content)
    with pytest.raises(ConfigError, match="identity"):
        create_uuid(tmp_path)
    assert file.read_text() == content


# ── scope ────────────────────────────────────────────────────────────────────────────────────────


def scope(tmp_path: Path, name: str = "work") -> ProfileScope:
    return ProfileScope(
        name=name,
        uuid="00000000-0000-4000-8000-000000000000",
        config_dir=tmp_path,
        state_dir=tmp_path,
        settings=ProfileSettings(name=name),
        secrets=ProfileSecrets({"HERMES_TEST_TOKEN": "marked"}, profile=name),
        hidden=frozenset({"HERMES_TEST_TOKEN", "HERMES_TEST_OF_ANOTHER"}),
        variables={"HERMES_HOME": "/somewhere"},
    )


@pytest.mark.case("PR-01")
def test_a_child_finds_its_profile_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_TEST_TOKEN", "marked")
    monkeypatch.setenv("HERMES_TEST_OF_ANOTHER", "marked")
    monkeypatch.setenv("HERMES_TEST_ORDINARY", "ordinary")
    before = dict(os.environ)
    environment = scope(tmp_path).child_environment()
    child = subprocess.run(
        [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    seen = json.loads(child.stdout)
    assert "marked" not in child.stdout
    assert seen["HERMES_PROFILE"] == "work"
    assert seen["HERMES_HOME"] == "/somewhere"
    assert seen["HERMES_TEST_ORDINARY"] == "ordinary"
    assert dict(os.environ) == before


def test_a_scope_cannot_be_changed_and_shows_no_secret(tmp_path: Path) -> None:
    work = scope(tmp_path)
    with pytest.raises(AttributeError):
        work.name = "other"  # type: ignore[misc]
    assert "marked" not in repr(work)
