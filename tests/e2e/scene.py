"""The plugin that end-to-end tests install: a network in a file, and an agent that does as it is
told.

It runs inside the gateway's process. `SCENE` names the directory in which it is told what to do
and writes down what it did: `sent` has what arrived in chats, `runs` what the agent was given, and
a file in `gates` opens the gate of its name. Everybody may speak unless there is a file `strict`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from hermes_core import AgentEvent, Text, Turn
from hermes_core.testing import ScriptedAgent, ScriptedPlatform

SCENE = Path(os.environ["SCENE"])


async def opened(name: str) -> None:
    """Wait until the test opens a gate."""
    while not (SCENE / "gates" / name).exists():  # noqa: ASYNC110 - another process opens it
        await asyncio.sleep(0.01)


async def behave(turn: Turn) -> AsyncIterator[AgentEvent]:
    """`gate NAME` waits for a gate, `restart NAME` asks for a restart before that, `always NAME`
    does so at each attempt, `held NAME` does not let itself be cancelled, anything else is said
    back."""
    text = turn.messages[0].text
    word, _, name = text.partition(" ")
    if word == "always" or (word == "restart" and turn.attempt == 1):
        await _restart()
    if word in {"gate", "restart", "always"}:
        await opened(name)
    while word == "held":
        try:
            await opened(name)
        except asyncio.CancelledError:
            continue
        break
    yield Text(f"answer to {text}")


async def _restart() -> None:
    """Ask as any child of an agent would."""
    command = (sys.executable, "-m", "hermes_core.cli", "restart")
    process = await asyncio.create_subprocess_exec(*command)
    assert await process.wait() == 0


network = ScriptedPlatform(
    "wire",
    idempotent=True,
    journal=SCENE / "sent",
    allow_all=not (SCENE / "strict").exists(),
)
agent = ScriptedAgent(behave, name="scene", journal=SCENE / "runs")
