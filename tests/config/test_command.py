"""`hermes config`, as a person or a program uses it."""

from __future__ import annotations

import errno
import json
import os
import shlex
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_core.cli import frame

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    monkeypatch.setenv("HERMES_HOME", str(path))
    return path


@pytest.fixture
def settings(home: Path) -> Path:
    home.mkdir()
    return home / "config.toml"


@pytest.fixture
def hermes(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Exit code, standard output and standard error of one command."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = frame.run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ("config", "path"),
        ("config", "show"),
        ("config", "get", "sessions.busy"),
        ("config", "check"),
        ("profiles", "list"),
        ("profiles", "show"),
    ],
)
def test_looking_makes_nothing(hermes: Run, home: Path, arguments: tuple[str, ...]) -> None:
    for more in ((), ("--json",)):
        code, _, err = hermes(*arguments, *more)
        assert (code, err) == (0, "")
    assert not home.exists()


def test_path(hermes: Run, home: Path) -> None:
    assert hermes("config", "path")[1] == f"{home}/config.toml\n"
    assert json.loads(hermes("config", "path", "--json")[1]) == {"path": f"{home}/config.toml"}


def test_show_gives_a_file_that_says_the_same(hermes: Run, settings: Path) -> None:
    settings.write_text(
        "[sessions]\nbusy = 'steer'\ntotal = '90m'\n[agent]\nsend_files_from = ['/srv/out']\n"
    )
    _, shown, _ = hermes("config", "show")
    as_json = json.loads(hermes("config", "show", "--json")[1])
    settings.write_text(shown)
    assert hermes("config", "show")[1] == shown
    assert as_json["sessions"]["total"] == "90m"
    assert as_json["sessions"]["busy"] == "steer"
    assert as_json["agent"]["send_files_from"] == ["/srv/out"]


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("sessions.busy", "queue"),
        ("sessions.max_waiting", "1000"),
        ("gateway.profiles", '["default"]'),
        ("gateway.profiles[0]", "default"),
        ("gateway.shutdown_grace", "30s"),
    ],
)
def test_get(hermes: Run, key: str, shown: str) -> None:
    assert hermes("config", "get", key) == (0, f"{shown}\n", "")


@pytest.mark.parametrize(
    "key", ["sessions.nope", "gateway.profiles[7]", "sessions.busy.x", "..", ""]
)
def test_get_of_nothing(hermes: Run, key: str) -> None:
    code, out, err = hermes("config", "get", key)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1


def test_a_broken_file_is_told_with_its_place(hermes: Run, settings: Path) -> None:
    settings.write_text("[sessions]\nbusy =\n")
    for command in (("show",), ("get", "a"), ("set", "a", "1")):
        code, out, err = hermes("config", *command)
        assert (code, out) == (2, "")
        assert f"{settings}:2" in err
    assert settings.read_text() == "[sessions]\nbusy =\n"


@pytest.mark.case("CF-13")
def test_check_tells_faults_from_warnings(hermes: Run, settings: Path) -> None:
    settings.write_text("[webhook]\nx = 1\n")
    code, out, _ = hermes("config", "check", "--json")
    report = json.loads(out)
    assert (code, report["valid"], report["faults"]) == (0, True, [])
    assert report["warnings"][0]["key"] == "webhook"
    settings.write_text("[webhook]\nx = 1\n[authorization]\nx = 1\n")
    code, out, _ = hermes("config", "check", "--json")
    report = json.loads(out)
    assert (code, report["valid"]) == (2, False)
    assert report["faults"][0] | {"hint": ""} == {
        "file": str(settings),
        "key": "authorization.x",
        "line": 4,
        "expected": "",
        "found": "",
        "problem": "unknown key",
        "hint": "",
    }
    code, out, _ = hermes("config", "check")
    assert code == 2
    assert out.startswith(f"error: {settings}:4: authorization.x: unknown key")
    assert f"warning: {settings}:1: webhook: " in out


