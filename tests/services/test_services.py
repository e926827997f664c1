from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from hermes_core.errors import ConfigError, ControlError, HermesError
from hermes_core.gateway import HOUSEKEEPING
from hermes_core.services import Schema, Section
from hermes_core.settings import Settings, TableArray
from hermes_core.supervision.control import request
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from tests.services.support import (
    KeeperPlugin,
    KeeperSettings,
    TargetSettings,
    run,
    with_tools,
)

T = TypeVar("T")


def test_a_service_is_told_everything_before_it_stops(tmp_path: Path) -> None:
    plugin, platform = KeeperPlugin(), ScriptedPlatform()

    async def main() -> None:
        async with gateway(tmp_path, platform, ScriptedAgent(), plugin):
            await platform.say("hello")
            assert await platform.next_text() == "hello"

    run(main())
    assert plugin.log == ["start", "turn answered", "stop"]


def test_the_context_gives_its_own_sections_only(tmp_path: Path) -> None:
    plugin = KeeperPlugin()
    config = (
        '[keeper]\ncolor = "red"\n[[keepers.target]]\nname = "a"\n[[keepers.target]]\nname = "b"\n'
    )

    async def main() -> None:
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent(), plugin, config=config):
            context = plugin.service.context
            assert context.section("keeper", KeeperSettings).color == "red"
            targets = context.table_array("keepers.target", TargetSettings)
            assert [target.name for target in targets] == ["a", "b"]
            with pytest.raises(ConfigError, match="did not declare"):
                context.section("gateway", KeeperSettings)

    run(main())


def test_small_state_is_kept(tmp_path: Path) -> None:
    async def first() -> None:
        plugin = KeeperPlugin()
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent(), plugin):
            kv = plugin.service.context.kv
            await kv.set("place", {"page": 7})
            await kv.set("gone", True)
            await kv.delete("gone")
            with pytest.raises(ValueError, match="65536"):
                await kv.set("big", "x" * 70_000)

    async def second() -> None:
        plugin = KeeperPlugin()
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent(), plugin):
            kv = plugin.service.context.kv
            assert await kv.get("place") == {"page": 7}
            assert await kv.get("gone") is None
            assert await kv.items() == {"place": {"page": 7}}

    run(first())
    run(second())


def test_a_service_that_does_not_start_costs_itself(tmp_path: Path) -> None:
    plugin, platform = KeeperPlugin(), ScriptedPlatform()
    plugin.start_error = HermesError("no luck today")

    async def main() -> None:
        async with gateway(tmp_path, platform, ScriptedAgent(), plugin) as running:
            await platform.say("hello")
            assert await platform.next_text() == "hello"
            served = running.profiles["default"]
            assert served.status()["services"] == {"keeper": "no luck today"}
            with pytest.raises(ControlError, match="no luck today"):
                await served.services.request("keeper", {})

    run(main())


def test_commands_ask_a_service_through_the_control_socket(tmp_path: Path) -> None:
    plugin = KeeperPlugin()

    async def main() -> None:
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent(), plugin) as running:
            home = running.home.state_root

            async def ask(**parameters: Any) -> dict[str, object]:
                return await asyncio.to_thread(lambda: request(home, "service", **parameters))

            answer = await ask(name="keeper", request={"a": [1]})
            assert answer["heard"] == {"a": [1]}
            wrong: tuple[tuple[dict[str, Any], str], ...] = (
                ({"name": "keeper", "request": {"fail": 1}}, "asked to fail"),
                ({"name": "nobody"}, "no service 'nobody'"),
                ({"name": "keeper", "profile": "other"}, "'other'"),
            )
            for parameters, said in wrong:
                with pytest.raises(HermesError, match=said):
                    await ask(**parameters)

    run(main())


