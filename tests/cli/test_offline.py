"""A command of a plugin, and the profile that it works for."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]
Install = Callable[..., None]

SHOW = """
import json
import click
from hermes_core import profile_scope

@click.command()
@click.pass_obj
def command(invocation):
    scope = profile_scope(invocation.profile)
    sessions = scope.settings.sessions
    click.echo(json.dumps([scope.name, sessions.busy, scope.secrets.get("A"), scope.uuid]))
"""


def test_a_command_of_a_plugin_finds_the_settings_and_secrets_of_its_profile(
    hermes: Hermes, install: Install, tmp_path: Path
) -> None:
    install("hermes-plugin-show", {"show": "hermes_plugin_show:command"}, SHOW)
    shown = hermes("show", A="outside")
    assert json.loads(shown.stdout) == ["default", "queue", "outside", ""], shown.stderr
    assert not (tmp_path / "home").exists()
    work = tmp_path / "home" / "profiles" / "work"
    work.mkdir(mode=0o700, parents=True)
    (work / "config.toml").write_text('[sessions]\nbusy = "steer"\n')
    (work / "secrets.env").touch(0o600)
    (work / "secrets.env").write_text("A=inside\n")
    assert json.loads(hermes("--profile", "work", "show").stdout) == ["work", "steer", "inside", ""]


def test_the_example_in_the_documents_is_a_command(hermes: Hermes, install: Install) -> None:
    page = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text("utf-8")
    sources = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    (source,) = [source for source in sources if "@click.command" in source]
    example = source.replace('platform == "line"', 'platform == "console"')
    install("hermes-plugin-line", {"line": "hermes_plugin_line:line"}, example)
    shown = hermes("line")
    assert (shown.returncode, shown.stdout) == (0, "console\n")


def test_a_profile_that_cannot_be_had_is_one_line(
    hermes: Hermes, install: Install, tmp_path: Path
) -> None:
    install("hermes-plugin-show", {"show": "hermes_plugin_show:command"}, SHOW)
    absent = hermes("--profile", "work", "show")
    (tmp_path / "home").mkdir(mode=0o700)
    (tmp_path / "home" / "config.toml").write_text("[sessions]\nbusy = 7\n")
    faulty = hermes("show")
    for result, said in ((absent, "there is no profile work"), (faulty, "sessions.busy")):
        assert (result.returncode, result.stdout) == (2, "")
        assert said in result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments", ["sessions list", "inbox list", "deliveries list", "auth denials", "explain 1"]
)
def test_a_mistyped_profile_is_not_an_empty_one(hermes: Hermes, arguments: str) -> None:
    shown = hermes("--profile", "wrok", *arguments.split())
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "there is no profile wrok" in shown.stderr
