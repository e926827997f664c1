"""A gateway in a process of its own, which kills itself at a chosen point.

``python -m tests.crash.victim HOME KIND [POINT COUNT]`` serves HOME with a scripted platform of
that KIND and an agent that talks for a moment, both with journals that survive. It says "ready" and
its process id, and ends with SIGTERM, or by its own SIGKILL when it comes to POINT for the COUNTth
time:

======== ========================================================================
receive  an event is committed, and its adapter is not told yet
turn     the agent has said half of its answer
sent     a message has arrived, and its receipt is not known yet
commit   inside a transaction, with whatever else is committed with it
start    the platform is being connected
======== ========================================================================
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Literal

from hermes_core import AdapterContext, AgentEvent, Channel, Outbound, Receipt, Text, Turn
from hermes_core.gateway import Gateway
from hermes_core.store import Tx
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway

POINTS = ("receive", "turn", "sent", "commit", "start")
KINDS = ("plain", "idempotent", "reconciles", "streaming", "exact")
NETWORK = "network.jsonl"
RUNS = "runs.jsonl"
PAUSE = 0.004
"""Seconds between two pieces of an answer at most."""


class Death:
    """Counts how often the process comes to the point at which it is to die."""

    def __init__(self, point: str = "", count: int = 0) -> None:
        self._point = point
        self._left = count

    def at(self, point: str) -> bool:
        """Whether it is time to die here."""
        if point != self._point:
            return False
        self._left -= 1
        return self._left == 0

    def come(self, point: str) -> None:
        if self.at(point):
            die()


def die(_: Tx | None = None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Victim(ScriptedPlatform):
    """A platform on whose ways the points lie."""

    def __init__(self, home: Path, kind: str, death: Death) -> None:
        super().__init__(
            idempotent=kind == "idempotent",
            reconciles=kind in {"reconciles", "exact"},
            edit=kind in {"streaming", "exact"},
            journal=home / NETWORK,
        )
        self.death = death
        self.gateway: Gateway | None = None

    def connected(self, is_reconnect: bool) -> str:
        self.death.come("start")
        return super().connected(is_reconnect)

    async def outbound(
        self, call: Literal["send", "edit"], message_id: str, message: Outbound
    ) -> Receipt:
        receipt = await super().outbound(call, message_id, message)
        self.death.come("sent")
        return receipt

    async def serve(self, context: AdapterContext, channel: Channel) -> None:
        await super().serve(context, _Line(channel, self))

    def about_to_write(self) -> None:
        if self.death.at("commit") and self.gateway is not None:
            self.gateway.profiles["default"].store.write(die)


class _Line:
    """The way to a client."""

    def __init__(self, channel: Channel, victim: Victim) -> None:
        self._channel = channel
        self._victim = victim

    @property
    def peer_uid(self) -> int:
        return self._channel.peer_uid

    @property
    def parameters(self) -> Mapping[str, object]:
        return self._channel.parameters

    async def receive(self) -> dict[str, object] | None:
        frame = await self._channel.receive()
        self._victim.about_to_write()
        return frame

    async def send(self, frame: Mapping[str, object]) -> None:
        self._victim.death.come("receive")
        await self._channel.send(frame)


async def main(home: Path, kind: str, death: Death) -> None:
    async def talk(turn: Turn) -> AsyncIterator[AgentEvent]:
        await asyncio.sleep(random.uniform(0, PAUSE))  # noqa: S311 - not a secret
        yield Text("re: ")
        death.come("turn")
        await asyncio.sleep(random.uniform(0, PAUSE))  # noqa: S311
        yield Text(turn.messages[0].text)

    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    platform, agent = Victim(home, kind, death), ScriptedAgent(talk, journal=home / RUNS)
    async with gateway(home, platform, agent) as platform.gateway:
        print("ready", os.getpid(), flush=True)  # noqa: T201 - the word that is waited for
        await told.wait()


if __name__ == "__main__":
    home, kind, *rest = sys.argv[1:]
    asyncio.run(main(Path(home), kind, Death(rest[0], int(rest[1])) if rest else Death()))
