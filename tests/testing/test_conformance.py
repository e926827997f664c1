"""The conformance checks hold for a platform that conforms, and each fails for one that does
not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hermes_core import Message, NotReady, Sender
from hermes_core.testing import ScriptedPlatform, conformance
from hermes_core.testing.conformance import CHECKS, Check, Network, Subject


class Script:
    """A network of the scripted platform: events are offered until they are taken in."""

    def __init__(self, platform: ScriptedPlatform) -> None:
        self._platform = platform
        self._latest: Message | None = None
        self._number = 0

    async def say(self, text: str, *, stranger: bool = False) -> None:
        self._number += 1
        event = Message(
            address=self._platform.address("x" if stranger else "c1"),
            sender=Sender(id="stranger" if stranger else "u1"),
            event_id=f"e{self._number}",
            text=text,
        )
        if not stranger:
            self._latest = event
        await self._offer(event)

    async def screen(self) -> list[str]:
        return self._platform.texts("c1")

    async def change(self) -> None:
        await asyncio.sleep(0.001)

    async def offer_again(self) -> None:
        assert self._latest is not None
        await self._offer(self._latest)

    async def cut(self) -> None:
        self._platform.lose_connection()

    async def _offer(self, event: Message) -> None:
        async def until_taken() -> None:
            while True:
                try:
                    await self._platform.inject(event)
                except NotReady:
                    await asyncio.sleep(0.01)
                else:
                    return

        self._offering = asyncio.create_task(until_taken(), name="server offer")
        if event.text != "in between":
            await self._offering


def subject(home: Path, platform: ScriptedPlatform) -> Subject:
    @asynccontextmanager
    async def make() -> AsyncIterator[Network]:
        yield Script(platform)

    return Subject(
        plugin=platform,
        config=lambda _: '[platforms.scripted]\nallowed_users = ["u1"]\n',
        make=make,
        home=home,
        max_length=4000,
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("edit", [False, True], ids=["final only", "streaming"])
def test_a_platform_that_conforms(tmp_path: Path, check: Check, edit: bool) -> None:
    platform = ScriptedPlatform(edit=edit, allow_all=False)
    asyncio.run(check(subject(tmp_path, platform)))


@pytest.mark.parametrize(
    "check",
    [
        conformance.is_answered_in_order,
        conformance.sends_a_long_answer_whole,
        conformance.comes_back_after_a_lost_connection,
    ],
    ids=lambda check: check.__name__,
)
def test_a_platform_that_shows_nothing_is_found(
    tmp_path: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance, "PATIENCE", 0.2)
    platform = ScriptedPlatform(allow_all=False)
    platform.texts = lambda chat=None: []  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="the screen reads"):
        asyncio.run(check(subject(tmp_path, platform)))


def test_a_platform_that_lets_strangers_in_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = ScriptedPlatform(allow_all=True)
    with pytest.raises(AssertionError):
        asyncio.run(conformance.is_silent_to_strangers(subject(tmp_path, platform)))
