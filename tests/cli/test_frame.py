"""What every command has in common: help, errors, exit codes, output that cannot fail."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import hermes_core
from hermes_core.cli import frame
from hermes_core.cli.table import COMMANDS
from hermes_core.version import VERSION

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]
Install = Callable[..., None]

FAULTY = """
import os, sys
import click
from hermes_core.errors import AccountFailed, ConfigError, HermesError

@click.command()
@click.argument("how")
def fail(how):
    if how == "plain": raise HermesError("no luck", where="/some/file", remedy="try harder")
    if how == "lines": raise ConfigError("2 faults\\n  one\\n  two \\x1b[31m")
    if how == "never": raise AccountFailed("token revoked")
    if how == "interrupt": raise KeyboardInterrupt
    if how == "abort": raise click.Abort
    if how == "file": open("/nonexistent/file")
    if how == "exit": sys.exit(7)
    if how == "text": sys.exit("gave up")
    if how == "return": return 5
    if how == "usage": raise click.BadParameter("not that", param_hint="--this")
"""


def commands() -> list[list[str]]:
    return [["--help"], ["-h"], ["--version"], ["paths"], ["paths", "--json"], ["paths", "--help"]]


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_looking_creates_nothing(
    arguments: list[str], hermes: Hermes, tmp_path: Path, environment: dict[str, str]
) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(0o700)
    before = sorted(tmp_path.rglob("*"))
    for home in (environment["HERMES_HOME"], ""):
        result = hermes(*arguments, HERMES_HOME=home, XDG_RUNTIME_DIR=str(runtime))
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_help_lists_every_command_and_where_others_come_from(hermes: Hermes) -> None:
    text = hermes("--help").stdout
    for name, entry in COMMANDS.items():
        assert re.search(rf"^  {name} +{re.escape(entry.help[:20])}", text, re.MULTILINE)
    assert "`hermes plugins list`" in " ".join(text.split())


def test_chat_without_its_plugin_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hermes_core.cli.plugged.entry_points", lambda **_: ())
    result = CliRunner().invoke(frame.hermes, ["chat"])
    assert result.exit_code == 2
    assert "pip install hermes-plugin-console" in result.output


def test_help_of_a_group_shows_whole_sentences(hermes: Hermes) -> None:
    shown = hermes("deliveries", "--help").stdout
    assert "they are not sent, nor listed as failed." in " ".join(shown.split())


@pytest.mark.parametrize("span", ["2", "2.5", "30s", "5m"])
def test_a_time_span_is_a_number_of_seconds_or_as_in_settings(hermes: Hermes, span: str) -> None:
    assert "no gateway runs" in hermes("stop", "--grace", span).stderr


def test_every_command_of_the_table_exists_and_says_what_it_does() -> None:
    for name, entry in COMMANDS.items():
        command = getattr(import_module(f"hermes_core.cli.{entry.module}"), entry.attribute)
        assert isinstance(command, click.Command), name
        assert command.help, name


def test_help_imports_no_command_and_nothing_heavy(environment: dict[str, str]) -> None:
    script = (
        "import sys\n"
        "from hermes_core.cli import main\n"
        "sys.argv = ['hermes', '--help']\n"
        "main()\n"
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    loaded = set(ast.literal_eval(result.stderr))
    heavy = {
        *("asyncio", "importlib.metadata", "json", "logging", "msgspec", "peewee", "platformdirs"),
        *("pluggy", "rich", "socket", "sqlite3", "subprocess", "tomllib", "tomlkit", "watchfiles"),
        *(f"hermes_core.cli.{entry.module}" for entry in COMMANDS.values()),
    }
    assert loaded & heavy == set()
    own = {name for name in loaded if name.startswith("hermes_core")}
    assert own == {
        "hermes_core",
        "hermes_core.errors",
        "hermes_core.version",
        "hermes_core.cli",
        *(f"hermes_core.cli.{name}" for name in ("frame", "group", "invocation", "streams")),
        "hermes_core.cli.table",
    }


def test_version(hermes: Hermes) -> None:
    assert hermes("--version").stdout == f"hermes {VERSION}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Usage: hermes"),
        (("explan",), "There is no command 'explan'. Did you mean explain?"),
        (("zzz",), "There is no command 'zzz'. See `hermes --help`."),
        (("--nonsense",), "No such option"),
        (("paths", "--nonsense"), "No such option"),
        (("--profile",), "requires an argument"),
        (("drain", "--for", "nan"), "'nan' is neither a number of seconds nor a time like 30s"),
        (("stop", "--grace=-1"), "'-1' is neither a number of seconds nor a time like 30s"),
        (("--profile", "../x", "paths"), "cannot name a profile"),
    ],
)
def test_wrong_usage_is_exit_2(hermes: Hermes, arguments: tuple[str, ...], said: str) -> None:
    result = hermes(*arguments)
    assert result.returncode == 2
    assert said in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("plain", 1, "hermes: /some/file: no luck (try harder)\n"),
        ("lines", 2, "hermes: 2 faults\n  one\n  two \\x1b[31m\n"),
        ("never", 78, "hermes: token revoked\n"),
        ("interrupt", 130, ""),
        ("abort", 130, ""),
        ("exit", 7, ""),
        ("text", 1, "hermes: gave up\n"),
        ("return", 5, ""),
        ("nothing", 0, ""),
    ],
)
def test_errors_and_exit_codes(
    how: str, code: int, said: str, hermes: Hermes, install: Install
) -> None:
    install("hermes-plugin-faulty", {"fail": "hermes_plugin_faulty:fail"}, FAULTY)
    result = hermes("fail", how)
    assert (result.returncode, result.stderr) == (code, said)


def test_other_errors_of_files_and_options(hermes: Hermes, install: Install) -> None:
    install("hermes-plugin-faulty", {"fail": "hermes_plugin_faulty:fail"}, FAULTY)
    result = hermes("fail", "file")
    assert result.returncode == 1
    assert result.stderr.startswith("hermes: ")
    assert "/nonexistent/file" in result.stderr
    assert result.stderr.count("\n") == 1
    result = hermes("fail", "usage")
    assert result.returncode == 2
    assert "Invalid value for --this: not that" in result.stderr


@pytest.mark.case("CL-04")
def test_all_ways_to_write_the_home_show_the_same_paths(hermes: Hermes, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "link").symlink_to(home)
    relative = os.path.relpath(home)
    ways = [home, f"{home}/", tmp_path / "link", relative, f"{home}/../home"]
    shown = {hermes("paths", HERMES_HOME=str(way)).stdout for way in ways}
    assert len(shown) == 1
    assert f"{home}/state.db" in shown.pop()
    shown = {hermes("paths", HOME=str(tmp_path / user)).stdout for user in ("a", "b")}
    assert len(shown) == 1


def test_paths_of_a_profile(hermes: Hermes, tmp_path: Path) -> None:
    found = json.loads(hermes("--profile", "work", "paths", "--json").stdout)
    home = tmp_path / "home"
    assert found.pop("socket").endswith(".sock")
    assert found == {
        "profile": "work",
        "config": f"{home}/profiles/work/config.toml",
        "secrets": f"{home}/profiles/work/secrets.env",
        "database": f"{home}/profiles/work/state.db",
        "logs": f"{home}/profiles/work/logs",
        "lock": f"{home}/gateway.lock",
    }


def test_an_interrupt_during_start_is_quiet(environment: dict[str, str]) -> None:
    script = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from hermes_core.cli import main\n"
        "sys.exit(main())"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (result.returncode, result.stdout, result.stderr) == (130, "", "")


def test_the_manual_lists_the_exit_codes() -> None:
    manual = (Path(hermes_core.__file__).parents[1] / "docs" / "cli.md").read_text()
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", manual, re.MULTILINE)}
    assert {0, 1, 2, 3, 4, 75, 78, 128 + signal.SIGINT, 128 + signal.SIGPIPE} == listed


def test_shells_can_complete_names_without_importing_commands(
    hermes: Hermes, install: Install
) -> None:
    install("hermes-plugin-chatty", {"patter": "missing_module:command"})
    result = hermes(_HERMES_COMPLETE="bash_complete", COMP_WORDS="hermes pat", COMP_CWORD="1")
    assert result.stdout.split() == ["plain,patter", "plain,paths"]
    assert result.stderr == ""
