"""`hermes profiles`: making, copying and deleting profiles."""

from __future__ import annotations

import asyncio
import io
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_core.cli import frame
from hermes_core.errors import ConfigError
from hermes_core.gateway import hosted
from hermes_core.home import Home
from hermes_core.profiles import identify, read_uuid
from tests.profiles.wire import (
    Brain,
    Wire,
    echo,
    eventually,
    wire_section,
    write_private,
    write_profile,
)

Hermes = Callable[..., tuple[int, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HERMES_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv("HERMES_HOME", str(tmp_path / "home"))
    return Home.locate()


@pytest.fixture
def hermes(capsys: pytest.CaptureFixture[str]) -> Hermes:
    def run(*arguments: str) -> tuple[int, str]:
        code = frame.run(["profiles", *arguments])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def test_a_new_profile_is_private_and_nobody_may_speak_to_it(home: Home, hermes: Hermes) -> None:
    code, out = hermes("create", "work")
    assert code == 0
    assert "[gateway] profiles" in out
    for path in (home.config_dir("work"), home.config_file("work"), home.secrets_file("work")):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert read_uuid(home.state_dir("work")) is not None
    assert hermes("create", "work")[0] == 2
    assert hermes("create", "../x")[0] == 2
    assert hermes("create", "default")[0] == 2
    assert [path.name for path in (home.state_root / "profiles").iterdir()] == ["work"]


def test_a_copy_has_the_settings_and_neither_secrets_nor_memories(
    home: Home, hermes: Hermes
) -> None:
    config = "# mine\n[gateway]\nmax_running_turns = 7\n" + wire_section("1")
    write_profile(home, "default", config, "WIRE_TOKEN=100-marked\n")
    home.database().write_bytes(b"memories")
    code, out = hermes("clone", "default", "work")
    assert code == 0
    assert "secrets.env" in out
    copied = home.config_file("work").read_text()
    assert 'allowed_users = ["1"]' in copied
    assert "gateway" not in copied
    assert "WIRE_TOKEN=\n" in home.secrets_file("work").read_text()
    everything = b"".join(p.read_bytes() for p in home.state_dir("work").iterdir() if p.is_file())
    assert b"marked" not in everything
    assert not home.database("work").exists()
    assert read_uuid(home.state_dir("work")) != read_uuid(home.state_dir())
    assert hermes("clone", "gone", "other")[0] == 2


def test_a_profile_that_was_removed_by_hand_is_listed_with_what_to_do(
    home: Home, hermes: Hermes
) -> None:
    hermes("create", "work")
    home.config_file().write_text('[gateway]\nprofiles = ["default", "work"]\n')
    for directory in {home.config_dir("work"), home.state_dir("work")}:
        shutil.rmtree(directory)
    code, out = hermes("list")
    assert code == 0
    assert "none: there is no profile work, though [gateway] profiles names it" in out
    assert "`hermes profiles create work`" in out


def test_deleting_asks_and_spares_the_default_profile(
    home: Home, hermes: Hermes, monkeypatch: pytest.MonkeyPatch
) -> None:
    hermes("create", "work")
    assert hermes("delete", "default", "--yes")[0] == 2
    assert hermes("delete", "gone", "--yes")[0] == 2
    for answer, said in {"": "the input ended", "n\n": "nothing is deleted"}.items():
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        code, out = hermes("delete", "work")
        assert (code, said in out) == (1, True), out
    assert home.config_dir("work").is_dir()
    assert hermes("delete", "work", "--yes")[0] == 0
    assert not home.config_dir("work").exists()


def test_a_gateway_drains_a_profile_before_it_is_deleted_and_a_new_one_inherits_nothing(
    home: Home, hermes: Hermes
) -> None:
    async def main() -> None:
        gateway_table = '[gateway]\nprofiles = ["default", "work"]\n'
        write_profile(home, "default", gateway_table + wire_section("1"), "WIRE_TOKEN=100-a\n")
        write_profile(home, "work", wire_section("2"), "WIRE_TOKEN=200-b\n")
        going = asyncio.Event()

        async def slow(turn: object) -> str:
            await going.wait()
            return "done in time"

        wire = Wire()
        async with hosted(home, extra=[wire, Brain(slow)], installed=False, settle=0.05) as gateway:
            await wire.until(lambda wire: len(wire.contexts) == 2)
            identity = gateway.profiles["work"].scope.uuid
            await wire.say("remember me", profile="work", user="2")
            deleting = asyncio.create_task(asyncio.to_thread(hermes, "delete", "work", "--yes"))
            asyncio.get_running_loop().call_later(0.2, going.set)
            code, _ = await deleting
            assert code == 0
            assert ("200", "c1", "done in time") in wire.sent
            assert not home.config_dir("work").exists()
            assert list(gateway.profiles) == ["default"]
            assert (await asyncio.to_thread(hermes, "create", "work"))[0] == 0
            write_profile(home, "work", wire_section("2"), "WIRE_TOKEN=200-b\n")
            await wire.until(lambda wire: len(wire.connected) == 3)
            await eventually(lambda: "work" in gateway.profiles)
            assert gateway.profiles["work"].scope.uuid != identity
            assert (await asyncio.to_thread(hermes, "show", "work"))[0] == 0

    asyncio.run(main())


def test_a_state_that_is_gone_or_of_another_profile_is_not_taken_for_one_s_own(
    tmp_path: Path,
) -> None:
    config, state = tmp_path / "config", tmp_path / "state"
    config.mkdir()
    first = identify(config, state)
    assert identify(config, state) == first == read_uuid(config) == read_uuid(state)
    state.rename(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="is gone"):
        identify(config, state)
    assert not state.exists()
    state.mkdir()
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    identify(stranger, state)
    with pytest.raises(ConfigError, match="another profile"):
        identify(config, state)


def test_children_find_the_same_home_wherever_they_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HERMES_HOME", "relative")
    monkeypatch.setenv("HERMES_LOCK_DIR", str(tmp_path / "locks"))

    async def main() -> None:
        home = Home.locate()
        write_profile(home, "default", wire_section("1"), "WIRE_TOKEN=1-a\n")
        async with hosted(home, extra=[Wire(), Brain(echo)], installed=False) as gateway:
            environment = gateway.profiles["default"].scope.child_environment()
            assert environment["HERMES_HOME"] == str(tmp_path / "relative")
            assert environment["HERMES_PROFILE"] == "default"
            assert os.environ["HERMES_HOME"] == "relative"

    asyncio.run(main())


def test_a_secret_file_that_others_can_read_leaves_its_profile_out(home: Home) -> None:
    async def main() -> None:
        gateway_table = '[gateway]\nprofiles = ["default", "work"]\n'
        write_profile(home, "default", gateway_table + wire_section("1"), "WIRE_TOKEN=1-a\n")
        write_profile(home, "work", wire_section("2"))
        write_private(home.secrets_file("work"), "WIRE_TOKEN=2-b\n")
        home.secrets_file("work").chmod(0o644)
        async with hosted(home, extra=[Wire(), Brain(echo)], installed=False) as gateway:
            assert "chmod 600" in gateway.unserved["work"]

    asyncio.run(main())


@pytest.mark.case("PR-09")
def test_stop_and_status_act_on_the_home_that_is_named_and_on_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERMES_LOCK_DIR", str(tmp_path / "locks"))
    homes = {name: Home(tmp_path / name, tmp_path / name) for name in ("a", "b")}
    for number, home in enumerate(homes.values(), start=1):
        write_profile(home, "default", wire_section("1"), f"WIRE_TOKEN={number}-x\n")
    script = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from hermes_core.errors import HermesError\n"
        "from hermes_core.gateway import hosted\n"
        "from hermes_core.home import Home\n"
        "from tests.profiles.wire import Brain, Wire, echo\n"
        "async def main():\n"
        "    home = Home(Path(sys.argv[1]), Path(sys.argv[1]))\n"
        "    async with hosted(home, extra=[Wire(), Brain(echo)], installed=False):\n"
        "        print('ready', flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "try:\n"
        "    asyncio.run(main())\n"
        "except HermesError as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    running = {
        name: subprocess.Popen(
            [sys.executable, "-c", script, str(home.state_root)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, home in homes.items()
    }

    def hermes(name: str, *arguments: str) -> tuple[int, str]:
        monkeypatch.setenv("HERMES_HOME", str(homes[name].state_root))
        code = frame.run(list(arguments))
        return code, capsys.readouterr().out

    try:
        for process in running.values():
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for name, process in running.items():
            code, out = hermes(name, "status", "--json")
            assert (code, json.loads(out)["pid"]) == (0, process.pid)
        assert hermes("b", "stop")[0] == 0
        assert running["b"].wait(30) == 0
        # A record of b that names the process of a: nobody holds b's lock, so it means nothing.
        record = homes["a"].lock_path.read_bytes()
        homes["b"].lock_path.write_bytes(record)
        assert hermes("b", "status")[0] == 3
        assert hermes("b", "stop")[0] != 0
        assert running["a"].poll() is None
        code, out = hermes("a", "status", "--json")
        assert json.loads(out)["pid"] == running["a"].pid
    finally:
        for process in running.values():
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
