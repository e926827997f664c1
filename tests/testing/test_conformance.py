"""The conformance checks hold for a platform that conforms, and each fails for one that does
not."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes_core import (
    Adapter,
    Inbound,
    Message,
    NotReady,
    Outbound,
    Receipt,
    Received,
    Sender,
    hookimpl,
)
from hermes_core.testing import ScriptedPlatform, conformance
from hermes_core.testing.conformance import CHECKS, Check, Network, Subject

ALLOWED = 'allowed_users = ["u1"]'


class Script:
    """A network of the scripted platform: events are offered in order, each until it is taken."""

    def __init__(self, platform: ScriptedPlatform) -> None:
        self._platform = platform
        self._said: list[Message] = []
        self._waiting: asyncio.Queue[Message] = asyncio.Queue()

    async def say(self, text: str, *, stranger: bool = False) -> None:
        event = Message(
            address=self._platform.address("x" if stranger else "c1"),
            sender=Sender(id="stranger" if stranger else "u1"),
            event_id=f"e{len(self._said)}",
            text=text,
        )
        self._said.append(event)
        self._waiting.put_nowait(event)

    async def screen(self, *, stranger: bool = False) -> list[str]:
        chat = "x" if stranger else "c1"
        sent = [item for item in self._platform.sent if item.message.address.chat_id == chat]
        return list({item.message_id: item.message.text for item in sent}.values())

    async def change(self) -> None:
        await asyncio.sleep(0.001)

    async def offer_again(self) -> None:
        self._waiting.put_nowait(self._said[-1])

    async def cut(self) -> None:
        self._platform.lose_connection()

    async def offer(self) -> None:
        """For ever."""
        while True:
            event = await self._waiting.get()
            while not await self._taken(event):  # noqa: ASYNC110 - nobody says when it is time
                await asyncio.sleep(0.01)

    async def _taken(self, event: Message) -> bool:
        try:
            await self._platform.inject(event)
        except (KeyError, NotReady):  # no account was ever made, or it takes nothing in
            return False
        return True


def subject(
    home: Path, platform: ScriptedPlatform, adapter: type[Adapter[Any]] | None = None
) -> Subject:
    @asynccontextmanager
    async def make() -> AsyncIterator[Network]:
        network = Script(platform)
        offering = asyncio.create_task(network.offer())
        yield network
        offering.cancel()
        await asyncio.wait({offering})

    declared = platform.platforms()[0]
    return Subject(
        platform=declared if adapter is None else replace(declared, adapter=adapter),
        config=lambda _: f"[platforms.scripted]\n{ALLOWED}\n",
        make=make,
        home=home,
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("edit", [False, True], ids=["final only", "streaming"])
def test_a_platform_that_conforms(tmp_path: Path, check: Check, edit: bool) -> None:
    platform = ScriptedPlatform(edit=edit, allow_all=False)
    asyncio.run(check(subject(tmp_path, platform)))


def failed(
    check: Check, subject: Subject, monkeypatch: pytest.MonkeyPatch, patience: float = 10
) -> str:
    """How a check failed."""
    monkeypatch.setattr(conformance, "PATIENCE", patience)
    with pytest.raises(AssertionError) as caught:
        asyncio.run(check(subject))
    return str(caught.value)


@pytest.mark.parametrize(
    "check",
    [
        conformance.is_answered_in_order,
        conformance.keeps_text_as_it_is,
        conformance.sends_a_long_answer_whole,
    ],
    ids=lambda check: check.__name__,
)
def test_a_platform_that_shortens_is_found(
    tmp_path: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = ScriptedPlatform(allow_all=False)
    made: Any = platform.platforms()[0].adapter

    class Short(made):  # type: ignore[misc]
        @hookimpl
        async def send(self, message: Outbound) -> Receipt:
            short = msgspec.structs.replace(message, text=message.text[:-1])
            receipt: Receipt = await super().send(short)
            return receipt

    found = failed(check, subject(tmp_path, platform, Short), monkeypatch, patience=2)
    assert "the screen reads" in found


def test_a_platform_that_cannot_edit_though_it_says_so_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = ScriptedPlatform(edit=True, allow_all=False)
    made: Any = platform.platforms()[0].adapter

    class Lazy(made):  # type: ignore[misc]
        @hookimpl
        async def edit(self, message_id: str, message: Outbound) -> Receipt:
            return Receipt(message_id=message_id)

    check = conformance.ends_a_streamed_answer_complete
    assert "piece39" in failed(check, subject(tmp_path, platform, Lazy), monkeypatch, patience=2)


def test_a_platform_that_leaves_a_task_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = ScriptedPlatform(allow_all=False)
    made: Any = platform.platforms()[0].adapter
    left: list[asyncio.Task[None]] = []

    class Untidy(made):  # type: ignore[misc]
        @hookimpl
        async def connect(self, is_reconnect: bool) -> str:
            left.append(asyncio.create_task(asyncio.sleep(60), name="forgotten"))
            own_id: str = await super().connect(is_reconnect)
            return own_id

    check = conformance.leaves_nothing_behind
    found = failed(check, subject(tmp_path, platform, Untidy), monkeypatch)
    assert len(left) == found.count("forgotten") == 2


def test_a_platform_that_names_an_event_anew_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = ScriptedPlatform(allow_all=False)
    inject, numbers = platform.inject, itertools.count()

    async def anew(event: Inbound) -> Received:
        return await inject(msgspec.structs.replace(event, event_id=f"new{next(numbers)}"))

    monkeypatch.setattr(platform, "inject", anew)
    found = failed(conformance.handles_an_event_once, subject(tmp_path, platform), monkeypatch)
    assert "'once', 'once', 'twice'" in found


def test_a_platform_that_lets_strangers_in_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = ScriptedPlatform(allow_all=False)
    open_house = replace(
        subject(tmp_path, platform), config=lambda _: "[platforms.scripted]\nallow_all = true\n"
    )
    assert "let me in" in failed(conformance.is_silent_to_strangers, open_house, monkeypatch)
