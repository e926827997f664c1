"""A type checker refuses wrong arguments, wrong kinds and wrong results at the calls of hooks."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CALLS = """\
from hermes_core import GatewayInfo, Outbound, ProfileScope, Receipt, TurnEnd, hookspecs as specs
from hermes_core.plugins import AdapterCalls, Hooks, Owned
from hermes_core.platforms import Platform

async def right(
    hooks: Hooks, calls: AdapterCalls, scope: ProfileScope, end: TurnEnd, out: Outbound
) -> None:
    hooks.notify(specs.on_turn_end, scope=scope, turn=end)
    hooks.notify(specs.on_turn_end, scope, end)
    platforms: list[Owned[list[Platform]]] = hooks.collect(specs.platforms)
    receipt: Receipt = await calls.call(specs.send, message=out)

async def wrong(
    hooks: Hooks, calls: AdapterCalls, scope: ProfileScope, end: TurnEnd, out: Outbound
) -> None:
    hooks.notify(specs.on_turn_end, scope=scope, trun=end)                  # error
    hooks.notify(specs.on_turn_end, scope=scope)                            # error
    hooks.notify(specs.on_turn_end, scope=scope, turn=scope)                # error
    hooks.notify(specs.on_turn_end, scope=scope, turn=end, more=1)          # error
    hooks.notify(specs.authorize, scope=scope, sender=1, address=2)         # error
    hooks.notify(specs.send, message=out)                                   # error
    hooks.collect(specs.on_turn_end, scope=scope, turn=end)                 # error
    await hooks.decide(specs.on_turn_end, None, scope=scope, turn=end)      # error
    await hooks.decide(specs.authorize, None, scope=scope)                  # error
    await hooks.notify(specs.on_turn_end, scope=scope, turn=end)            # error
    await calls.call(specs.send, message="text")                            # error
    await calls.call(specs.on_turn_end, scope=scope, turn=end)              # error
    result: str = await calls.call(specs.send, message=out)                 # error
    names: list[Owned[list[str]]] = hooks.collect(specs.platforms)          # error
"""


def test_planted_mistakes_are_caught_and_right_calls_pass(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "calls.py").write_text(CALLS)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "calls.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(Path(__file__).parents[2]), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {
        int(line) for line in re.findall(r"^calls\.py:(\d+): error", checked.stdout, re.MULTILINE)
    }
    planted = {
        number for number, line in enumerate(CALLS.splitlines(), 1) if line.endswith("# error")
    }
    assert found == planted, checked.stdout + checked.stderr
