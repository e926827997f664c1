"""`hermes doctor`: every trouble is found, named, and comes with a remedy."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_core.supervision.lock import HomeLock
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from tests.cli.rows import rows_in, run

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]
Trouble = Callable[[Path], None]

PLUGIN = """
from hermes_core import Check, Finding, HermesError, hookimpl

def broken():
    raise RuntimeError("boom")

def told():
    raise HermesError("no luck", where="there", remedy="try harder")

@hookimpl
def doctor_checks(scope):
    return [
        Check("fine", lambda: Finding("ok", f"of {scope.name}")),
        Check("broken", broken),
        Check("told", told),
    ]
"""


def results(hermes: Hermes, code: int | None = None) -> dict[str, dict[str, Any]]:
    result = hermes("doctor", "--json")
    found = {row["check"]: row for row in json.loads(result.stdout)}
    failed = any(row["verdict"] == "failed" for row in found.values())
    assert result.returncode == int(failed)
    assert code is None or result.returncode == code, result.stdout
    return found


def home_of(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


def install(site: Path, name: str, source: str) -> None:
    package = name.replace("-", "_")
    (site / f"{package}.py").write_text(source)
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    needs = "Requires-Dist: hermes-gateway[hooks-1]>=0.1"
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}\n\n"
    )
    point = name.removeprefix("hermes-plugin-")
    (info / "entry_points.txt").write_text(f"[hermes.plugins]\n{point} = {package}\n")


def test_an_empty_home_is_no_failure_and_stays_empty(hermes: Hermes, tmp_path: Path) -> None:
    found = results(hermes, 0)
    assert found["home"]["verdict"] == "warning"
    assert "`hermes setup`" in found["home"]["remedy"]
    assert not (tmp_path / "home").exists()
    text = hermes("doctor").stdout
    assert text.splitlines()[-1].endswith("none failed, 1 warning.")


def test_a_sound_home(hermes: Hermes, tmp_path: Path) -> None:
    home = home_of(tmp_path)
    with rows_in(home / "state.db"):
        pass
    (home / "config.toml").write_text('[agent]\nuse = "echo"\n')
    found = results(hermes, 0)
    assert {row["verdict"] for row in found.values()} == {"ok"}
    assert set(found) >= {"python", "home", "disk", "settings", "secrets", "plugins", "database"}


def bad_mode(home: Path) -> None:
    home.chmod(0o777)


def bad_settings(home: Path) -> None:
    (home / "config.toml").write_text("[sessions]\nbusy = 7\n")


def unreadable_settings(home: Path) -> None:
    (home / "config.toml").write_text("[sessions\n")


def absent_profile(home: Path) -> None:
    (home / "config.toml").write_text('[gateway]\nprofiles = ["default", "work"]\n')


def open_secrets(home: Path) -> None:
    (home / "secrets.env").write_text("TOKEN=x\n")
    (home / "secrets.env").chmod(0o644)


def foreign_database(home: Path) -> None:
    (home / "state.db").write_text("not a database, but longer than its header would be " * 9)


def damaged_database(home: Path) -> None:
    with rows_in(home / "state.db") as rows:
        for number in range(300):
            rows.arrive("text " * 100, event=f"e{number}", chat=f"c{number}")
    content = bytearray((home / "state.db").read_bytes())
    for page in range(3, len(content) // 4096, 2):
        content[page * 4096 : page * 4096 + 2000] = b"\x55" * 2000
    (home / "state.db").write_bytes(content)


def shared_database(home: Path) -> None:
    with rows_in(home / "state.db"):
        pass
    (home / "state.db").chmod(0o644)


@pytest.mark.parametrize(
    ("trouble", "check", "said"),
    [
        (bad_mode, "home", "can be written by others (mode 0777)"),
        (bad_settings, "settings", "config.toml:2: sessions.busy"),
        (unreadable_settings, "settings", "config.toml:1: not TOML"),
        (absent_profile, "settings", "there is no profile work, though [gateway] profiles names"),
        (open_secrets, "secrets", "other users have access"),
        (foreign_database, "database", "not a state database of Hermes"),
        (damaged_database, "database", ""),
        (shared_database, "database", "mode 0644"),
    ],
)
def test_trouble_is_found_and_has_a_remedy(
    trouble: Trouble, check: str, said: str, hermes: Hermes, tmp_path: Path
) -> None:
    trouble(home_of(tmp_path))
    found = results(hermes, 1)[check]
    assert found["verdict"] == "failed"
    assert said in found["text"]
    assert found["remedy"] or "chmod 600" in found["text"]


def test_settings_that_cannot_be_read_are_told_once(hermes: Hermes, tmp_path: Path) -> None:
    unreadable_settings(home_of(tmp_path))
    result = hermes("doctor")
    assert (result.stdout + result.stderr).count("not TOML") == 1


def test_a_profile_that_is_not_there_is_not_looked_at(hermes: Hermes) -> None:
    result = hermes("--profile", "work", "doctor")
    assert (result.returncode, result.stdout) == (2, "")
    assert "there is no profile work" in result.stderr


def test_a_broken_plugin_is_named(hermes: Hermes, site: Path) -> None:
    install(site, "hermes-plugin-bad", "import nothing_of_that_name\n")
    found = results(hermes, 1)["plugins"]
    assert "bad (hermes-plugin-bad 1.0)" in found["text"]
    assert "ModuleNotFoundError" in found["text"]
    assert "[plugins] disabled" in found["remedy"]


def test_plugins_bring_checks_of_their_own(hermes: Hermes, site: Path, tmp_path: Path) -> None:
    home_of(tmp_path)
    install(site, "hermes-plugin-checks", PLUGIN)
    install(site, "hermes-plugin-worse", PLUGIN.replace("return [", "return 1 / 0, ["))
    found = results(hermes, 1)
    assert found["fine"] == {
        "check": "fine", "by": "checks", "verdict": "ok", "text": "of default", "remedy": "",
    }  # fmt: skip
    assert "RuntimeError: boom" in found["broken"]["text"]
    assert (found["told"]["text"], found["told"]["remedy"]) == ("there: no luck", "try harder")
    assert "ZeroDivisionError" in found["worse"]["text"]
    assert "fine (checks)" in hermes("doctor").stdout


@pytest.mark.case("CL-01")
def test_a_gateway_that_runs_and_one_that_does_not_answer(hermes: Hermes, tmp_path: Path) -> None:
    async def play() -> dict[str, dict[str, Any]]:
        async with gateway(tmp_path / "home", ScriptedPlatform(), ScriptedAgent()):
            return await asyncio.to_thread(results, hermes)

    assert run(play())["gateway"]["text"].startswith("runs as process ")
    with HomeLock(tmp_path / "home" / "gateway.lock", runs="a test"):
        found = results(hermes, 1)["gateway"]
    assert found["verdict"] == "failed"
    assert "(a test) holds this home" in found["text"]
    assert "`hermes run --replace`" in found["remedy"]
    assert results(hermes)["gateway"]["text"] == "none runs for this home"
