"""Against a Bot API emulator that somebody else wrote, strict about everything it does not know."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from hermes_core.testing import ScriptedAgent
from hermes_telegram.testing import TOKEN, telegram_gateway

emulators: Any = pytest.importorskip("lo_bot_api_emulator")
LIMIT = 30.0


class Emulator:
    """The emulator on loopback, and what a person does there."""

    def __init__(self, server: Any, url: str) -> None:
        self._server = server
        self.url = url
        self._number = 0

    async def say(self, text: str, chat: int, **more: object) -> None:
        self._number += 1
        kind = "private" if chat > 0 else "supergroup"
        message = {
            "message_id": self._number,
            "date": 1_700_000_000,
            "chat": {"id": chat, "type": kind},
            "from": {"id": abs(chat), "is_bot": False, "first_name": "A"},
            "text": text,
            **more,
        }
        await self._server.enqueue_update({"message": message}, token=TOKEN)

    def calls(self, method: str) -> list[int]:
        """The statuses of all calls of a method."""
        return [entry["status"] for entry in self._server.requests if entry.get("method") == method]

    @property
    def refused(self) -> list[str]:
        """Methods of calls that it would not take."""
        return [
            entry["method"]
            for entry in self._server.requests
            if entry.get("status", 200) not in {200, 409}
        ]

    async def answered(self, count: int) -> None:
        await until(lambda: len(self.calls("sendMessage")) >= count)


async def until(done: Callable[[], bool]) -> None:
    """Look again and again: the emulator cannot be waited for."""
    while not done():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


@asynccontextmanager
async def emulator() -> AsyncIterator[Emulator]:
    web: Any = importlib.import_module("aiohttp.web")
    server = emulators.LoBotApiEmulator(allow_insecure_loopback_webhooks=True)
    runner = web.AppRunner(server.app(), access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield Emulator(server, f"http://127.0.0.1:{port}")
    finally:
        await runner.cleanup()


def test_a_conversation_in_two_chats_and_a_group_over_a_restart(tmp_path: Path) -> None:
    agent = ScriptedAgent()
    options: Any = {"previews": False, "settings": "require_mention = false"}

    async def main() -> None:
        async with asyncio.timeout(LIMIT), emulator() as server:
            chats = (11, 12, -13)
            async with telegram_gateway(tmp_path, server.url, agent, **options):
                for number in range(5):
                    for chat in chats:
                        await server.say(f"{chat}: {number}", chat)
                await server.answered(15)
            for chat in chats:
                await server.say(f"{chat}: 5", chat)
            async with telegram_gateway(tmp_path, server.url, agent, **options):
                for number in range(6, 10):
                    for chat in chats:
                        await server.say(f"{chat}: {number}", chat)
                await server.answered(30)
            assert server.calls("sendMessage") == [200] * 30
            assert server.refused == []

    asyncio.run(main())
    texts = [text for run in agent.runs for text in run.texts]
    for chat in (11, 12, -13):
        told = [text for text in texts if text.startswith(f"{chat}:")]
        assert told == [f"{chat}: {number}" for number in range(10)]


def test_previews_by_edits_are_taken(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(LIMIT),
            emulator() as server,
            telegram_gateway(tmp_path, server.url, ScriptedAgent()),
        ):
            await server.say("hello", 11)
            await server.answered(1)
            await until(lambda: bool(server.calls("editMessageText")))
            assert server.calls("editMessageText") == [200]
            assert server.refused == []

    asyncio.run(main())


def test_a_server_that_has_no_drafts_is_shown_edits(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(LIMIT),
            emulator() as server,
            telegram_gateway(tmp_path, server.url, ScriptedAgent(), drafts=True),
        ):
            await server.say("hello", 11)
            await server.answered(1)
            await until(lambda: bool(server.calls("editMessageText")))
            assert server.calls("sendMessageDraft") == [501]
            assert server.calls("sendMessage") == [200]
            assert server.refused == ["sendMessageDraft"]

    asyncio.run(main())


@pytest.mark.case("TG-06")
def test_a_second_poller_conflicts_and_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator lets only one of two pollers in, as Telegram does. They are on two machines."""

    async def main() -> None:
        one, two = tmp_path / "one", tmp_path / "two"
        one.mkdir()
        two.mkdir()
        async with asyncio.timeout(LIMIT), emulator() as server:
            monkeypatch.setenv("HERMES_LOCK_DIR", str(two))
            async with telegram_gateway(two, server.url, ScriptedAgent(), previews=False):
                await server.say("for two", 11)
                await server.answered(1)
                monkeypatch.setenv("HERMES_LOCK_DIR", str(one))
                async with telegram_gateway(one, server.url, ScriptedAgent(), previews=False):
                    await until(lambda: 409 in server.calls("getUpdates"))
            async with telegram_gateway(one, server.url, ScriptedAgent(), previews=False):
                await server.say("for one", 11)
                await server.answered(2)

    asyncio.run(main())
