"""Commands that plugins add."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]
Install = Callable[..., None]

GREET = """
print("loading...")
import click

@click.command()
@click.argument("name", default="you")
@click.pass_obj
def greet(invocation, name):
    click.echo(f"hello {name} from {invocation.profile}")
"""


def one_line(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    return result.stderr


def test_a_plugin_s_command_runs_like_one_of_the_core(hermes: Hermes, install: Install) -> None:
    install("hermes-plugin-greet", {"greet": "hermes_plugin_greet:greet"}, GREET)
    result = hermes("--profile", "work", "greet", "Zoë")
    assert (result.returncode, result.stdout) == (0, "hello Zoë from work\n")
    assert result.stderr == "loading...\n", "what is printed while it loads is no output"
    assert "Usage: hermes greet" in hermes("greet", "--help").stdout
    assert "Did you mean greet?" in hermes("gret").stderr


def test_the_core_s_commands_and_help_do_not_touch_it(hermes: Hermes, install: Install) -> None:
    source = "raise SystemExit('imported')"
    install("hermes-plugin-greet", {"greet": "hermes_plugin_greet:x", "paths": "gone:x"}, source)
    for arguments in (("--help",), ("paths",), ("--version",)):
        result = hermes(*arguments)
        assert (result.returncode, result.stderr) == (0, "")


def test_a_command_that_cannot_be_imported_is_one_clear_line(
    hermes: Hermes, install: Install
) -> None:
    install(
        "hermes-plugin-broken",
        {
            "syntax": "hermes_plugin_broken:x",
            "missing": "no_such_module:x",
            "number": "math:pi",
            "attribute": "math:tau_and_a_half",
        },
        "import os\nos.getcwd((",
    )
    for command, reason in {
        "syntax": "SyntaxError",
        "missing": "ModuleNotFoundError: No module named 'no_such_module'",
        "attribute": "AttributeError",
        "number": "not a click command",
    }.items():
        line = one_line(hermes(command))
        assert "hermes-plugin-broken 1.2" in line
        assert reason in line


def test_a_plugin_that_exits_while_it_is_imported_is_told(hermes: Hermes, install: Install) -> None:
    install("hermes-plugin-exit", {"leave": "hermes_plugin_exit:x"}, "raise SystemExit(0)")
    assert "SystemExit" in one_line(hermes("leave"))


def test_two_claims_are_told_and_neither_wins(hermes: Hermes, install: Install) -> None:
    install("hermes-plugin-one", {"greet": "hermes_plugin_one:greet"}, GREET)
    install("hermes-plugin-two", {"greet": "hermes_plugin_two:greet"}, GREET)
    assert "'greet' is claimed by hermes-plugin-one 1.2 and hermes-plugin-two 1.2" in one_line(
        hermes("greet")
    )
