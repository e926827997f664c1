"""Pairing: codes for strangers, and approvals by the operator."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hermes_core import Accepted, Denied
from hermes_core.cli import frame
from hermes_core.errors import ControlError
from hermes_core.gateway import Gateway, hosted
from hermes_core.home import Home
from hermes_core.pairing import ALPHABET, MAX_FAILURES, MAX_OPEN
from hermes_core.store import open_read_only
from hermes_core.store.database import connection_of
from hermes_core.supervision.control import request
from hermes_core.testing import WallClock
from tests.profiles.wire import Brain, Wire, echo, eventually, wire_section, write_profile

ON = wire_section(more="pairing = true")


@asynccontextmanager
async def serving(
    home: Home, wire: Wire, config: str = ON, wall: WallClock | None = None
) -> AsyncIterator[Gateway]:
    write_profile(home, "default", config, "WIRE_TOKEN=100-secret\n")
    async with hosted(
        home,
        extra=[wire, Brain(echo)],
        installed=False,
        settle=0.05,
        wall=wall or WallClock(),
    ) as running:
        await wire.until(lambda wire: bool(wire.contexts))
        yield running


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def code_for(wire: Wire, user: str) -> str:
    """The code that a stranger is given."""
    seen = len(wire.sent)
    assert isinstance(await wire.say("who are you?", user=user, chat=user), Denied)
    await wire.until(lambda wire: len(wire.sent) > seen)
    found = re.search(r"approve wire ([A-Z0-9]{8})$", wire.sent[-1][2])
    assert found is not None
    return found[1]


async def ask(home: Home, verb: str, **wanted: str) -> Any:
    return await asyncio.to_thread(lambda: request(home.state_root, verb, **wanted))  # type: ignore[arg-type]


def test_a_code_that_is_approved_lets_its_sender_in_and_a_revocation_ends_that(home: Home) -> None:
    async def main() -> None:
        wire = Wire()
        async with serving(home, wire):
            code = await code_for(wire, "9")
            assert set(code) <= set(ALPHABET)
            typed = f" {code[:4].lower()}-{code[4:]} "
            found = await ask(home, "pairing.approve", account="wire", code=typed)
            assert found["user"] == "9"
            await wire.until(lambda wire: "let you in" in wire.sent[-1][2])
            assert isinstance(await wire.say(user="9"), Accepted)
            assert isinstance(await wire.say(user="8"), Denied)
        async with serving(home, wire):
            assert isinstance(await wire.say(user="9"), Accepted)
            listed = await ask(home, "pairing.list")
            assert [one["user"] for one in listed["approved"]] == ["9"]
            assert (await ask(home, "pairing.revoke", account="wire", user="9"))["revoked"]
            assert isinstance(await wire.say(user="9"), Denied)
        async with serving(home, wire):
            assert isinstance(await wire.say(user="9"), Denied)

    run(main())


def test_a_code_is_kept_as_a_digest_and_nothing_that_was_said_is(home: Home) -> None:
    async def main() -> None:
        wire = Wire()
        async with serving(home, wire):
            codes.append(await code_for(wire, "9"))

    codes: list[str] = []
    run(main())
    database = open_read_only(home.database())
    tables = [name for name in database.get_tables() if not name.startswith(("sqlite", "outbox"))]
    kept = repr([connection_of(database).execute(f"SELECT * FROM {t}").fetchall() for t in tables])  # noqa: S608
    database.close()
    assert "who are you" not in kept
    assert codes[0] not in kept


@pytest.mark.case("AZ-12")
def test_strangers_are_not_spammed(home: Home) -> None:
    async def main() -> None:
        wire, wall = Wire(), WallClock()
        async with serving(home, wire, wall=wall) as gateway:
            assert isinstance(await wire.say(user="7", kind="group"), Denied)
            assert isinstance(await wire.say(user="6", is_bot=True), Denied)
            assert (await ask(home, "pairing.list"))["waiting"] == []
            for _ in range(30):
                wall.advance(2)
                assert isinstance(await wire.say(user="9", chat="9"), Denied)
            for user in range(1000, 1300):
                assert isinstance(await wire.say(user=str(user), chat=str(user)), Denied)
            await gateway.profiles["default"].delivery.settled()
            listed = await ask(home, "pairing.list")
            assert len(listed["waiting"]) == MAX_OPEN
            await wire.until(lambda wire: len(wire.sent) == MAX_OPEN)
            assert len({chat for _, chat, _ in wire.sent}) == MAX_OPEN
            wall.advance(3601)
            assert await code_for(wire, "9")

    run(main())


def test_pairing_is_off_unless_it_is_on_and_approvals_do_not_count_then(home: Home) -> None:
    async def main() -> None:
        wire = Wire()
        async with serving(home, wire):
            code = await code_for(wire, "9")
            await ask(home, "pairing.approve", account="wire", code=code)
            assert isinstance(await wire.say(user="9"), Accepted)
        wire.sent.clear()
        async with serving(home, wire, wire_section("1")):
            assert isinstance(await wire.say(user="9"), Denied)
            assert isinstance(await wire.say(user="8"), Denied)
            assert (await ask(home, "pairing.list"))["waiting"] == []
        assert wire.sent == []

    run(main())


def test_codes_expire_and_wrong_ones_lock_approvals_out(home: Home) -> None:
    async def main() -> None:
        wire, wall = Wire(), WallClock()
        async with serving(home, wire, wall=wall):
            code = await code_for(wire, "9")
            wall.advance(3600)
            with pytest.raises(ControlError, match="more than an hour old"):
                await ask(home, "pairing.approve", account="wire", code=code)
            code = await code_for(wire, "9")
            for guess in range(MAX_FAILURES - 1):
                with pytest.raises(ControlError, match="no code like this"):
                    await ask(home, "pairing.approve", account="wire", code=f"AAAAAAA{guess + 2}")
            with pytest.raises(ControlError, match="locked"):
                await ask(home, "pairing.approve", account="wire", code=code)
            assert isinstance(await wire.say(user="9"), Denied)
            wall.advance(3601)
            code = await code_for(wire, "9")
            await ask(home, "pairing.approve", account="wire", code=code)
            with pytest.raises(ControlError, match="used"):
                await ask(home, "pairing.approve", account="wire", code=code)

    run(main())


def test_the_commands_work_with_and_without_a_gateway(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HERMES_HOME", str(home.state_root))
    codes: list[str] = []

    def hermes(*arguments: str) -> tuple[int, str]:
        code = frame.run(["pairing", *arguments])
        return code, capsys.readouterr().out

    async def main() -> None:
        import time

        wire = Wire()
        clock = WallClock(time.time())
        async with serving(home, wire, wall=clock):
            codes.extend([await code_for(wire, "8"), await code_for(wire, "9")])
            code, out = await asyncio.to_thread(hermes, "approve", "wire", codes[0])
            assert (code, out) == (0, "8 may speak to wire now.\n")

    assert hermes("approve", "wire", "ABCDEFGH")[0] == 1
    run(main())
    _, out = hermes("list", "--json")
    assert [one["user"] for one in json.loads(out)["approved"]] == ["8"]
    assert [one["user"] for one in json.loads(out)["waiting"]] == ["9"]
    assert "8" in hermes("list")[1]
    assert hermes("approve", "wire", codes[1]) == (0, "9 may speak to wire now.\n")
    assert hermes("revoke", "wire", "9")[0] == 0
    assert hermes("revoke", "wire", "9")[0] == 1


def test_a_withdrawn_grant_ends_what_waits(home: Home) -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def slow(turn: Any) -> str:
            await gate.wait()
            return str(turn.messages[0].text)

        wire = Wire()
        write_profile(home, "default", ON, "WIRE_TOKEN=100-secret\n")
        async with hosted(home, extra=[wire, Brain(slow)], installed=False) as gateway:
            await wire.until(lambda wire: bool(wire.contexts))
            code = await code_for(wire, "9")
            await ask(home, "pairing.approve", account="wire", code=code)
            await wire.say("first", user="9")
            profile = gateway.profiles["default"]
            await eventually(lambda: bool(profile.lanes.running))
            await wire.say("second", user="9")
            await ask(home, "pairing.revoke", account="wire", user="9")
            gate.set()
            await eventually(lambda: not profile.lanes.busy)
            assert "first" in [text for _, _, text in wire.sent]
            assert "second" not in [text for _, _, text in wire.sent]

    run(main())
    database = open_read_only(home.database())
    reasons = connection_of(database).execute("SELECT reason FROM inbox ORDER BY sequence")
    assert "grant" in reasons.fetchall()[1][0]
    database.close()
