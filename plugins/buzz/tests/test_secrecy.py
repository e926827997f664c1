"""The private key is in no file, log, error or status, whatever happens, and in no frame."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_buzz import nip19
from hermes_buzz.testing import BuzzRelay, Person, eventually, talking
from hermes_core.gateway import Gateway

Trouble = Callable[[BuzzRelay], None]


def skewed(relay: BuzzRelay) -> None:
    relay.faults.clock = 120


def refused(relay: BuzzRelay) -> None:
    relay.faults.auth_reason = "restricted: not a relay member"


def banned(relay: BuzzRelay) -> None:
    relay.faults.auth_reason = "blocked: you are banned from this community"


def away(relay: BuzzRelay) -> None:
    relay.faults.refuse = True


def reason(gateway: Gateway) -> str:
    account = gateway.profiles["default"].accounts.get("buzz")
    assert account is not None
    return account.reason


def shows(bot: Person, text: str) -> bool:
    forms = (bot.nsec, bot.nsec.upper(), nip19.secret_key(bot.nsec).hex())
    return any(form in text for form in forms)


@pytest.mark.parametrize("trouble", [None, skewed, refused, banned, away])
def test_the_key_is_shown_nowhere(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    trouble: Trouble | None,
) -> None:
    caplog.set_level(logging.DEBUG)
    alice, bot = Person("alice"), Person("bot")

    async def test() -> None:
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            home = tmp_path / "home"
            if trouble is not None:
                trouble(relay)
            ready = trouble is None
            async with talking(home, relay, bot, allowed=(alice,), ready=ready) as running:
                if ready:
                    await relay.say(alice, direct, "hello")
                    await relay.next_event(bot)
                else:
                    await eventually(lambda: bool(reason(running)))
                assert not shows(bot, reason(running))
            files = [path for path in home.rglob("*") if path.is_file()]
            assert not any(shows(bot, path.read_bytes().decode("latin-1")) for path in files)
            assert not shows(bot, repr(relay.frames))

    async def limited() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(limited())
    printed = capfd.readouterr()
    assert not shows(bot, printed.out + printed.err + caplog.text)
