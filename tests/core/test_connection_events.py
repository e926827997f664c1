"""What observers hear of a connection: it is made, then it ends, then it is made again."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core import PlatformInfo, hookimpl
from hermes_core.gateway import Gateway
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from tests.core.support import HASTY, run, until

OFF = '[agent]\nuse = "scripted"\n[platforms.scripted]\nenabled = false\n'
ON = '[agent]\nuse = "scripted"\n'


class Witness:
    """Hears what becomes of the connection."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.again: list[bool] = []

    @hookimpl
    def on_platform_connected(self, platform: PlatformInfo) -> None:
        self.heard.append("connected")
        self.again.append(platform.is_reconnect)

    @hookimpl
    def on_platform_disconnected(self, platform: PlatformInfo) -> None:
        self.heard.append("disconnected")


def is_connected(running: Gateway) -> bool:
    account = running.profiles["default"].accounts.get("scripted")
    return account is not None and account.connected


async def step(running: Gateway, platform: ScriptedPlatform, what: str, path: Path) -> None:
    """Let one thing happen to a connection that stands, until it stands again."""
    count = len(platform.connects)
    if what == "lost twice":
        platform.connect_results.extend([ConnectionError("no"), TimeoutError()])
    if what.startswith("lost"):
        platform.lose_connection()
    if what == "lost, and switched off at once":
        what = "switched off"
    if what == "switched off":
        (path / "config.toml").write_text(OFF)
        await until(lambda: running.profiles["default"].accounts.get("scripted") is None)
        count = len(platform.connects)
        (path / "config.toml").write_text(ON)
    if what != "nothing":
        await until(lambda: len(platform.connects) > count)
    await until(lambda: is_connected(running))


STEPS = ["nothing", "lost", "lost twice", "switched off", "lost, and switched off at once", "stop"]


@given(st.lists(st.sampled_from(STEPS), max_size=4))
@settings(max_examples=15, deadline=None)
def test_every_connection_is_told_to_begin_and_to_end_once(plan: list[str]) -> None:
    async def scenario(path: Path) -> Witness:
        witness, platform = Witness(), ScriptedPlatform()
        steps = iter([*plan, "stop"])
        for what in steps:
            async with gateway(path, platform, ScriptedAgent(), witness, config=ON) as running:
                await until(lambda running=running: is_connected(running))  # type: ignore[misc]
                while what != "stop":
                    await step(running, platform, what, path)
                    what = next(steps)  # noqa: PLW2901
        return witness

    with tempfile.TemporaryDirectory() as directory:
        witness = run(scenario(Path(directory)), speed=HASTY, limit=60)
    pairs = len(witness.again)
    assert witness.heard == ["connected", "disconnected"] * pairs
    assert pairs == 1 + sum(what != "nothing" for what in plan)


def test_an_account_that_never_connected_is_told_about_to_nobody(tmp_path: Path) -> None:
    witness, platform = Witness(), ScriptedPlatform()
    platform.connect_results.extend([ConnectionError("no")] * 100)

    async def scenario() -> None:
        async with gateway(tmp_path, platform, ScriptedAgent(), witness):
            await until(lambda: len(platform.connects) == 3)

    run(scenario(), speed=HASTY)
    assert witness.heard == []
