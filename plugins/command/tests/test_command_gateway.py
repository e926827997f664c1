"""A whole gateway with a program for an agent."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

import hermes_command
from hermes_core.testing import ScriptedPlatform, gateway

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

AGENT = """\
import json, subprocess, sys
turn = json.load(sys.stdin)
text = turn["messages"][-1]["text"]
if text != "work":
    print(len(turn["history"]), text)
    raise SystemExit
child = subprocess.Popen(["sleep", "800"])
with open(sys.argv[1], "w") as pids:
    print(child.pid, file=pids)
child.wait()
"""


def config(script: Path, *arguments: Path) -> str:
    argv = ", ".join(f'"{part}"' for part in (sys.executable, script, *arguments))
    return f'[agent]\nuse = "command"\ncommand = {{ argv = [{argv}], timeout = "1m" }}\n'


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_a_conversation_with_a_program_that_is_cancelled_in_the_middle(tmp_path: Path) -> None:
    script, pids = tmp_path / "agent.py", tmp_path / "pids"
    script.write_text(AGENT)
    os.mkfifo(pids)

    async def main() -> None:
        platform = ScriptedPlatform()
        home = tmp_path / "home"
        async with gateway(home, platform, hermes_command, config=config(script, pids)):
            await platform.say("hello")
            assert await platform.next_text() == "0 hello"
            await platform.say("again")
            assert await platform.next_text() == "2 again"
            await platform.say("work")
            child = int(await asyncio.to_thread(pids.read_text))
            assert alive(child)
            await platform.say("/stop")
            await platform.say("after")
            while not (text := await platform.next_text()).endswith("after"):
                pass
            assert not alive(child)
            assert text.endswith(" after")

    asyncio.run(main())


def test_a_program_that_is_not_there_is_told_to_the_chat(tmp_path: Path) -> None:
    async def main() -> None:
        platform = ScriptedPlatform()
        settings = '[agent]\nuse = "command"\ncommand = { argv = ["no-such-agent"] }\n'
        async with gateway(tmp_path / "home", platform, hermes_command, config=settings):
            await platform.say("hello")
            assert "no-such-agent was not found" in await platform.next_text()

    asyncio.run(main())
