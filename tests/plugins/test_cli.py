"""`hermes hooks` and `hermes plugins`, as processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.support import Installer

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]

GOOD = """
    from hermes_core import hookimpl

    print("noise")

    @hookimpl(trylast=True)
    def on_turn_end(): ...
"""
EARLY = """
    from hermes_core import hookimpl

    @hookimpl
    def on_turn_end(): ...
"""
LINE = """
    from hermes_core import Adapter, Platform, Settings, hookimpl

    class LineAdapter(Adapter):
        @hookimpl
        async def connect(self): ...

        @hookimpl
        async def send(self, message): ...

    @hookimpl
    def platforms():
        return [Platform(name="line", adapter=LineAdapter, settings=Settings, max_length=2000)]
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def hermes(site: Installer, home: Path) -> Hermes:
    """Run a command to its end, in a home of its own."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hermes_core.cli", *arguments],
            env={**site.environment, "HERMES_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def rows(done: subprocess.CompletedProcess[str], *plugins: str) -> list[dict[str, Any]]:
    """The rows of a JSON listing that are about `plugins`, in that order."""
    found = {row["plugin"]: row for row in json.loads(done.stdout)}
    return [found[name] for name in plugins]


@pytest.mark.case("PL-01")
def test_commands_work_with_broken_plugins_installed(site: Installer, hermes: Hermes) -> None:
    site.install("hermes-plugin-a", "import nothing_of_that_name")
    site.install("hermes-plugin-good", GOOD)
    site.install("hermes-plugin-z", "def (")
    assert hermes("--help").returncode == 0
    listed = hermes("plugins", "list", "--json")
    assert listed.returncode == 0
    broken, good, unreadable = rows(listed, "a", "good", "z")
    assert (broken["state"], broken["distribution"]) == ("quarantined", "hermes-plugin-a")
    assert "ModuleNotFoundError" in broken["reason"]
    assert "SyntaxError" in unreadable["reason"]
    assert (good["state"], good["hooks"]) == ("active", ["on_turn_end"])
    assert hermes("plugins", "list", "--strict").returncode == 1


def test_a_listing_for_people(site: Installer, hermes: Hermes, home: Path) -> None:
    site.install("hermes-plugin-line", LINE, version="1.2", commands=["line-test"])
    site.install("hermes-plugin-off", GOOD)
    site.install("hermes-plugin-other", point="", version="9")
    (home / "config.toml").write_text('[plugins]\ndisabled = ["off"]\nrequired = ["absent"]\n')
    lines = [line.split() for line in hermes("plugins", "list").stdout.splitlines()]
    assert lines[0] == ["PLUGIN", "STATE", "VERSION", "DISTRIBUTION", "WHAT"]
    what = ["platform", "line;", "command", "`hermes", "line-test`"]
    assert ["line", "active", "1.2", "hermes-plugin-line", *what] in lines
    assert ["off", "left", "out", "1.0", "hermes-plugin-off", "disabled"] in lines
    assert ["absent", "missing", "required,", "and", "not", "installed"] in lines
    assert ["foreign", "9", "hermes-plugin-other", "offers", "no", "plugin", "to", "us"] in lines


def test_a_listing_survives_settings_that_cannot_be_read(
    site: Installer, hermes: Hermes, home: Path
) -> None:
    site.install("hermes-plugin-good", GOOD)
    (home / "config.toml").write_text("[plugins\n")
    listed = hermes("plugins", "list", "--json")
    assert rows(listed, "good")[0]["state"] == "active"
    assert "config.toml" in listed.stderr


def test_info_tells_all_about_a_plugin(site: Installer, hermes: Hermes) -> None:
    site.install("hermes-plugin-line", LINE, header="Project-URL: Issues, https://b.example")
    site.install("hermes-plugin-bad", "1 / 0")
    told = hermes("plugins", "info", "hermes-plugin-line").stdout.splitlines()
    assert "hooks: platforms, connect, send" in told
    assert "tracker: https://b.example" in told
    assert "ZeroDivisionError: division by zero" in hermes("plugins", "info", "bad").stdout
    unknown = hermes("plugins", "info", "lime")
    assert unknown.returncode == 1
    assert "there is no plugin 'lime' (did you mean line?)" in unknown.stderr


def test_stats_needs_a_running_gateway(hermes: Hermes) -> None:
    asked = hermes("plugins", "stats")
    assert asked.returncode == 1
    assert "no gateway is running" in asked.stderr
    assert "`hermes run`" in asked.stderr


def test_hooks_with_their_implementers_in_the_order_of_the_calls(
    site: Installer, hermes: Hermes
) -> None:
    site.install("hermes-plugin-a", GOOD)
    site.install("hermes-plugin-b", EARLY)
    site.install("hermes-plugin-line", LINE)
    (hook,) = json.loads(hermes("hooks", "list", "on_turn_end", "--json").stdout)
    who = [entry["plugin"] for entry in hook["implementations"]]
    assert [name for name in who if name in {"a", "b"}] == ["b", "a"]
    assert [entry["order"] for entry in hook["implementations"]] == list(range(1, len(who) + 1))
    assert (hook["kind"], hook["since"]) == ("notify", "1.0")
    assert hook["arguments"] == ["scope", "turn"]
    text = hermes("hooks", "list").stdout
    assert "  on_turn_end(scope, turn)  since 1.0\n      A turn ended, whatever way: " in text
    assert "line (hermes-plugin-line 1.0): hermes_plugin_line.LineAdapter" in text


def test_the_manual_of_one_hook(hermes: Hermes) -> None:
    text = hermes("hooks", "list", "authorize").stdout
    assert text.startswith("authorize(scope, sender, address)\ndecide hook, since hook API 1.0, ")
    assert "a failure refuses" in text
    unknown = hermes("hooks", "list", "autorize")
    assert unknown.returncode == 1
    assert "there is no hook 'autorize' (did you mean authorize?)" in unknown.stderr


def test_a_list_of_hooks_needs_no_event_loop(site: Installer) -> None:
    program = (
        "import sys; from hermes_core.cli import frame; "
        "import hermes_core.cli.hooks, hermes_core.cli.plugins; "
        "print(sorted({'asyncio', 'peewee', 'importlib.metadata', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=site.environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
