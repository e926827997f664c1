"""Several profiles in one process: who is served, who is not, and what changes while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_core import hookimpl
from hermes_core.errors import ConfigError, NotReady
from hermes_core.gateway import Gateway, hosted
from hermes_core.home import Home
from hermes_core.messages import Accepted, Denied, Received
from hermes_core.redaction import Redactor
from tests.profiles.wire import (
    Brain,
    Wire,
    echo,
    eventually,
    wire_section,
    write_private,
    write_profile,
)


@pytest.fixture(autouse=True)
def _locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_LOCK_DIR", str(tmp_path / "locks"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home", tmp_path / "home")
    home.ensure()
    return home


@asynccontextmanager
async def serving(home: Home, *plugins: object, **options: Any) -> AsyncIterator[Gateway]:
    async with hosted(home, extra=plugins, installed=False, settle=0.05, **options) as running:
        yield running


def two(home: Home) -> None:
    """The profiles default, for user 1, and work, for user 2."""
    gateway = '[gateway]\nprofiles = ["default", "work"]\n'
    write_profile(home, "default", gateway + wire_section("1"), "WIRE_TOKEN=100-secret-a\n")
    write_profile(home, "work", wire_section("2"), "WIRE_TOKEN=200-secret-b\n")


async def ask(wire: Wire, expected: type[Received], **said: Any) -> None:
    """Say something again and again until it has the outcome that a change of settings brings."""
    async with asyncio.timeout(20):
        while not isinstance(await wire.say("again", **said), expected):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


@pytest.mark.case("PR-12")
def test_each_profile_is_judged_by_its_own_list(home: Home) -> None:
    async def main() -> None:
        two(home)
        wire = Wire()
        async with serving(home, wire, Brain(echo)):
            await wire.until(lambda wire: len(wire.contexts) == 2)
            matrix = [
                type(await wire.say(profile=profile, user=user))
                for profile in ("default", "work")
                for user in ("1", "2")
            ]
            assert matrix == [Accepted, Denied, Denied, Accepted]
            write_profile(home, "work", wire_section())
            write_private(home.secrets_file("work"), "WIRE_TOKEN=200-secret-b\n")
            await ask(wire, Denied, profile="work", user="2")
            open_to_all = wire_section(more="allow_all = true")
            write_profile(
                home, "default", '[gateway]\nprofiles = ["default", "work"]\n' + open_to_all
            )
            write_private(home.secrets_file(), "WIRE_TOKEN=100-secret-a\n")
            await ask(wire, Accepted, profile="default", user="3")
            assert isinstance(await wire.say(profile="work", user="3"), Denied)

    run(main())


@pytest.mark.case("PR-03")
@pytest.mark.parametrize(
    "secrets", ["", "WIRE_TOKEN=\n", "WIRE_TOKEN=x y\n", "OTHER=1\n"], ids=repr
)
def test_a_missing_credential_is_not_borrowed(
    home: Home, secrets: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        two(home)
        write_private(home.secrets_file(), "")
        monkeypatch.setenv("WIRE_TOKEN", "100-secret-a")
        write_private(home.secrets_file("work"), secrets)
        wire = Wire()
        async with serving(home, wire, Brain(echo)) as gateway:
            await wire.until(lambda wire: bool(wire.contexts))
            assert wire.connected == ["100-secret-a"]
            assert list(gateway.profiles) == ["default"]
            assert "secrets.env" in gateway.unserved["work"]

    run(main())


def test_an_invalid_default_profile_is_an_error_and_another_one_is_left_out(home: Home) -> None:
    async def main() -> None:
        two(home)
        home.config_file("work").write_text("[platforms.wire\n")
        async with serving(home, Wire(), Brain(echo)) as gateway:
            assert list(gateway.profiles) == ["default"]
            assert "config.toml:1" in gateway.unserved["work"]
        home.config_file().write_text("[platforms.wire\n")
        with pytest.raises(ConfigError):
            async with serving(home, Wire(), Brain(echo)):
                pass

    run(main())


@pytest.mark.parametrize("name", ["../x", "wоrk", "default", "", "A"])
def test_a_list_of_profiles_with_an_impossible_name_is_an_error(home: Home, name: str) -> None:
    async def main() -> None:
        home.config_file().write_text(f'[gateway]\nprofiles = ["default", "{name}"]\n')
        with pytest.raises(ConfigError, match=r"gateway\.profiles\[1\]"):
            async with serving(home, Wire(), Brain(echo)):
                pass
        assert not (home.state_root / "profiles").exists()

    run(main())


def test_a_profile_that_is_created_later_is_served_then_and_one_that_is_deleted_no_more(
    home: Home,
) -> None:
    async def main() -> None:
        two(home)
        shutil.rmtree(home.config_dir("work"))
        wire = Wire()
        async with serving(home, wire, Brain(echo)) as gateway:
            await wire.until(lambda wire: ("default", "default") in wire.contexts)
            assert "work" in gateway.unserved
            two(home)
            await wire.until(lambda wire: ("work", "default") in wire.contexts)
            await wire.say("served", profile="work", user="2")
            await wire.until(lambda wire: ("200", "c1", "served") in wire.sent)
            assert gateway.unserved == {}
            shutil.rmtree(home.config_dir("work"))
            await eventually(lambda: "work" in gateway.unserved)
            assert list(gateway.profiles) == ["default"]
            assert not home.config_dir("work").exists()

    run(main())


def test_a_profile_that_is_replaced_by_another_one_of_its_name_is_served_as_that(
    home: Home,
) -> None:
    async def main() -> None:
        two(home)
        wire = Wire()
        async with serving(home, wire, Brain(echo)) as gateway:
            await wire.until(lambda wire: len(wire.contexts) == 2)
            first = gateway.profiles["work"].scope.uuid
            await wire.say("of the first", profile="work", user="2")
            await wire.until(lambda wire: len(wire.sent) == 1)
            shutil.rmtree(home.config_dir("work"))
            two(home)
            await wire.until(lambda wire: len(wire.connected) == 3)
            await eventually(lambda: "work" in gateway.profiles)
            second = gateway.profiles["work"]
            assert second.scope.uuid != first
            assert await second.store.write(
                lambda tx: tx.execute("SELECT COUNT(*) FROM inbox").fetchone()
            ) == (0,)

    run(main())


@pytest.mark.case("CF-05")
def test_an_invalid_edit_keeps_what_is_in_force_and_the_next_good_one_is_taken(home: Home) -> None:
    async def main() -> None:
        two(home)
        gate = asyncio.Event()

        async def wait(turn: object) -> str:
            await gate.wait()
            return "done"

        wire = Wire()
        async with serving(home, wire, Brain(wait)) as gateway:
            await wire.until(lambda wire: len(wire.contexts) == 2)
            work = gateway.profiles["work"]
            good = home.config_file("work").read_text()
            await wire.say(profile="work", user="2")
            for bad in (
                "[platforms.wire",
                good.replace("allowed_users = [", "allowed_users = [7, "),
            ):
                home.config_file("work").write_text(bad)
                await eventually(lambda: bool(work.refused))
                assert "config.toml" in str(work.status()["settings"])
                assert isinstance(await wire.say(profile="work", user="2"), Accepted)
                work.refused = ""
            home.config_file("work").write_text(good.replace('"2"', '"2", "3"'))
            await ask(wire, Accepted, profile="work", user="3")
            assert work.refused == ""
            assert wire.sent == []  # the turn went on through all of it
            gate.set()
            await wire.until(lambda wire: ("200", "c1", "done") in wire.sent)
            assert wire.connected.count("200-secret-b") == 1

    run(main())


@pytest.mark.case("CF-17")
def test_only_the_account_that_changed_connects_anew_and_loses_nothing(home: Home) -> None:
    async def main() -> None:
        two(home)
        wire = Wire()
        async with serving(home, wire, Brain(echo)):
            await wire.until(lambda wire: len(wire.contexts) == 2)
            talking = asyncio.create_task(_talk(wire))
            write_private(home.secrets_file("work"), "WIRE_TOKEN=201-secret-c\n")
            await wire.until(lambda wire: "201-secret-c" in wire.connected)
            before = len(wire.sent)
            await wire.until(lambda wire: len(wire.sent) > before + 3)
            talking.cancel()
            accepted = await talking
            await wire.until(lambda wire: len(wire.sent) >= len(accepted))
            assert {text for _, _, text in wire.sent} >= set(accepted)
            assert wire.connected.count("100-secret-a") == 1

    async def _talk(wire: Wire) -> list[str]:
        accepted: list[str] = []
        try:
            for number in range(10_000):
                text = f"message {number}"
                with contextlib.suppress(NotReady):
                    if isinstance(await wire.say(text, profile="work", user="2"), Accepted):
                        accepted.append(text)
        except asyncio.CancelledError:
            pass
        return accepted

    run(main())


def test_hooks_reach_the_profiles_that_have_their_plugin_enabled(home: Home) -> None:
    async def main() -> None:
        two(home)
        heard: list[str] = []

        class Observer:
            @hookimpl
            def on_turn_end(self, scope: Any) -> None:
                heard.append(scope.name)

        with home.config_file("work").open("a") as file:
            file.write('[plugins]\ndisabled = ["observer"]\n')
        wire = Wire()
        async with serving(home, ("observer", Observer()), wire, Brain(echo)):
            await wire.until(lambda wire: len(wire.contexts) == 2)
            await wire.say("a", profile="work", user="2")
            await wire.say("b", user="1")
            await wire.until(lambda wire: len(wire.sent) == 2)
        assert heard == ["default"]

    run(main())


def test_secrets_leave_the_environment_and_the_logs(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        two(home)
        write_private(home.secrets_file(), "")
        monkeypatch.setenv("WIRE_TOKEN", "100-marked")
        monkeypatch.setenv("WIRE_OTHER", "marked-of-a-broken-file")
        write_profile(home, "idle", 'key = "env:WIRE_OTHER')
        redactor = Redactor()
        seen: list[str | None] = []

        class Early:
            @hookimpl
            def platforms(self) -> list[Any]:
                seen.append(os.environ.get("WIRE_TOKEN"))
                return []

        wire = Wire()
        async with serving(home, Early(), wire, Brain(echo), redactor=redactor) as gateway:
            await wire.until(lambda wire: len(wire.contexts) == 2)
            assert seen == [None]
            assert "WIRE_TOKEN" not in os.environ
            assert "WIRE_OTHER" not in os.environ
            assert redactor("100-marked 200-secret-b") == "*** ***"
            assert gateway.profiles["default"].scope.secrets.get("PATH") == os.environ["PATH"]
            assert gateway.profiles["work"].scope.secrets.get("PATH") is None
            for profile in gateway.profiles.values():
                assert "WIRE_TOKEN" not in profile.scope.child_environment()

    run(main())


@pytest.mark.case("CF-03")
def test_a_file_that_is_written_slowly_opens_and_closes_nothing_meanwhile(home: Home) -> None:
    tables = "".join(f"[hooks.unknown{number}]\nkey = {number}\n" for number in range(40))

    async def main() -> None:
        wire = Wire()
        whole = '[agent]\nuse = "brain"\n' + tables + wire_section("1")
        write_profile(home, "default", wire_section("1"), "WIRE_TOKEN=100-secret\n")
        async with hosted(home, extra=[wire, Brain(echo)], installed=False, settle=0.5) as gateway:
            default = gateway.profiles["default"]
            await wire.until(lambda wire: bool(wire.contexts))
            for number in range(3):
                text = whole.replace('"1"', f'"1", "{number + 50}"')
                with home.config_file().open("w") as file:
                    for line in text.splitlines(keepends=True):
                        file.write(line)
                        file.flush()
                        assert isinstance(await wire.say(user="1"), Accepted)
                        assert isinstance(await wire.say(user="9"), Denied)
                        await asyncio.sleep(0.002)
                await ask(wire, Accepted, user=str(number + 50))
                assert default.refused == ""
            assert wire.connected == ["100-secret"]

    run(main())


@pytest.mark.case("CF-17")
def test_settings_of_the_process_change_for_every_profile(home: Home) -> None:
    async def main() -> None:
        two(home)
        gates = {name: asyncio.Event() for name in ("a", "b", "c")}
        running: list[str] = []

        async def slow(turn: Any) -> str:
            text = turn.messages[0].text
            running.append(text)
            await gates[text].wait()
            return str(text)

        wire = Wire()
        async with serving(home, wire, Brain(slow)) as gateway:
            await wire.until(lambda wire: len(wire.contexts) == 2)
            original = home.config_file().read_text()
            home.config_file().write_text(
                original.replace("[gateway]\n", "[gateway]\nmax_running_turns = 1\n", 1)
            )
            work = gateway.profiles["work"]
            await eventually(lambda: work.settings.gateway.max_running_turns == 1)
            await wire.say("a", profile="work", user="2", chat="a")
            await eventually(lambda: running == ["a"])
            await wire.say("b", profile="default", user="1", chat="b")
            await wire.say("c", profile="work", user="2", chat="c")
            await asyncio.sleep(0)
            assert running == ["a"]
            home.config_file().write_text(original)
            await eventually(lambda: sorted(running) == ["a", "b", "c"])
            for gate in gates.values():
                gate.set()
            await wire.until(lambda wire: len(wire.sent) == 3)
            assert work.status()["settings"] == {
                "refused": "",
                "needs_restart": (),
                "warnings": (),
            }
            home.config_file().write_text(
                original.replace("[gateway]\n", '[gateway]\ndurability = "normal"\n', 1)
            )
            default = gateway.profiles["default"]
            await eventually(lambda: "gateway.durability" in str(default.status()["settings"]))

    run(main())