def test_keys_that_need_each_other_are_set_in_one_go(hermes: Run, settings: Path) -> None:
    settings.write_text("# mine\n")
    argv = "agent.command.argv=['my-agent', '--a=b']"
    refused = (
        ("agent.use", "command"),
        ("agent.use=command",),
        ("agent.use=command", argv, "sessions.busy=7"),
        ("agent.use=command", argv, "sessions.busy"),
        ("agent.use=command", argv, "=7"),
    )
    for words in refused:
        assert hermes("config", "set", *words)[0] == 2
        assert settings.read_text() == "# mine\n"
    code, out, _ = hermes("config", "set", "agent.use=command", argv, 'sessions."busy"="steer"')
    assert code == 0
    assert out.count("is set in") == 3
    assert settings.read_text().startswith("# mine\n")
    assert hermes("config", "get", "agent.command.argv")[1] == '["my-agent", "--a=b"]\n'
    assert hermes("config", "get", "sessions.busy")[1] == "steer\n"


def test_check_finds_profiles_that_are_not_there(hermes: Run, settings: Path) -> None:
    (settings.parent / "profiles" / "work").mkdir(parents=True)
    settings.write_text('[gateway]\nprofiles = ["default", "work", "wrk"]\n')
    code, out, _ = hermes("config", "check")
    assert code == 2
    assert "gateway.profiles[2]: there is no profile wrk" in out


def test_check_reads_the_secrets_too(hermes: Run, settings: Path) -> None:
    secrets = settings.with_name("secrets.env")
    secrets.write_text("A=1\nB=a b\n")
    secrets.chmod(0o600)
    code, out, _ = hermes("config", "check", "--json")
    assert code == 2
    assert json.loads(out)["faults"][0]["line"] == 2


def test_settings_can_be_ignored(
    hermes: Run, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.write_text("[sessions]\nbusy = 'steer'\n")
    monkeypatch.setenv("HERMES_IGNORE_USER_CONFIG", "1")
    assert hermes("config", "get", "sessions.busy")[1] == "queue\n"


# ── writing ──────────────────────────────────────────────────────────────────────────────────────

TEXT = """\
# my settings

[sessions]
busy = "queue"      # one after the other
group = "shared"

[gateway]           # the process
max_running_turns = 8
"""


def test_set_keeps_comments_and_order(hermes: Run, settings: Path) -> None:
    settings.write_text(TEXT)
    assert hermes("config", "set", "sessions.busy", "steer")[0] == 0
    assert hermes("config", "set", "gateway.max_running_turns", "16")[0] == 0
    changed = TEXT.replace('"queue"', '"steer"').replace("= 8", "= 16")
    assert settings.read_text() == changed


def test_set_makes_the_first_file(hermes: Run, home: Path) -> None:
    assert hermes("config", "set", "sessions.busy", "steer")[0] == 0
    file = home / "config.toml"
    assert file.read_text() == '[sessions]\nbusy = "steer"\n'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.case("CF-01")
def test_set_keeps_line_ends_and_adds_no_mark(hermes: Run, settings: Path) -> None:
    settings.write_bytes(b"\xef\xbb\xbf" + TEXT.replace("\n", "\r\n").encode())
    assert hermes("config", "set", "sessions.thread", "per_user")[0] == 0
    content = settings.read_bytes()
    assert not content.startswith(b"\xef\xbb\xbf")
    assert content.count(b"\n") == content.count(b"\r\n")
    assert hermes("config", "get", "sessions.thread")[1] == "per_user\n"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sessions.busy", "ster"),
        ("sessions.max_waiting", "-3"),
        ("gateway.shutdown_grace", "30"),
        ("authorization.x", "1"),
        ("sessions", "1"),
        ("sessions.busy.x", "1"),
    ],
)
def test_set_refuses_what_would_be_invalid(
    hermes: Run, settings: Path, key: str, value: str
) -> None:
    settings.write_text(TEXT)
    code, out, err = hermes("config", "set", key, value)
    assert (code, out) == (2, "")
    assert err
    assert settings.read_text() == TEXT


def test_set_may_mend_one_fault_of_several(hermes: Run, settings: Path) -> None:
    settings.write_text("[sessions]\nbusy = 1\ngroup = 2\n")
    assert hermes("config", "set", "sessions.busy", "queue")[0] == 0
    assert hermes("config", "check")[0] == 2
    assert hermes("config", "set", "sessions.group", "shared")[0] == 0
    assert hermes("config", "check")[0] == 0


