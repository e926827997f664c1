"""`hermes setup`: a few questions, and a settings file that the gateway's own loader takes."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]
Setup = Callable[..., "subprocess.CompletedProcess[str]"]

LINE = """
from hermes_core import Adapter, Platform, Receipt, Secret, Settings, hookimpl

class LineSettings(Settings):
    token: Secret
    relay_url: str
    rooms: tuple[str, ...]
    limit: int
    nice: bool = True

    def __post_init__(self):
        if not self.relay_url.startswith("wss:"):
            raise ValueError("relay_url: expected wss://HOST")

class LineAdapter(Adapter[LineSettings]):
    @hookimpl
    async def connect(self, is_reconnect): return ""
    @hookimpl
    async def send(self, message): return Receipt()

@hookimpl
def platforms():
    return [Platform(name="line", adapter=LineAdapter, settings=LineSettings, max_length=2000)]
"""
AGENT = """
from hermes_core import Agent, AgentType, Settings, hookimpl

class Easy(Settings):
    pass

class Easily(Agent[Easy]):
    async def run(self, turn):
        yield

@hookimpl
def agents():
    return [AgentType(name="easy", agent=Easily, settings=Easy)]
"""
ANSWERS = ["easy", "y", "t0ken 'with\" $spaces\\", "wss://x", "one 'two three'", "7", "u1, u2"]


def install(site: Path, name: str, source: str) -> None:
    package = f"hermes_plugin_{name}"
    (site / f"{package}.py").write_text(source)
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    lines = [f"Name: hermes-plugin-{name}", "Version: 1.0"]
    lines += ["Requires-Dist: hermes-gateway[hooks-1]>=0.1"]
    (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *lines, "", ""]))
    (info / "entry_points.txt").write_text(f"[hermes.plugins]\n{name} = {package}\n")


@pytest.fixture(autouse=True)
def _plugins(site: Path) -> None:
    install(site, "line", LINE)
    install(site, "easy", AGENT)


@pytest.fixture
def setup(environment: dict[str, str]) -> Setup:
    """Run the command with arguments, and pipe the answers in."""

    def run(
        *arguments: str, answers: list[str] | None = None, **more: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hermes_core.cli", *arguments],
            env={**environment, **more}, input="".join(f"{line}\n" for line in answers or []),
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def settings(home: Path) -> dict[str, Any]:
    return tomllib.loads((home / "config.toml").read_text())


def modes(home: Path) -> dict[str, str]:
    return {path.name: f"{path.stat().st_mode & 0o777:o}" for path in home.iterdir()}


def test_defaults_ask_nothing(setup: Setup, hermes: Hermes, home: Path) -> None:
    done = setup("setup", "--defaults", "--agent", "easy")
    assert (done.returncode, done.stderr) == (0, "")
    assert settings(home) == {"agent": {"use": "easy"}}
    assert modes(home) == {"config.toml": "600"}
    assert f"{home.stat().st_mode & 0o777:o}" == "700"
    assert f"Written to {home}/config.toml, and valid." in done.stdout
    assert hermes("config", "check").returncode == 0
    assert hermes("doctor").returncode == 0


def test_answers_through_a_pipe(setup: Setup, hermes: Hermes, home: Path) -> None:
    done = setup("setup", "--agent", "easy", "--platform", "line", answers=ANSWERS[2:])
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert settings(home) == {
        "agent": {"use": "easy"},
        "platforms": {
            "line": {
                "token": "env:LINE_TOKEN",
                "relay_url": "wss://x",
                "rooms": ["one", "two three"],
                "limit": 7,
                "allowed_users": ["u1", "u2"],
            }
        },
    }
    assert modes(home) == {"config.toml": "600", "secrets.env": "600"}
    assert ANSWERS[2] not in done.stdout
    assert hermes("config", "check").returncode == 0
    assert hermes("config", "get", "platforms.line.limit").stdout == "7\n"
    for question in ("line token (a secret, kept in secrets.env)", "line limit (a whole number)"):
        assert question in done.stdout


def test_every_question_has_its_answer(setup: Setup, home: Path) -> None:
    done = setup("setup", answers=["easy", *["n"] * 9])
    assert done.returncode == 0, done.stderr
    assert "Which agent answers? (" in done.stdout
    assert "Connect line? [y/N]: " in done.stdout
    assert settings(home) == {"agent": {"use": "easy"}}


def test_what_was_there_is_kept_unless_told_otherwise(setup: Setup, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text("# mine\n")
    refused = setup("setup", "--defaults")
    assert refused.returncode == 1
    assert "there are settings already: nothing is written" in refused.stderr
    declined = setup("setup", "--agent", "easy", "--platform", "line", answers=[""])
    assert (declined.returncode, declined.stdout.splitlines()[-1]) == (0, "Nothing was changed.")
    assert (home / "config.toml").read_text() == "# mine\n"
    (home / "secrets.env").write_text("# mine too\nOTHER=1\nexport LINE_TOKEN=old\n")
    (home / "secrets.env").chmod(0o600)
    answers = ["yes", "no", "new", *ANSWERS[3:]]
    replaced = setup("setup", "--agent", "easy", "--platform", "line", answers=answers)
    assert replaced.returncode == 0, replaced.stderr
    assert "LINE_TOKEN is set already. Use it as line token? [Y/n]" in replaced.stdout
    assert (home / "config.toml.bak").read_text() == "# mine\n"
    assert (home / "secrets.env").read_text() == "# mine too\nOTHER=1\nLINE_TOKEN=new\n"
    assert set(modes(home).values()) == {"600"}


def test_a_secret_that_is_set_is_not_asked_for(setup: Setup, home: Path) -> None:
    answers = ["y", *ANSWERS[3:]]
    done = setup(
        "setup", "--agent", "easy", "--platform", "line", answers=answers, LINE_TOKEN="known"
    )
    assert done.returncode == 0, done.stderr
    assert settings(home)["platforms"]["line"]["token"] == "env:LINE_TOKEN"
    assert not (home / "secrets.env").exists()


def test_nothing_is_written_before_everything_is_right(setup: Setup, home: Path) -> None:
    line = ("setup", "--agent", "easy", "--platform", "line")
    cases = {
        "the input ended before every question was answered": setup(*line, answers=["x"]),
        "relay_url: expected wss://HOST": setup(*line, answers=["x", "http:", "r", "7", ""]),
        "expected a whole number": setup(*line, answers=["x", "wss://x", "r", "many", ""]),
        "run it without --defaults": setup(*line, "--defaults"),
        "write LINE_TOKEN=... into": setup(*line, "--defaults"),
        'did you mean "line"?': setup("setup", "--platform", "lime"),
        "brings the agent 'esay'": setup("setup", "--agent", "esay"),
        "there is no profile work": setup("--profile", "work", "setup", "--defaults"),
    }
    for said, done in cases.items():
        assert done.returncode != 0
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert not home.exists()


def test_a_person_is_asked_again_and_sees_no_secret(
    environment: dict[str, str], home: Path
) -> None:
    ours, theirs = pty.openpty()
    dialogue = [
        ("token (a secret, kept in secrets.env): ", "s3cret"),
        ("relay_url (a text): ", "http://x"),
        ("rooms (words as in a shell): ", "'open"),
        ("cannot be read: No closing quotation", ""),
        ("rooms (words as in a shell): ", "one"),
        ("limit (a whole number): ", "7"),
        ("nobody yet): ", "u1"),
        ("expected wss://HOST", ""),
        ("token (a secret, kept in secrets.env): ", "s3cret"),
        ("relay_url (a text): ", "wss://x"),
        ("rooms (words as in a shell): ", "one"),
        ("limit (a whole number): ", "7"),
        ("nobody yet): ", "u1"),
        ("and valid.", ""),
    ]
    command = [sys.executable, "-m", "hermes_core.cli", "setup", "--agent", "easy"]
    with subprocess.Popen(
        [*command, "--platform", "line"],
        env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    ) as running:  # fmt: skip
        os.close(theirs)
        shown = ""
        for expected, answer in dialogue:
            while expected not in shown:
                shown += os.read(ours, 4096).decode()
            assert "s3cret" not in shown
            shown = shown.partition(expected)[2]
            if answer:
                os.write(ours, f"{answer}\n".encode())
        assert running.wait(timeout=60) == 0
    os.close(ours)
    assert settings(home)["platforms"]["line"]["relay_url"] == "wss://x"
    assert (home / "secrets.env").read_text() == "LINE_TOKEN=s3cret\n"
