from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import textwrap
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner

import hermes_memory_trim
from hermes_core.cli.invocation import Invocation
from hermes_core.gateway import HOUSEKEEPING
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from hermes_memory_trim import TrimSettings, memory
from hermes_memory_trim.cli import memory as memory_command
from hermes_memory_trim.service import FAILURES, FLOOR, Trimmer

T = TypeVar("T")
LINUX = pytest.mark.skipif(memory.find_release() is None, reason="nothing gives memory back here")


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps when it is told to."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped

    def skip(self, seconds: float) -> None:
        self.skipped += seconds
        self.call_soon(lambda: None)


def run(work: Callable[[SkippingLoop], Coroutine[Any, Any, T]]) -> T:
    loop = SkippingLoop()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work(loop))


class Library:
    """What gives memory back, as a test wants it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls = 0
        self.error = error

    def find(self) -> memory.Release:
        return self.release

    def release(self) -> bool:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return True


async def trimmed(trimmer: Trimmer, count: int) -> None:
    """Let the loop run until so many trims are over."""
    for _ in iter(lambda: len(trimmer.history) >= count, True):
        await asyncio.sleep(0)


def trimmer_with(library: Library) -> Trimmer:
    trimmer = Trimmer(library.find)
    trimmer.look()
    return trimmer


def test_trims_keep_the_cooldown_and_the_floor() -> None:
    async def main(loop: SkippingLoop) -> None:
        trimmer = trimmer_with(Library())
        settings = TrimSettings()
        assert trimmer.claim(60)
        assert not trimmer.claim(60), "two profiles at once are one trim"
        done = await trimmer.trim(settings, "idle", 1.0)
        assert done is not None
        assert (done.reason, done.at, done.released) == ("idle", 1.0, True)
        assert not trimmer.claim(60)
        loop.skip(FLOOR + 0.1)
        assert not trimmer.claim(60)
        assert trimmer.claim(FLOOR)
        loop.skip(60)
        assert not trimmer.claim(1e9)
        assert trimmer.claim(60)

    run(main)


def test_failures_are_quiet_and_end_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def main(loop: SkippingLoop) -> None:
        library = Library(OSError("no"))
        trimmer = trimmer_with(library)
        for _ in range(FAILURES):
            assert trimmer.claim(FLOOR)
            assert await trimmer.trim(TrimSettings(), "idle", 0.0) is None
            loop.skip(FLOOR + 0.1)
        assert not trimmer.claim(FLOOR)
        assert (trimmer.state, trimmer.reason) == ("off", "OSError: no")

    run(main)
    levels = [r.levelname for r in caplog.records if r.name == "hermes_memory_trim.service"]
    assert levels == ["DEBUG"] * FAILURES + ["WARNING"]


def test_a_failure_that_is_over_is_not_shown() -> None:
    async def main(loop: SkippingLoop) -> None:
        library = Library(OSError("no"))
        trimmer = trimmer_with(library)
        await trimmer.trim(TrimSettings(), "idle", 0.0)
        assert trimmer.reason
        library.error = None
        await trimmer.trim(TrimSettings(), "idle", 0.0)
        assert (trimmer.state, trimmer.reason) == ("ready", "")

    run(main)


def test_profiles_whose_turns_end_at_once_share_one_trim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_memory_trim import service

    library = Library()
    shared = Trimmer(library.find)
    monkeypatch.setattr(service, "_shared", shared)

    async def main(loop: SkippingLoop) -> None:
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent(), hermes_memory_trim) as g:
            scope = g.profiles["default"].scope
            hermes_memory_trim.on_turn_end(scope)
            hermes_memory_trim.on_turn_end(scope)
            await trimmed(shared, 1)

    run(main)
    assert library.calls == 1


def test_the_log_says_what_the_settings_want(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def main(loop: SkippingLoop) -> None:
        trimmer = trimmer_with(Library())
        for _ in range(4):
            await trimmer.trim(TrimSettings(log_every_n=2), "idle", 0.0)
        much = TrimSettings(info_log_min_delta_mb=1e6)
        await trimmer.trim(much, "idle", 0.0)
        await trimmer.trim(much, "asked for", 0.0, forced=True)

    run(main)
    lines = [r.getMessage() for r in caplog.records if r.name == "hermes_memory_trim.service"]
    assert len([line for line in lines if "reason=idle" in line]) <= 2
    assert len([line for line in lines if "reason=asked for" in line]) == 1


@pytest.mark.case("MT-01")
def test_without_the_c_library_everything_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    def nothing(name: str) -> object:
        raise OSError("not found")

    monkeypatch.setattr("ctypes.CDLL", nothing)
    assert memory.find_release() is None
    from hermes_memory_trim import service

    monkeypatch.setattr(service, "_shared", Trimmer())

    async def main(loop: SkippingLoop) -> None:
        platform = ScriptedPlatform()
        plugins = (platform, ScriptedAgent(), hermes_memory_trim)
        async with gateway(tmp_path, *plugins) as running:
            await platform.say("hello")
            assert await platform.next_text() == "hello"
            services = running.profiles["default"].services
            answer = await services.request("memory", {"trim": True})
            assert (answer["state"], answer["trimmed"], answer["count"]) == (
                "unsupported",
                False,
                0,
            )

    run(main)
    lines = [r for r in caplog.records if r.name == "hermes_memory_trim.service"]
    assert len(lines) == 1


@pytest.mark.case("MT-01")
def test_a_library_without_the_call_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert memory.find_release() is None


@pytest.mark.case("MT-02")
def test_a_day_that_is_never_idle_trims_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_memory_trim import service

    library = Library()
    shared = Trimmer(library.find)
    monkeypatch.setattr(service, "_shared", shared)

    async def main(loop: SkippingLoop) -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        config = "[memory_trim]\ncooldown_seconds = 10\n"
        plugins = (platform, agent, hermes_memory_trim)
        async with gateway(tmp_path, *plugins, config=config):
            gate = agent.gate("long")
            await platform.say("long", chat="busy")  # one turn runs all the time
            for number in range(6):
                await platform.say(str(number))
                await platform.next_text()
                await trimmed(shared, number + 1)
                loop.skip(11)
            gate.set()
            await platform.next_text()

    run(main)
    assert {one.reason for one in shared.history} <= {"turn end", "busy", "idle"}


def test_housekeeping_trims_while_a_turn_runs_and_when_none_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_memory_trim import service

    library = Library()
    shared = Trimmer(library.find)
    monkeypatch.setattr(service, "_shared", shared)

    async def main(loop: SkippingLoop) -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent, hermes_memory_trim):
            gate = agent.gate("long")
            await platform.say("long")
            await agent.started(1)
            for number in range(2):
                loop.skip(HOUSEKEEPING + 1)
                await trimmed(shared, number + 1)
            gate.set()
            await platform.next_text()

    run(main)
    assert shared.history[0].reason == "busy"


def test_switched_off_it_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hermes_memory_trim import service

    library = Library()
    monkeypatch.setattr(service, "_shared", Trimmer(library.find))

    async def main(loop: SkippingLoop) -> None:
        platform = ScriptedPlatform()
        plugins = (platform, ScriptedAgent(), hermes_memory_trim)
        config = "[memory_trim]\nenabled = false\n"
        async with gateway(tmp_path, *plugins, config=config):
            await platform.say("hello")
            await platform.next_text()

    run(main)
    assert library.calls == 0


@LINUX
def test_the_command_shows_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hermes_memory_trim import service

    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    monkeypatch.setattr(service, "_shared", Trimmer())

    async def main(loop: SkippingLoop) -> None:
        async with gateway(tmp_path, ScriptedPlatform(), ScriptedAgent(), hermes_memory_trim):
            for arguments in (["--trim"], ["--json"]):
                result = await asyncio.to_thread(
                    CliRunner().invoke, memory_command, arguments, obj=Invocation()
                )
                assert result.exit_code == 0, result.output
                shown.append(result.stdout)

    shown: list[str] = []
    run(main)
    assert "asked for" in shown[0]
    assert "resident:" in shown[0]
    answer = json.loads(shown[1])
    assert answer["count"] == 1
    assert answer["trims"][0]["before"]["resident"] > 1_000_000
    assert answer["now"]["threads"] >= 1


@LINUX
@pytest.mark.case("MT-04")
def test_the_loop_goes_on_during_a_trim() -> None:
    async def main(loop: SkippingLoop) -> None:
        blocks = [bytes(1500) for _ in range(100_000)]
        del blocks[::2], blocks
        trimmer = Trimmer()
        trimmer.look()
        trim = asyncio.ensure_future(trimmer.trim(TrimSettings(), "asked for", 0.0, forced=True))
        steps = 0
        while not trim.done():
            await asyncio.sleep(0)
            steps += 1
        done = await trim
        assert done is not None
        assert steps > 1

    run(main)


@LINUX
@pytest.mark.case("MT-06")
def test_the_memory_of_finished_sessions_goes(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import asyncio, sys
        from pathlib import Path
        from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
        import hermes_memory_trim
        from hermes_core import Text
        from hermes_memory_trim.memory import figures

        async def short(turn):
            yield Text("ok")

        async def main():
            platform = ScriptedPlatform()
            agent = ScriptedAgent(short)
            plugins = (platform, agent, hermes_memory_trim)
            async with gateway(Path(sys.argv[1]), *plugins) as running:
                services = running.profiles["default"].services
                async def talk(count):
                    for number in range(count):
                        await platform.say(f"{number} " + "x" * 50_000, chat=f"c{number}")
                        await platform.next_text()
                        platform.forget(); agent.runs.clear()
                await talk(50)
                before = figures().anonymous
                await talk(1000)
                profile = running.profiles["default"]
                while profile.status()["busy_sessions"]:
                    await asyncio.sleep(0)
                await services.request("memory", {"trim": True})
                print(before, figures().anonymous)

        asyncio.run(main())
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    before, after = map(int, done.stdout.split())
    assert after < before * 1.3


def test_figures_are_none_where_the_system_says_nothing(tmp_path: Path) -> None:
    assert memory.figures(tmp_path / "absent") == memory.Figures()
    odd = tmp_path / "status"
    odd.write_text("VmRSS:\t  2048 kB\nThreads:\tmany\nno colon\n")
    assert memory.figures(odd) == memory.Figures(resident=2048 * 1024)
