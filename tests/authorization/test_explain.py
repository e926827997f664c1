"""`hermes auth`: each check that decides about a sender, and who was denied."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_core import Sender, hookimpl
from hermes_core.cli import frame
from hermes_core.gateway import hosted
from hermes_core.home import Home
from tests.core.support import until
from tests.profiles.wire import Brain, Wire, echo, wire_section, write_profile

CONFIG = wire_section(
    "1",
    "666",
    more=(
        'admins = ["3"]\npairing = true\n'
        '[platforms.wire.groups.team]\nallowed_users = ["2"]\nrequire_mention = false\n'
        '[authorization]\nauthorizers = ["judge"]\n'
    ),
)
SITUATIONS: list[tuple[str, list[str], bool, str, list[str]]] = [
    (
        "somebody on the list",
        ["--user", "1"],
        True,
        "allowed_users",
        ["passes", "passes", "passes", "abstains", "grants", "abstains"],
    ),
    (
        "a stranger",
        ["--user", "9"],
        False,
        "nobody granted",
        ["passes", "passes", "passes", "abstains", "abstains", "abstains"],
    ),
    (
        "a group without a mention",
        ["--user", "1", "--chat", "g", "--no-mention"],
        False,
        "not addressed",
        ["passes", "passes", "denies"],
    ),
    (
        "a member of a group with a list",
        ["--user", "2", "--chat", "team", "--no-mention"],
        True,
        "groups.team.allowed_users",
        ["passes", "passes", "passes", "abstains", "grants", "abstains"],
    ),
    (
        "another bot",
        ["--user", "1", "--bot"],
        False,
        "other bots may not speak here",
        ["passes", "passes", "denies"],
    ),
    (
        "somebody whom a plugin vetoes",
        ["--user", "666"],
        False,
        "plugin judge vetoed",
        ["passes", "passes", "passes", "denies"],
    ),
    ("what can be no id", ["--user", "Robin"], False, "not valid", ["denies"]),
    (
        "the account itself",
        ["--user", "100"],
        False,
        "own message",
        ["passes", "denies"],
    ),
]


class Judge:
    @hookimpl
    def authorize(self, sender: Sender) -> Any:
        return "no" if sender.id == "666" else None


def test_every_situation_is_explained_as_it_is_decided(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(home.state_root))
    write_profile(home, "default", CONFIG, "WIRE_TOKEN=100-secret\n")

    def hermes(*arguments: str) -> tuple[int, str]:
        code = frame.run(["auth", "explain", "--platform", "wire", *arguments])
        return code, capsys.readouterr().out

    async def main() -> None:
        wire = Wire()
        plugins = [("judge", Judge()), wire, Brain(echo)]
        async with hosted(home, extra=plugins, installed=False) as gateway:
            (account,) = gateway.profiles["default"].accounts
            await until(lambda: account.connected)
            for what, arguments, admitted, reason, outcomes in SITUATIONS:
                code, out = await asyncio.to_thread(hermes, *arguments, "--json")
                found = json.loads(out)
                assert code == (0 if admitted else 1), what
                assert found["admitted"] is admitted
                assert reason in found["reason"]
                assert [check["outcome"] for check in found["checks"]] == outcomes, what
                _, text = await asyncio.to_thread(hermes, *arguments)
                assert all(check["name"] in text for check in found["checks"])
                assert reason in text
            # What is explained is what happens.
            for user in ("1", "9", "666"):
                outcome = type(await wire.say(user=user)).__name__
                code, _ = await asyncio.to_thread(hermes, "--user", user)
                assert (outcome == "Accepted") is (code == 0)
            code, _ = await asyncio.to_thread(hermes, "--profile", "gone", "--user", "1")
            assert code == 1

    asyncio.run(main())
    assert frame.run(["auth", "denials", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["sender_id"], row["reason"]) for row in rows} == {
        ("9", "nobody granted"),
        ("666", "plugin judge vetoed"),
    }
    assert frame.run(["auth", "denials"]) == 0
    assert "666" in capsys.readouterr().out


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment in which the platform `wire` and the agent `brain` are installed."""
    site = tmp_path / "site"
    info = site / "wire-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "wired.py").write_text(
        "from tests.profiles.wire import Brain, Wire, echo\nwire, brain = Wire(), Brain(echo)\n"
    )
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: hermes-plugin-wire\nVersion: 1.0\n"
        "Requires-Dist: hermes-gateway[hooks-1]\n"
    )
    (info / "entry_points.txt").write_text(
        "[hermes.plugins]\nwire = wired:wire\nbrain = wired:brain\n"
    )
    paths = os.pathsep.join([str(site), str(Path(__file__).parents[2])])
    return {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}


def test_without_a_gateway_the_settings_are_asked_and_nothing_is_made(
    home: Home, installed: dict[str, str]
) -> None:
    write_profile(home, "default", wire_section("1"), "WIRE_TOKEN=100-secret\n")
    write_profile(home, "work", wire_section("2"), "WIRE_TOKEN=200-secret\n")
    before = sorted(home.state_root.rglob("*"))

    def explain(*arguments: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "hermes_core.cli", *arguments],
            env={**installed, "HERMES_HOME": str(home.state_root)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout + done.stderr

    asked = ("auth", "explain", "--platform", "wire", "--user")
    assert explain(*asked, "1")[0] == 0
    assert explain(*asked, "2")[0] == 1
    code, text = explain("--profile", "work", *asked, "2")
    assert (code, "allowed_users" in text) == (0, True)
    assert explain(*asked, "1", "--profile", "work")[0] == 1
    code, text = explain("auth", "explain", "--platform", "absent", "--user", "1")
    assert (code, "no account absent" in text) == (1, True)
    assert sorted(home.state_root.rglob("*")) == before