def test_set_of_an_unknown_key_warns(hermes: Run, settings: Path) -> None:
    code, _, err = hermes("config", "set", "sesions.busy", "queue")
    assert code == 0
    assert 'did you mean "sessions"?' in err


@pytest.mark.case("CF-08")
def test_writing_through_a_link_keeps_link_mode_and_comments(
    hermes: Run, settings: Path, tmp_path: Path
) -> None:
    target = tmp_path / "elsewhere" / "hermes.toml"
    target.parent.mkdir()
    target.write_text(TEXT)
    target.chmod(0o640)
    settings.symlink_to(target)
    assert hermes("config", "set", "sessions.busy", "steer")[0] == 0
    assert settings.is_symlink()
    assert settings.readlink() == target
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert target.read_text() == TEXT.replace('"queue"', '"steer"')
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.case("CF-08")
def test_a_dangling_link_is_left_alone(hermes: Run, settings: Path, tmp_path: Path) -> None:
    settings.symlink_to(tmp_path / "gone.toml")
    code, out, err = hermes("config", "set", "sessions.busy", "steer")
    assert code != 0
    assert out == ""
    assert "points to nothing" in err
    assert settings.is_symlink()
    assert not (tmp_path / "gone.toml").exists()


@pytest.mark.case("CF-08")
def test_a_failed_write_is_told_as_failed(
    hermes: Run, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.write_text(TEXT)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    code, out, err = hermes("config", "set", "sessions.busy", "steer")
    assert (code, out) == (1, "")
    assert "not written" in err
    assert settings.read_text() == TEXT
    assert list(settings.parent.iterdir()) == [settings]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.case("CF-08")
def test_a_directory_without_write_permission(hermes: Run, settings: Path) -> None:
    settings.write_text(TEXT)
    settings.parent.chmod(0o500)
    code, out, _ = hermes("config", "set", "sessions.busy", "steer")
    settings.parent.chmod(0o700)
    assert (code, out) == (1, "")
    assert settings.read_text() == TEXT


def _editor(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let the editor be a program that has the file's text in `text` and may change it."""
    program = (
        "import pathlib, sys; file = pathlib.Path(sys.argv[1]); text = file.read_text();"
        f"{code}; file.write_text(text)"
    )
    monkeypatch.setenv("VISUAL", shlex.join([sys.executable, "-c", program]))


def test_edit(hermes: Run, settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.write_text(TEXT)
    _editor(monkeypatch, "text = text.replace('queue', 'steer')")
    code, out, _ = hermes("config", "edit")
    assert (code, out) == (0, f"Written to {settings}\n")
    assert settings.read_text() == TEXT.replace("queue", "steer")


def test_edit_without_a_change_writes_nothing(
    hermes: Run, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _editor(monkeypatch, "pass")
    assert hermes("config", "edit")[:2] == (0, "Nothing was changed.\n")
    assert not settings.exists()


def test_edit_mends_a_file_that_is_no_toml(
    hermes: Run, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.write_text("[sessions]\nbusy =\n")
    _editor(monkeypatch, "text = text.replace('busy =', 'busy = \"steer\"')")
    assert hermes("config", "edit")[0] == 0
    assert hermes("config", "get", "sessions.busy")[1] == "steer\n"


def test_edit_never_writes_what_is_invalid(
    hermes: Run, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.write_text(TEXT)
    _editor(monkeypatch, "text = text.replace('queue', 'queu')")
    code, _, err = hermes("config", "edit")  # nobody is there to say "again"
    assert code == 2
    assert "sessions.busy" in err
    assert settings.read_text() == TEXT


def test_edit_does_not_overwrite_what_somebody_else_wrote(
    hermes: Run, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.write_text(TEXT)
    other = f"pathlib.Path({str(settings)!r}).write_text('# new')"
    _editor(monkeypatch, f"text = text.replace('queue', 'steer'); {other}")
    code, _, err = hermes("config", "edit")
    assert code == 2
    assert "someone else" in err
    assert settings.read_text() == "# new"


def test_an_editor_that_fails(hermes: Run, settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for editor in ("/nonexistent/editor", "false", "'"):
        monkeypatch.setenv("VISUAL", editor)
        code, _, err = hermes("config", "edit")
        assert code == 1
        assert "editor failed" in err
    assert not settings.exists()
