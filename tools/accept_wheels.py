"""`python tools/accept_wheels.py`: built wheels in a fresh venv with an empty HOME keep their word.

A terminal is answered; an answer survives `kill -9` of the gateway; a Telegram bot that is killed
in the middle loses and repeats nothing of three conversations with a Bot API emulator, and a Buzz
account that is killed twice nothing of those on a Nostr relay. Needs a package index and about two
minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = ("console", "echo", "telegram", "buzz", "command")
SOURCES = [ROOT, *(ROOT / "plugins" / name for name in PLUGINS)]
SERVERS = ("lo-bot-api-emulator", "nostr-sdk", "pytest")
BUZZ_TEST = ROOT / "plugins" / "buzz" / "tests" / "test_recovery.py"
TOKEN = "100:accept"  # noqa: S105 - only the emulator knows it
URL = f"http://127.0.0.1:{20_000 + os.getpid() % 10_000}"
CHATS = (11, 12, -13)
LIMIT = 60.0
SETTINGS = f"""
[agent]
use = "echo"
[platforms.telegram]
token = "env:TELEGRAM_BOT_TOKEN"
base_url = "{URL}"
allow_all = true
require_mention = false
streaming = false
"""


class Machine:
    """A venv with the wheels, and a home that is empty at the start."""

    def __init__(self, directory: Path) -> None:
        self.bin, self.home = directory / "venv" / "bin", directory / "home"
        self.home.mkdir()
        wheels = directory / "wheels"
        pip = [str(self.bin / "pip"), "--quiet", "--disable-pip-version-check"]
        subprocess.run([sys.executable, "-m", "venv", directory / "venv"], check=True)
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, *SOURCES], check=True)
        subprocess.run([*pip, "install", *wheels.glob("*.whl"), *SERVERS], check=True)

    def start(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """Run a program of the venv. What it has in its environment is all it needs."""
        environment = {
            "HOME": str(self.home),
            "HERMES_LOCK_DIR": str(self.home / "locks"),
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "TELEGRAM_BOT_TOKEN": TOKEN,
        }
        command = [str(self.bin / program), *arguments]
        with (self.home / f"{program}.log").open("a") as log:
            pipe = subprocess.PIPE
            return subprocess.Popen(command, env=environment, stdout=pipe, stderr=log, text=True)

    def output(self, *arguments: str) -> str:
        """What a `hermes` command prints."""
        return self.start("hermes", *arguments).communicate(timeout=LIMIT)[0]

    def status(self) -> dict[str, Any]:
        """What the gateway says of its one profile; nothing while it does not run."""
        found = json.loads(self.output("status", "--json"))
        return dict(found.get("profiles", [{}])[0])

    def accounts(self) -> dict[str, str]:
        """The states of the accounts."""
        found = self.status().get("accounts", {})
        return {name: account["state"] for name, account in found.items()}

    @contextmanager
    def running(self, *arguments: str, program: str = "hermes") -> Iterator[subprocess.Popen[str]]:
        """A program that is stopped in the end, unless it is dead by then."""
        process = self.start(program, *arguments)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(LIMIT)


def require(true: object, what: str) -> None:
    """End, unless something is true."""
    if not true:
        raise SystemExit(f"not accepted: {what}")


def until(true: Callable[[], object], what: str) -> None:
    """Wait for something to be true."""
    deadline = time.monotonic() + LIMIT
    while not true():
        require(time.monotonic() < deadline, f"{what} (waited {LIMIT:g} s)")
        time.sleep(0.1)


def terminal(machine: Machine) -> None:
    """A chat without a gateway, then one whose gateway is killed while it answers."""
    require(machine.output("chat", "-m", "hi") == "hi\n", "hermes chat -m hi")
    with machine.running("run") as gateway:
        until(machine.status, "the gateway runs")
        chat = machine.start("hermes", "chat", "-m", "slow 5 hello")
        until(lambda: machine.status()["running_turns"], "a turn runs")
        gateway.kill()
    with machine.running("run"):
        answer = chat.communicate(timeout=LIMIT)[0]
    require((answer, chat.returncode) == ("hello\n", 0), f"the answer after kill -9: {answer!r}")


def telegram(machine: Machine) -> None:
    """Ten messages in each of three chats; the gateway is killed while it answers the fifth."""
    Path(machine.output("config", "path").strip()).write_text(SETTINGS)
    journal = machine.home / "journal"
    journal.touch()
    options = ("--port", URL.rpartition(":")[2], "--enable-control", "--journal", str(journal))
    with machine.running(*options, program="lo-bot-api-emulator"):
        with machine.running("run") as gateway:
            until(lambda: machine.accounts().get("telegram") == "connected", "the bot connects")
            say(0, 4)
            until(lambda: sent(journal) == 4 * len(CHATS), "the first answers")
            say(4, 5, "slow 3 ")
            until(lambda: len(machine.status()["running_turns"]) == len(CHATS), "turns run")
            gateway.kill()
        say(5, 7)
        with machine.running("run"):
            say(7, 10)
            until(lambda: sent(journal) >= 10 * len(CHATS), "the other answers")
    judge = machine.start("lo-bot-api-emulator", "verdict", str(journal))
    require(judge.wait(LIMIT) == 0, f"the emulator refused a call:\n{journal.read_text()}")
    require(sent(journal) == 10 * len(CHATS), f"{sent(journal)} messages were sent")
    deliveries = json.loads(machine.output("deliveries", "list", "--limit", "100", "--json"))
    for chat in CHATS:
        told = [entry for entry in reversed(deliveries) if entry["chat_id"] == str(chat)]
        texts = [(part["text"], part["state"]) for entry in told for part in entry["parts"]]
        wanted = [(f"{chat}: {number}", "delivered") for number in range(10)]
        require(texts == wanted, f"the chat {chat} was told {texts}")


def buzz(machine: Machine) -> None:
    """The plugin's own test of a conversation in which the gateway is killed twice, with nothing of
    the checkout in reach but that one file."""
    test = machine.home / BUZZ_TEST.name
    test.write_bytes(BUZZ_TEST.read_bytes())
    said = machine.start("pytest", "--quiet", "-p", "no:cacheprovider", str(test))
    report, _ = said.communicate(timeout=3 * LIMIT)
    require(said.returncode == 0 and "1 passed" in report, report)


def say(first: int, last: int, prefix: str = "") -> None:
    """Let a person of each chat say something, with these numbers."""
    for number, chat in ((number, chat) for number in range(first, last) for chat in CHATS):
        where = {"id": chat, "type": "private" if chat > 0 else "group"}
        sender = {"id": abs(chat), "is_bot": False, "first_name": "A"}
        text = f"{prefix}{chat}: {number}"
        message = {"message_id": number + 1, "date": 1, "chat": where, "from": sender, "text": text}
        body = json.dumps({"token": TOKEN, "update": {"message": message}}).encode()
        urllib.request.urlopen(f"{URL}/__fixture/updates", body, timeout=LIMIT).close()  # noqa: S310


def sent(journal: Path) -> int:
    """How many messages the emulator has taken."""
    entries = map(json.loads, journal.read_text().splitlines())
    return sum(item.get("method") == "sendMessage" for item in entries)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        fresh = Machine(Path(name))
        for scenario in (terminal, telegram, buzz):
            scenario(fresh)
            print(f"accepted: {scenario.__name__}")
