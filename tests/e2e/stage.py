"""The real `hermes` command in a home of its own, with plugins that are installed for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import hermes_core
from hermes_core.supervision.control import open_channel

T = TypeVar("T")

ROOT = Path(hermes_core.__file__).parents[1]
READY = "the gateway is ready"
PATIENCE = 40.0
"""Seconds after which what a test waits for does not come any more."""
HERMES = (sys.executable, "-m", "hermes_core.cli")
SETTINGS = '[agent]\nuse = "scene"\n'
REQUIRES = "Requires-Dist: hermes-gateway[hooks-1]>=0.1"


def until(fact: Callable[[], T], what: str = "", patience: float = PATIENCE) -> T:
    """Wait for a fact that other processes make true, and return it."""
    deadline = time.monotonic() + patience
    while not (found := fact()):
        assert time.monotonic() < deadline, f"did not come: {what or fact}"
        time.sleep(0.01)
    return found


class Running:
    """A gateway as a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.pid = process.pid
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8")

    def ready(self, starts: int = 1) -> Running:
        """Wait until it has become ready so many times."""
        self.logged(READY, starts)
        return self

    def logged(self, text: str, times: int = 1) -> str:
        """Wait for a line of the log with `text`, and return it."""

        def found() -> bool:
            assert self.process.poll() is None or self.log.count(text) >= times, self.log
            return self.log.count(text) >= times

        until(found, text)
        return [line for line in self.log.splitlines() if text in line][-1]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)

    def wait(self) -> int:
        return self.process.wait(PATIENCE)


class Stage:
    """A home, what is installed, and what its people do."""

    def __init__(self, path: Path, settings: str = SETTINGS) -> None:
        self.path = path
        self.home = path / "home"
        self.site = path / "site"
        self.scene = path / "scene"
        for directory in (self.home, self.site, self.scene, self.scene / "gates"):
            directory.mkdir(mode=0o700)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._said = 0
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            "HERMES_HOME": str(self.home),
            "SCENE": str(self.scene),
            "PYTHONPATH": os.pathsep.join([str(self.site), str(ROOT)]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.settings(settings)
        source = Path(__file__).with_name("scene.py").read_text("utf-8")
        self.install("scene", source, points={"wire": "network", "scene": "agent"})

    # ── the operator ─────────────────────────────────────────────────────────────────────────────

    def settings(self, text: str) -> None:
        (self.home / "config.toml").write_text(text)

    def install(
        self,
        name: str,
        source: str,
        *,
        version: str = "1.0",
        points: Mapping[str, str] | None = None,
    ) -> Path:
        """Install `hermes-plugin-NAME`. Gives its metadata directory."""
        module = f"hermes_plugin_{name}"
        (self.site / f"{module}.py").write_text(textwrap.dedent(source))
        info = self.site / f"{module}-{version}.dist-info"
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: hermes-plugin-{name}\nVersion: {version}"
        (info / "METADATA").write_text(f"{metadata}\n{REQUIRES}\n\n")
        lines = [f"{point} = {module}:{target}" for point, target in (points or {}).items()]
        entries = "\n".join(lines) or f"{name} = {module}"
        (info / "entry_points.txt").write_text(f"[hermes.plugins]\n{entries}\n")
        return info

    def hermes(
        self, *arguments: str, limit: float = PATIENCE, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [*HERMES, *arguments],
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )

    def status(self) -> tuple[int, dict[str, Any]]:
        """The exit code and the facts of `hermes status`, which comes within five seconds."""
        began = time.monotonic()
        result = self.hermes("status", "--json")
        assert time.monotonic() - began < 5
        return result.returncode, json.loads(result.stdout)

    def profile(self) -> dict[str, Any]:
        """What `hermes status` says about the default profile."""
        code, facts = self.status()
        assert code == 0, facts
        profile: dict[str, Any] = facts["profiles"][0]
        return profile

    def run(self, *arguments: str, **environment: str) -> Running:
        """Start `hermes run`; see `Running.ready`."""
        return self.start([*HERMES, "run", *arguments], **environment)

    def start(self, command: list[str], **environment: str) -> Running:
        """Start a process that logs to its standard error. It is ended with the test."""
        log = self.path / f"log-{len(self._processes)}"
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        self._processes.append(process)
        return Running(process, log)

    def end(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait(PATIENCE)

    # ── people ───────────────────────────────────────────────────────────────────────────────────

    def say(
        self, text: str, *, chat: str = "c1", user: str = "u1", event_id: str = ""
    ) -> dict[str, Any]:
        """Say something, and return what `receive` returned. Raises HermesError if it raised."""
        return self.say_all([text], chat=chat, user=user, event_ids=[event_id])[0]

    def say_all(
        self,
        texts: list[str],
        *,
        chat: str = "c1",
        user: str = "u1",
        event_ids: list[str] | None = None,
    ) -> list[dict[str, Any]]:
        frames = []
        for number, text in enumerate(texts):
            self._said += 1
            event_id = (event_ids or [])[number : number + 1] or [""]
            frames.append(
                {
                    "chat": chat,
                    "user": user,
                    "text": text,
                    "event_id": event_id[0] or f"e{self._said}",
                }
            )
        return asyncio.run(self._say(frames))

    async def _say(self, frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
        outcomes: list[dict[str, Any]] = []
        async with (
            asyncio.timeout(PATIENCE),
            await open_channel(self.home, "attach", {"platform": "wire"}) as channel,
        ):
            for frame in frames:
                await channel.send(frame)
                answer: Any = await channel.receive()
                assert answer is not None, "the gateway hung up"
                outcomes.append(answer["outcome"])
        return outcomes

    def open_gate(self, name: str) -> None:
        (self.scene / "gates" / name).touch()

    def sent(self, chat: str | None = None) -> list[str]:
        """The texts that stand in a chat, or in all chats."""
        return [
            line["message"]["text"]
            for line in _lines(self.scene / "sent")
            if chat in {None, line["message"]["address"]["chat_id"]}
        ]

    def answers(self, chat: str | None = None) -> list[str]:
        """What the agent's answers in a chat answer."""
        mark = "answer to "
        return [text.removeprefix(mark) for text in self.sent(chat) if text.startswith(mark)]

    def runs(self) -> list[tuple[str, int]]:
        """The first message of each run of the agent, and which attempt it is."""
        return [(line["texts"][0], line["attempt"]) for line in _lines(self.scene / "runs")]

    def began(self, text: str, attempt: int = 1) -> None:
        """Wait until the agent was given a message."""
        until(lambda: (text, attempt) in self.runs(), text)

    def answered(self, *texts: str, chat: str | None = None) -> None:
        """Wait for the answers to these messages."""
        until(lambda: set(texts) <= set(self.answers(chat)), str(texts))


def _lines(journal: Path) -> list[dict[str, Any]]:
    if not journal.exists():
        return []
    whole, _, _ = journal.read_text("utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]


def sleeper() -> subprocess.Popen[bytes]:
    """A process that has nothing to do with Hermes."""
    return subprocess.Popen(["sleep", "1000"])
