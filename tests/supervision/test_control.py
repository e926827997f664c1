"""A gateway's control socket and its well-behaved clients."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hermes_core.errors import ConfigError, ControlError, HermesError
from hermes_core.supervision.control import (
    ControlServer,
    Handler,
    ServerChannel,
    open_channel,
    request,
    socket_path,
)
from hermes_core.supervision.lock import HomeLock

Start = Callable[..., "subprocess.Popen[str]"]
Frame = Mapping[str, object]


async def echo(channel: ServerChannel) -> Frame:
    return {"uid": channel.peer_uid, **channel.parameters}


async def converse(channel: ServerChannel) -> Frame | None:
    await channel.send({"hello": dict(channel.parameters)})
    while (frame := await channel.receive()) is not None:
        if frame.get("bye"):
            return {"bye": True}
        await channel.send({"got": frame})
    return None


async def misconfigured(_: ServerChannel) -> None:
    raise ConfigError("no such key", where="config.toml: [agent]", remedy="add it")


async def broken(_: ServerChannel) -> None:
    raise RuntimeError("secret detail")


async def unspeakable(_: ServerChannel) -> Frame:
    return {"value": object()}


async def silent(_: ServerChannel) -> None:
    return None


async def endless(_: ServerChannel) -> None:
    await asyncio.Event().wait()


HANDLERS: dict[str, Handler] = {
    "echo": echo,
    "converse": converse,
    "misconfigured": misconfigured,
    "broken": broken,
    "unspeakable": unspeakable,
    "silent": silent,
    "endless": endless,
}

SERVE = """
import asyncio, sys
from pathlib import Path
from hermes_core.supervision.control import ControlServer, socket_path
from hermes_core.supervision.lock import HomeLock

async def who(channel):
    return {"name": sys.argv[2]}

async def serve():
    home = Path(sys.argv[1])
    HomeLock(home / "gateway.lock").acquire()
    async with ControlServer(socket_path(home), {"who": who}):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(serve())
