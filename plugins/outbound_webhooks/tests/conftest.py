from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SECRET = "correct horse battery staple"


@dataclass
class Arrival:
    """One request at the sink."""

    path: str
    line: str
    headers: dict[str, str]
    names: list[str]
    body: bytes
    time: float

    @property
    def document(self) -> dict[str, Any]:
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found


@dataclass
class Sink:
    """The sink's process, as a test sees it."""

    process: subprocess.Popen[bytes]
    scheme: str
    port: int = 0
    arrivals: list[Arrival] = field(default_factory=list)

    def url(self, path: str) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"

    def read(self) -> Arrival:
        """Wait for the next request."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the sink ended"
        found = json.loads(line)
        headers = {name.lower(): value for name, value in found["headers"]}
        names = [name for name, _ in found["headers"]]
        arrival = Arrival(
            found["path"],
            found["line"],
            headers,
            names,
            base64.b64decode(found["body"]),
            found["time"],
        )
        self.arrivals.append(arrival)
        return arrival

    async def next(self, count: int = 1) -> Arrival:
        """Wait for `count` more requests and give the last one."""
        for _ in range(count):
            arrival = await asyncio.to_thread(self.read)
        return arrival

    def rest(self) -> list[Arrival]:
        """End the sink and give what it was sent beyond what was read."""
        before = len(self.arrivals)
        self.process.terminate()
        assert self.process.stdout is not None
        while self.process.stdout.peek(1):  # type: ignore[attr-defined]
            self.read()
        self.process.wait()
        return self.arrivals[before:]


Start = Callable[..., Sink]


@pytest.fixture
def start_sink() -> Iterator[Start]:
    """Starts sinks; with a certificate file, one that speaks TLS."""
    sinks: list[Sink] = []

    def start(certificate: Path | None = None) -> Sink:
        arguments = [] if certificate is None else [str(certificate)]
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("sink.py")), *arguments],
            stdout=subprocess.PIPE,
        )
        sink = Sink(process, "http" if certificate is None else "https")
        assert process.stdout is not None
        sink.port = json.loads(process.stdout.readline())["port"]
        sinks.append(sink)
        return sink

    yield start
    for sink in sinks:
        sink.process.kill()
        sink.process.wait()
        assert sink.process.stdout is not None
        sink.process.stdout.close()


@pytest.fixture
def sink(start_sink: Start) -> Sink:
    return start_sink()


@pytest.fixture
def target(sink: Sink) -> Callable[..., str]:
    """Writes the settings of one target at the sink."""

    def write(path: str = "/hook/200", name: str = "audit", **keys: object) -> str:
        values: dict[str, object] = {
            "name": name,
            "url": sink.url(path),
            "events": ["on_turn_end"],
            "secret": SECRET,
            "allow_private": True,
            **keys,
        }
        lines = [f"{key} = {toml(value)}" for key, value in values.items() if value is not None]
        return "\n".join(["[[hooks.outbound]]", *lines, ""])

    return write


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)
