"""No marked value of one profile reaches another one, whatever bad habit a plugin has."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Coroutine
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from hermes_core import Secret, Settings, Turn, hookimpl
from hermes_core.errors import PluginError
from hermes_core.gateway import hosted
from hermes_core.home import Home
from hermes_core.identity_locks import SameBotTwice
from hermes_core.messages import Message, Sender
from hermes_core.services import Section
from hermes_core.store import open_read_only
from hermes_core.store.database import connection_of
from tests.profiles.wire import Brain, Wire, echo, wire_section, write_private, write_profile

KEYS = ("WIRE_TOKEN", "TOOL_KEY")
_CHILD = "import json, os; print(json.dumps(dict(os.environ)))"


@pytest.fixture(autouse=True)
def _locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_LOCK_DIR", str(tmp_path / "locks"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home", tmp_path / "home")
    home.ensure()
    return home


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


class ToolSettings(Settings):
    key: Secret


class Habits:
    """A plugin of bad habits: in each turn it looks for secrets wherever a careless author may."""

    def __init__(self) -> None:
        self.cache: dict[str, str] = {}
        self.contexts: list[Any] = []

    @hookimpl
    def settings(self) -> list[Section]:
        return [Section("tool", ToolSettings)]

    def look(self, scope: Any) -> str:
        """Everything that can be found, as one text."""
        libc = ctypes.CDLL(None)
        libc.getenv.restype = ctypes.c_char_p
        found: list[object] = [dict(os.environ)]
        found += [libc.getenv(name.encode()) for name in KEYS]
        found.append(self._in_a_raw_thread())
        inherited = subprocess.run(
            [sys.executable, "-c", _CHILD], capture_output=True, text=True, check=True
        )
        proper = subprocess.run(
            [sys.executable, "-c", _CHILD],
            capture_output=True,
            text=True,
            check=True,
            env=scope.child_environment(),
        )
        found += [inherited.stdout, proper.stdout]
        found += [scope.secrets.get(name) for name in KEYS]
        found.append(scope.settings.sections["tool"].key.reveal())
        found.append(self.cache.setdefault(scope.name, scope.secrets.get("TOOL_KEY")))
        found += [self._resolved(scope, text) for text in ("file:secret.txt", "file:../x/secret")]
        return repr(found)

    def _in_a_raw_thread(self) -> object:
        seen: list[object] = []
        thread = threading.Thread(target=lambda: seen.extend((dict(os.environ), KEYS)))
        thread.start()
        thread.join()
        return seen

    def _resolved(self, scope: Any, reference: str) -> str:
        try:
            return str(scope.secrets.resolve(reference))
        except Exception as error:
            return str(error)


def mark(name: str, key: str) -> str:
    """The value of a secret of a profile: it says whose it is."""
    return f"{int(sha256(name.encode()).hexdigest()[:8], 16)}-marked-{name}-{key.lower()}."


def populate(home: Home, names: list[str]) -> None:
    listed = json.dumps(names)
    for number, name in enumerate(names):
        config = wire_section("1") + '[tool]\nkey = "env:TOOL_KEY"\n'
        if name == "default":
            config = f"[gateway]\nprofiles = {listed}\n" + config
        secrets = "".join(f"{key}={mark(name, key)}\n" for key in KEYS)
        # Every other profile keeps the key of its tool in a file that refers to nothing else.
        write_profile(home, name, config, secrets if number or name != "default" else "")
        write_private(home.config_dir(name) / "secret.txt", mark(name, "file"))


@pytest.mark.case("PR-01")
@pytest.mark.parametrize("count", [2, 20])
def test_no_marked_value_crosses(home: Home, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["default", *(f"p{number}" for number in range(1, count))]
    populate(home, names)
    for key in KEYS:  # the default profile has its secrets in the environment
        monkeypatch.setenv(key, mark("default", key))
    habits, found = Habits(), dict[str, str]()

    async def answer(turn: Turn) -> str:
        name = turn.scope.name
        found[name] = await asyncio.to_thread(habits.look, turn.scope)
        return f"answer of {name}"

    async def main() -> None:
        wire = Wire()
        async with hosted(home, extra=[habits, wire, Brain(answer)], installed=False) as gateway:
            await wire.until(lambda wire: len(wire.contexts) == count)
            before = dict(os.environ)
            for name in names:
                await wire.say(profile=name, chat=f"chat-{name}")
            await wire.until(lambda wire: len(wire.sent) == count)
            assert dict(os.environ) == before
            sent = {(own_id, chat): text for own_id, chat, text in wire.sent}
            own = {name: mark(name, "").partition("-")[0] for name in names}
            assert sent == {(own[n], f"chat-{n}"): f"answer of {n}" for n in names}
            assert {len(profile.turns.counts) for profile in gateway.profiles.values()} == {1}

    run(main())
    for name in names:
        assert mark(name, "TOOL_KEY") in found[name]
        assert mark(name, "file") in found[name]
        for other in names:
            if other != name:
                assert f"marked-{other}-" not in found[name], f"{name} found a value of {other}"


@pytest.mark.case("PR-07")
def test_what_happens_in_a_profile_is_stored_there_alone(home: Home) -> None:
    populate(home, ["default", "work"])
    write_private(home.secrets_file(), "".join(f"{key}={mark('default', key)}\n" for key in KEYS))

    async def main() -> None:
        wire = Wire()
        async with hosted(home, extra=[Habits(), wire, Brain(echo)], installed=False):
            await wire.until(lambda wire: len(wire.contexts) == 2)
            await wire.say("of work", profile="work")
            await wire.until(lambda wire: len(wire.sent) == 1)

    run(main())
    for name, count in (("default", 0), ("work", 1)):
        database = open_read_only(home.database(name))
        for table in ("inbox", "outbox", "session", "turn"):
            query = f"SELECT COUNT(*) FROM {table}"  # noqa: S608
            assert connection_of(database).execute(query).fetchone() == (count,)
        database.close()


@pytest.mark.case("PR-07")
def test_a_turn_that_a_crash_cut_is_taken_up_in_its_own_profile(home: Home) -> None:
    populate(home, ["default", "work"])
    write_private(home.secrets_file(), "".join(f"{key}={mark('default', key)}\n" for key in KEYS))
    script = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from hermes_core.gateway import hosted\n"
        "from hermes_core.home import Home\n"
        "from tests.profiles.test_isolation import Habits\n"
        "from tests.profiles.wire import Brain, Wire\n"
        "async def die(turn): os._exit(9)\n"
        "async def main():\n"
        "    wire, home = Wire(), Home(Path(sys.argv[1]), Path(sys.argv[1]))\n"
        "    async with hosted(home, extra=[Habits(), wire, Brain(die)], installed=False):\n"
        "        await wire.until(lambda wire: len(wire.contexts) == 2)\n"
        "        await wire.say('cut', profile='work')\n"
        "        await asyncio.sleep(30)\n"
        "asyncio.run(main())\n"
    )
    root = str(Path(__file__).parents[2])
    died = subprocess.run(
        [sys.executable, "-c", script, str(home.state_root)],
        env={**os.environ, "PYTHONPATH": root},
        check=False,
        timeout=60,
    )
    assert died.returncode == 9

    async def main() -> None:
        wire = Wire()
        async with hosted(home, extra=[Habits(), wire, Brain(echo)], installed=False):
            await wire.until(lambda wire: bool(wire.sent))
            own = mark("work", "").partition("-")[0]
            assert wire.sent == [(own, "c1", "cut")]

    run(main())


def test_an_adapter_cannot_speak_for_another_account(home: Home) -> None:
    populate(home, ["default", "work"])
    write_private(home.secrets_file(), "".join(f"{key}={mark('default', key)}\n" for key in KEYS))

    async def main() -> None:
        wire = Wire()
        async with hosted(home, extra=[Habits(), wire, Brain(echo)], installed=False) as gateway:
            await wire.until(lambda wire: len(wire.contexts) == 2)
            context = wire.contexts["work", "default"]
            address = context.address("c1")
            event = Message(
                address=type(address)(platform="other", chat_id="c1"),
                sender=Sender(id="1"),
                event_id="e",
                text="x",
            )
            with pytest.raises(PluginError):
                await context.receive(event)
            # An address alone never reaches another profile's account: there is none to be found.
            await gateway.profiles["work"].accounts.replace("wire", None)
            work = gateway.profiles["work"].delivery
            assert work.ready(address) is False
            assert wire.sent == []

    run(main())


# ── the same bot twice ───────────────────────────────────────────────────────────────────────────


def test_two_profiles_with_the_same_token_are_refused_and_both_named(home: Home) -> None:
    write_profile(
        home, "default", '[gateway]\nprofiles = ["default", "work"]\n' + wire_section("1")
    )
    write_profile(home, "work", wire_section("2"))
    for name in ("default", "work"):
        write_private(home.secrets_file(name), "WIRE_TOKEN=100-same\n")

    async def main() -> None:
        wire = Wire()
        with pytest.raises(SameBotTwice, match="wire@default and wire@work") as caught:
            async with hosted(home, extra=[wire, Brain(echo)], installed=False):
                pass
        assert caught.value.exit_code == 78
        assert "100-same" not in str(caught.value)
        assert wire.connected == []

    run(main())


def test_the_same_bot_behind_two_tokens_is_found_when_it_says_who_it_is(home: Home) -> None:
    write_profile(
        home,
        "default",
        '[gateway]\nprofiles = ["default", "work"]\n' + wire_section("1"),
        "WIRE_TOKEN=100-old\n",
    )
    write_profile(home, "work", wire_section("2"), "WIRE_TOKEN=100-new\n")

    async def main() -> None:
        wire = Wire()
        async with hosted(home, extra=[wire, Brain(echo)], installed=False) as gateway:
            await wire.until(lambda wire: len(wire.contexts) == 2)
            await asyncio.sleep(0)
            states = {
                name: next(iter(profile.accounts)) for name, profile in gateway.profiles.items()
            }
            assert sorted(account.state for account in states.values()) == ["connected", "failed"]
            failed = next(account for account in states.values() if account.state == "failed")
            assert "in use already by wire@" in failed.reason

    run(main())


def test_the_same_bot_in_two_homes_is_found_and_free_again_afterwards(tmp_path: Path) -> None:
    homes = [Home(tmp_path / name, tmp_path / name) for name in ("one", "two")]
    for home in homes:
        write_profile(home, "default", wire_section("1"), "WIRE_TOKEN=100-secret\n")

    async def main() -> None:
        wire = Wire()
        async with hosted(homes[0], extra=[wire, Brain(echo)], installed=False):
            await wire.until(lambda wire: len(wire.connected) == 1)
            async with hosted(homes[1], extra=[wire, Brain(echo)], installed=False) as second:
                await wire.until(lambda wire: len(wire.connected) == 2)
                await asyncio.sleep(0)
                (account,) = second.profiles["default"].accounts
                assert account.state == "failed"
                assert str(homes[0].config_root) in account.reason
                assert second.failed_for_good
        async with hosted(homes[1], extra=[wire, Brain(echo)], installed=False) as second:
            await wire.until(lambda wire: len(wire.connected) == 3)
            await asyncio.sleep(0)
            (account,) = second.profiles["default"].accounts
            assert account.state == "connected"

    run(main())