"""


def server(home: Path) -> ControlServer:
    return ControlServer(socket_path(home), HANDLERS)


def test_a_short_question_and_its_answer(tmp_path: Path) -> None:
    async def scenario() -> dict[str, object]:
        async with server(tmp_path):
            return await asyncio.to_thread(request, tmp_path, "echo", 5.0, name="Zoë", size=3)

    assert asyncio.run(scenario()) == {"uid": os.getuid(), "name": "Zoë", "size": 3}


def test_a_conversation(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(tmp_path), await open_channel(tmp_path, "converse", {"a": 1}) as channel:
            assert await channel.receive() == {"hello": {"a": 1}}
            for number in range(3):
                await channel.send({"n": number})
                assert await channel.receive() == {"got": {"n": number}}
            await channel.send({"bye": True})
            assert await channel.receive() == {"bye": True}
            assert await channel.receive() is None

    asyncio.run(scenario())


def test_many_conversations_at_once(tmp_path: Path) -> None:
    async def one(number: int) -> None:
        async with await open_channel(tmp_path, "converse", {"n": number}) as channel:
            assert await channel.receive() == {"hello": {"n": number}}
            await channel.send({"bye": True})
            assert await channel.receive() == {"bye": True}

    async def scenario() -> None:
        async with server(tmp_path), asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(one(number))

    asyncio.run(scenario())


def test_large_frames_pass_both_ways(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(tmp_path), await open_channel(tmp_path, "converse", {}) as channel:
            await channel.receive()
            text = "x" * 1_000_000
            await channel.send({"text": text})
            assert await channel.receive() == {"got": {"text": text}}

    asyncio.run(scenario())


def refusals(home: Path, *verbs: str) -> list[ControlError]:
    async def scenario() -> list[ControlError]:
        errors = []
        async with server(home):
            for verb in verbs:
                with pytest.raises(ControlError) as error:
                    await asyncio.to_thread(request, home, verb)
                errors.append(error.value)
            assert await asyncio.to_thread(request, home, "echo")
        return errors

    return asyncio.run(scenario())


def test_an_error_keeps_its_place_its_remedy_and_its_exit_code(tmp_path: Path) -> None:
    (error,) = refusals(tmp_path, "misconfigured")
    assert str(error) == "config.toml: [agent]: no such key (add it)"
    assert error.exit_code == 2


def test_an_unexpected_failure_is_named_without_its_detail(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (error,) = refusals(tmp_path, "broken")
    assert "RuntimeError" in str(error)
    assert "secret detail" not in str(error)
    assert "secret detail" in caplog.text


def test_what_is_no_answer_is_an_error(tmp_path: Path) -> None:
    unspeakable, silent, unknown = refusals(tmp_path, "unspeakable", "silent", "nonsense")
    assert "not a JSON object" in str(unspeakable)
    assert "closed the connection" in str(silent)
    assert "unknown verb 'nonsense'" in str(unknown)
    assert "echo" in unknown.remedy


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="no gateway is running") as error:
        request(tmp_path, "echo")
    assert "hermes run" in error.value.remedy
    with pytest.raises(ControlError, match="no gateway is running"):
        asyncio.run(open_channel(tmp_path, "echo", {}))
    assert list(tmp_path.iterdir()) == []


def test_an_answer_that_does_not_come_is_an_error_in_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with server(tmp_path):
            with pytest.raises(ControlError, match=r"did not answer within 0\.05 s"):
                await asyncio.to_thread(request, tmp_path, "endless", 0.05)

    asyncio.run(scenario())


def test_only_the_user_can_reach_it_and_it_goes_with_the_server(tmp_path: Path) -> None:
    path = socket_path(tmp_path)

    async def scenario() -> None:
        async with server(tmp_path):
            assert stat.S_ISSOCK(path.stat().st_mode)
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert not path.exists()
        assert not path.with_suffix(".new").exists()

    asyncio.run(scenario())


def test_stopping_ends_every_conversation(tmp_path: Path) -> None:
    ended: list[str] = []

    async def patient(_: ServerChannel) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def scenario() -> None:
        control = ControlServer(socket_path(tmp_path), {"patient": patient, "converse": converse})
        await control.start()
        channels = [await open_channel(tmp_path, verb, {}) for verb in ("patient", "converse")]
        await channels[1].receive()
        await control.stop()
        await control.stop()
        assert ended == ["cancelled"]
        for channel in channels:
            assert await channel.receive() is None
            await channel.close()
            with pytest.raises(ConnectionError):
                await channel.send({})

    asyncio.run(scenario())


def test_a_handler_may_stop_the_server(tmp_path: Path) -> None:
    async def scenario() -> None:
        stopped = asyncio.Event()

        async def stop(_: ServerChannel) -> Frame:
            await control.stop()
            stopped.set()
            return {"stopped": True}

        control = ControlServer(socket_path(tmp_path), {"stop": stop})
        await control.start()
        answer = await asyncio.to_thread(request, tmp_path, "stop")
        assert answer == {"stopped": True}
        assert stopped.is_set()

    asyncio.run(scenario())


def test_a_handler_that_does_not_end_is_abandoned_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        started, release = asyncio.Event(), asyncio.Event()

        async def stubborn(_: ServerChannel) -> None:
            started.set()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        control = ControlServer(socket_path(tmp_path), {"stubborn": stubborn}, stop_grace=0.05)
        await control.start()
        async with await open_channel(tmp_path, "stubborn", {}):
            await started.wait()
            await control.stop()
            release.set()

    asyncio.run(scenario())
    assert "control client: stubborn" in caplog.text


def test_the_address_is_found_from_another_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        with HomeLock(tmp_path / "gateway.lock"):
            async with server(tmp_path):
                monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
                monkeypatch.setenv("TMPDIR", str(tmp_path))
                assert await asyncio.to_thread(request, tmp_path, "echo")
                async with await open_channel(tmp_path, "converse", {}) as channel:
                    assert await channel.receive() is not None

    asyncio.run(scenario())


@pytest.mark.case("SH-04")
def test_a_dead_socket_is_replaced_after_kill_9(start: Start, tmp_path: Path) -> None:
    for number in range(3):
        process = start(SERVE, tmp_path, number)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert request(tmp_path, "who") == {"name": str(number)}
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert socket_path(tmp_path).exists()
        with pytest.raises(ControlError, match="no gateway is running"):
            request(tmp_path, "who")
    socket_path(tmp_path).unlink()


def test_whatever_lies_in_its_place_is_replaced_or_told(tmp_path: Path) -> None:
    path = socket_path(tmp_path)
    path.parent.mkdir(mode=0o700, exist_ok=True)

    async def scenario() -> None:
        path.write_text("a file")
        path.with_suffix(".new").write_text("left by a crash")
        async with server(tmp_path):
            assert await asyncio.to_thread(request, tmp_path, "echo")
        path.mkdir()
        with pytest.raises(HermesError, match="cannot open the control socket"):
            await server(tmp_path).start()
        path.rmdir()
        assert not path.with_suffix(".new").exists()

    asyncio.run(scenario())


def test_a_successor_s_socket_is_not_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        old, new = server(tmp_path), server(tmp_path)
        await old.start()
        await new.start()
        await old.stop()
        assert await asyncio.to_thread(request, tmp_path, "echo")
        await new.stop()

    asyncio.run(scenario())
