"""The gateway as it is really run: `hermes run` in a process of its own, killed in the middle."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hermes_telegram.testing import TOKEN, BotApi

LIMIT = 60.0
MARK = "[repeated] "


@asynccontextmanager
async def hermes_run(home: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    environment = {**os.environ, "HERMES_HOME": str(home), "TELEGRAM_BOT_TOKEN": TOKEN}
    with (home / "log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hermes_core.cli", "run", "--log-level", "debug"),
            env=environment,
            stderr=log,
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def make_home(path: Path, url: str) -> Path:
    home = path / "home"
    home.mkdir()
    (home / "config.toml").write_text(
        f"""
        [agent]
        use = "echo"

        [platforms.telegram]
        token = "env:TELEGRAM_BOT_TOKEN"
        base_url = "{url}"
        allowed_users = ["1", "2"]
        """
    )
    return home


def texts(count: int) -> list[str]:
    return [f"message {number}" for number in range(count)]


async def answered(api: BotApi, chat: int, count: int) -> None:
    while not set(texts(count)) <= {text.removeprefix(MARK) for text in api.chat(chat)}:
        await api.change()


@pytest.mark.case("TG-02")
def test_ten_messages_over_a_kill_lose_nothing_and_repeat_nothing_unsaid(tmp_path: Path) -> None:
    async def main() -> list[list[str]]:
        async with asyncio.timeout(LIMIT), BotApi() as api:
            home = make_home(tmp_path, api.url)
            async with hermes_run(home) as process:
                for number in range(5):
                    for chat in (1, 2):
                        api.say(f"message {number}", chat=chat)
                    await answered(api, 1, number + 1)
                    await answered(api, 2, number + 1)
                process.send_signal(signal.SIGKILL)
                await process.wait()
            for number in range(5, 10):
                for chat in (1, 2):
                    api.say(f"message {number}", chat=chat)
            async with hermes_run(home) as process:
                for chat in (1, 2):
                    await answered(api, chat, 10)
                process.terminate()
                assert await process.wait() == 0
            return [api.chat(1), api.chat(2)]

    for chat in asyncio.run(main()):
        assert list(dict.fromkeys(text.removeprefix(MARK) for text in chat)) == texts(10)
        # A kill between Telegram's answer and its commit may repeat one message, and says so.
        assert len(chat) == 10 or (len(chat) == 11 and any(text.startswith(MARK) for text in chat))
    assert TOKEN.partition(":")[2] not in (tmp_path / "home" / "log").read_text()
