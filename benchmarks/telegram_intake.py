"""Telegram's way in against the rate of the server that feeds it, and its weight against the client
library alone.

`python -m benchmarks.telegram_intake`, with hermes-plugin-telegram and lo-bot-api-emulator
installed. The emulator runs in a process of its own and is filled before the clock starts. The
ceiling asks it for updates, confirms them and does nothing else, over the same HTTP library; our
poller asks the same questions and commits each update to the inbox before it confirms it. The two
take turns, and medians are compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from hermes_core import AgentEvent, Text, Turn

ROUNDS = 3
UPDATES = 1000
"""As many as the emulator keeps for one bot."""
CHATS = 50
TOKEN = "100:a-token-for-benchmarks"  # noqa: S105 - nobody else's
SECONDS_TO_START = 20.0

IMPORTS = {
    "python alone": "import asyncio, ssl",
    "the library's Bot": "import asyncio, ssl, telegram; telegram.Bot('1:x')",
    "the plugin's entry point": "import hermes_telegram",
    "the plugin, connected": (
        "import hermes_telegram.connection, hermes_telegram.client as c, hermes_core as h;"
        " c.Client(hermes_telegram.settings.TelegramSettings(token=h.Secret('1:x')))"
    ),
}


def main() -> None:
    """Measure and print both tables."""
    rates: dict[str, list[float]] = {"ceiling": [], "ours": []}
    with emulator() as url:
        for number in range(ROUNDS):
            rates["ceiling"].append(once(url, number, ceiling))
            rates["ours"].append(once(url, number + ROUNDS, ours))
    middle = {name: statistics.median(values) for name, values in rates.items()}
    ratio = middle["ours"] / middle["ceiling"]
    print(f"{UPDATES:,} updates in {CHATS} chats, updates a second, median of {ROUNDS}")
    print(f"  asked for only   {middle['ceiling']:10,.0f}")
    print(f"  into the inbox   {middle['ours']:10,.0f}   ratio {ratio:.2f}")
    print(f"{'':28}{'import ms':>12}{'memory MB':>12}")
    for name, code in IMPORTS.items():
        milliseconds, megabytes = weight(code)
        print(f"  {name:26}{milliseconds:12,.0f}{megabytes:12,.1f}")


@contextlib.contextmanager
def emulator() -> Iterator[str]:
    """The emulator in a process of its own; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("lo-bot-api-emulator")
    command = [str(program), "--port", str(port), "--enable-control"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(url)
        yield url
    finally:
        process.terminate()
        process.wait()


def wait_for(url: str) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.TransportError):
            httpx.get(f"{url}/bot{TOKEN}/getMe")
            return
        time.sleep(0.05)
    raise TimeoutError("the emulator did not start")


def fill(url: str, token: str) -> None:
    """Let `UPDATES` updates wait for a bot."""
    with httpx.Client(base_url=url) as client:
        for update in updates():
            client.post("/__fixture/updates", json={"token": token, "update": update})


def updates() -> Iterator[dict[str, Any]]:
    """Messages of people in turn, each in a chat of their own."""
    for number in range(1, UPDATES + 1):
        chat = 1001 + number % CHATS
        message = {
            "message_id": number,
            "date": 1_700_000_000,
            "chat": {"id": chat, "type": "private"},
            "from": {"id": chat, "is_bot": False, "first_name": "A"},
            "text": f"message {number}",
        }
        yield {"message": message}


def once(url: str, number: int, way: Callable[[str, str], Awaitable[float]]) -> float:
    """Updates a second, by one way, of a bot that nobody used before."""
    token = f"{TOKEN}-{number}"
    fill(url, token)
    return UPDATES / asyncio.run(_run(way, url, token))


async def _run(way: Callable[[str, str], Awaitable[float]], url: str, token: str) -> float:
    return await way(url, token)


async def ceiling(url: str, token: str) -> float:
    """Seconds to ask for every update and to confirm it."""
    from hermes_core import Secret
    from hermes_telegram.client import Client
    from hermes_telegram.settings import TelegramSettings

    client = Client(TelegramSettings(token=Secret(token), base_url=url))
    started = time.perf_counter()
    offset: int | None = None
    while updates := await client.updates(offset, 0):
        offset = updates[-1].update_id + 1
    taken = time.perf_counter() - started
    await client.close()
    return taken


async def ours(url: str, token: str) -> float:
    """Seconds from the first answer to the last commit, with nothing behind the inbox."""
    from hermes_core.testing import ScriptedAgent, gateway
    from hermes_telegram.testing import TelegramPlugin

    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        secret = home / "token"
        secret.write_text(token)
        secret.chmod(0o600)
        config = f"""
            [gateway]
            max_running_turns = 1
            shutdown_grace = "0s"
            [platforms.telegram]
            token = "file:{secret}"
            base_url = "{url}"
            allow_all = true
        """
        plugins = (TelegramPlugin(), ScriptedAgent(held))
        async with gateway(home, *plugins, config=config) as running:
            counts = running.profiles["default"].admission.counts
            while not counts["received"]:  # noqa: ASYNC110 - nothing tells when it is so
                await asyncio.sleep(0)
            started = time.perf_counter()
            while counts["accepted"] < UPDATES:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            return time.perf_counter() - started


async def held(_: Turn) -> AsyncIterator[AgentEvent]:
    """An agent that never answers: what is behind the inbox is not measured here."""
    await asyncio.get_running_loop().create_future()
    yield Text("")


def weight(code: str) -> tuple[float, float]:
    """Milliseconds that a process takes to run `code`, and its resident memory after it in MB."""
    report = "import os; print(int(open('/proc/self/statm').read().split()[1]) * 4096)"
    times, sizes = [], []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-c", f"{code}\n{report}"],
            capture_output=True,
            text=True,
            check=True,
        )
        times.append((time.perf_counter() - started) * 1e3)
        sizes.append(int(done.stdout) / 1e6)
    return statistics.median(times), statistics.median(sizes)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main()
