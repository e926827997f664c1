"""What every adapter must do, on a Bot API server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_core.testing import conformance
from hermes_core.testing.conformance import Check, Network, Subject
from hermes_telegram import declare
from hermes_telegram.adapter import TelegramAdapter
from hermes_telegram.testing import FAST, TOKEN, BotApi

PERSON, STRANGER = 1, 2


class Telegram:
    """A person and a stranger who write to the bot."""

    def __init__(self, api: BotApi) -> None:
        self.api = api
        self._latest: dict[str, Any] = {}

    async def say(self, text: str, *, stranger: bool = False) -> None:
        said = self.api.say(text, chat=STRANGER if stranger else PERSON)
        if not stranger:
            self._latest = said

    async def screen(self, *, stranger: bool = False) -> list[str]:
        return self.api.chat(STRANGER if stranger else PERSON)

    async def change(self) -> None:
        await self.api.change()

    async def offer_again(self) -> None:
        self.api.update("message", self._latest)

    async def cut(self) -> None:
        await self.api.close()
        await self.api.open(self.api.port)


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_it_does_what_every_adapter_must(tmp_path: Path, check: Check) -> None:
    network: Telegram
    secret = tmp_path / "telegram-token"
    secret.write_text(TOKEN)
    secret.chmod(0o600)

    @asynccontextmanager
    async def make() -> AsyncIterator[Network]:
        nonlocal network
        async with BotApi() as api:
            network = Telegram(api)
            yield network

    def config(_: Network) -> str:
        return (
            f'[platforms.telegram]\ntoken = "file:{secret}"\nbase_url = "{network.api.url}"\n'
            f'allowed_users = ["{PERSON}"]\n'
        )

    adapter = type("Adapter", (TelegramAdapter,), {"timing": FAST})
    asyncio.run(check(Subject(declare(adapter), config, make, tmp_path)))