def test_the_tables_of_a_plugin_grow_step_by_step(tmp_path: Path) -> None:
    one = ("CREATE TABLE keep_note (id INTEGER PRIMARY KEY, text TEXT)",)
    two = ("ALTER TABLE keep_note ADD COLUMN mood TEXT DEFAULT 'fine'",)

    async def first() -> None:
        plugin = KeeperPlugin(schema=Schema("keep", (one,)))
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent(), plugin):
            tables = plugin.service.context.tables
            await tables.write(lambda tx: tx.execute("INSERT INTO keep_note (text) VALUES ('a')"))

    async def second() -> list[Any]:
        plugin = KeeperPlugin(schema=Schema("keep", (one, two)))
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent(), plugin):
            tables = plugin.service.context.tables
            return await tables.read(lambda tx: tx.execute("SELECT * FROM keep_note").fetchall())

    async def older() -> object:
        plugin = KeeperPlugin(schema=Schema("keep", (one,)))
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent(), plugin) as running:
            return running.profiles["default"].services.status()["keeper"]

    run(first())
    assert run(second()) == [(1, "a", "fine")]
    assert "newer" in str(run(older()))


def test_observers_hear_of_tools_with_what_they_were_given(tmp_path: Path) -> None:
    plugin, platform = KeeperPlugin(), ScriptedPlatform()

    async def main() -> None:
        async with gateway(tmp_path, platform, ScriptedAgent(with_tools), plugin):
            await platform.say("go")
            call = await plugin.calls.get()
            assert (call.name, call.input["pattern"], call.error) == ("grep", "x", "")
            assert call.output == "two \ud800 lines"
            assert call.duration >= 0
            late = await plugin.calls.get()
            assert (late.name, late.input, late.error) == ("late", {}, "was never begun")
            helper = await plugin.subagents.get()
            assert (helper.id, helper.name, helper.output) == ("h", "scout", "found it")
            assert helper.turn_id == call.turn_id

    run(main())


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps when it is told to."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped

    def skip(self, seconds: float) -> None:
        self.skipped += seconds
        self.call_soon(lambda: None)


def run_skipping(work: Callable[[SkippingLoop], Coroutine[Any, Any, T]]) -> T:
    loop = SkippingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work(loop))


def test_housekeeping_comes_about_once_a_minute(tmp_path: Path) -> None:
    plugin = KeeperPlugin()

    async def main(loop: SkippingLoop) -> None:
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent(), plugin):
            for _ in range(3):
                await asyncio.sleep(0)
                loop.skip(HOUSEKEEPING + 1)
                load = await plugin.loads.get()
                assert (load.running_turns, load.waiting) == (0, 0)
            assert plugin.loads.empty()

    run_skipping(main)


class _Bad:
    def __init__(self, sections: list[Section]) -> None:
        self.sections = sections

    def plugin(self) -> object:
        from types import ModuleType

        from hermes_core import hookimpl

        module = ModuleType("bad")

        @hookimpl
        def settings() -> list[Section]:
            return self.sections

        module.settings = settings  # type: ignore[attr-defined]
        return module


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        (Section("gateway", KeeperSettings), "one of the core"),
        (Section("hooks.outbound.more", KeeperSettings), "one or two names"),
        (Section("mine", dict), "not a subclass of Settings"),  # type: ignore[arg-type]
        (Section("keeper", KeeperSettings), "is taken by"),
        (Section("mine", TableArray(dict)), "not a subclass of Settings"),  # type: ignore[arg-type]
    ],
)
def test_a_table_that_cannot_be_is_a_reason_for_quarantine(
    tmp_path: Path, section: Section, reason: str
) -> None:
    assert issubclass(KeeperSettings, Settings)
    bad = _Bad([section]).plugin()

    async def main() -> str:
        plugins = (ScriptedPlatform(), ScriptedAgent(), KeeperPlugin(), bad)
        async with gateway(tmp_path, *plugins) as running:
            (broken,) = running.hooks.quarantined
            return broken.reason

    assert reason in run(main())
