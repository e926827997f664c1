"""The control socket and clients that mean harm or are broken."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hermes_core.errors import ControlError
from hermes_core.supervision.control import ControlServer, ServerChannel, request, socket_path
from hermes_core.supervision.control.frames import MAX_FRAME

Start = Callable[..., "subprocess.Popen[str]"]

NOBODY = 65534

BECOME_NOBODY = f"""
import os, socket, sys
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
"""

CONNECT = """
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
print(connection.makefile().readline(), end="")
"""

LISTEN = """
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
connection, _ = listener.accept()
print(connection.recv(1000).decode(), flush=True)
"""

root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can play another user")


async def ping(_: ServerChannel) -> dict[str, object]:
    return {"pong": True}


async def listen(channel: ServerChannel) -> dict[str, object]:
    while await channel.receive() is not None:
        pass
    return {}


async def pour(channel: ServerChannel) -> None:
    while True:
        await channel.send({"text": "x" * 1000})


def server(home: Path, **limits: float) -> ControlServer:
    handlers = {"ping": ping, "listen": listen, "pour": pour}
    return ControlServer(
        socket_path(home),
        handlers,
        max_clients=int(limits.get("max_clients", 64)),
        first_frame_limit=limits.get("first_frame_limit", 5.0),
    )


def exchange(path: Path, sent: bytes, *, leave: bool = False) -> bytes:
    """Send bytes as they are and read until the server hangs up."""
    received = b""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        try:
            connection.sendall(sent)
            if leave:
                connection.shutdown(socket.SHUT_WR)
            while chunk := connection.recv(1 << 16):
                received += chunk
        except ConnectionError:
            pass
    return received


def told(path: Path, sent: bytes, *, leave: bool = False) -> str:
    """The error that the server answers to these bytes."""
    frame = json.loads(exchange(path, sent, leave=leave))
    assert set(frame) == {"error", "where", "remedy", "code"}
    assert frame["code"] == 1
    assert isinstance(frame["error"], str)
    return frame["error"]


@pytest.mark.parametrize(
    ("sent", "error"),
    [
        (b"hello\n", "expected one JSON object"),
        (b"\n", "expected one JSON object"),
        (b"\x00\xff\xfe\n", "expected one JSON object"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "expected one JSON object"),
        (b"[1, 2]\n", "expected one JSON object"),
        (b"[" * 100_000 + b"\n", "expected one JSON object"),
        (b'{"verb": NaN}\n', "expected one JSON object"),
        (b"{}\n", "unknown verb None"),
        (b'{"verb": ["ping"]}\n', "unknown verb ['ping']"),
        (b'{"verb": "' + b"x" * 10_000 + b'"}\n', "unknown verb 'xxx"),
        (b'{"verb": "listen"}\nnonsense\n', "expected one JSON object"),
        (b"x" * (MAX_FRAME + 1), "longer than"),
        (b'{"verb": "listen"}\n' + b"x" * (MAX_FRAME + 1), "longer than"),
    ],
)
def test_nonsense_is_told_and_harms_nobody(tmp_path: Path, sent: bytes, error: str) -> None:
    async def scenario() -> str:
        async with server(tmp_path):
            answer = await asyncio.to_thread(told, socket_path(tmp_path), sent)
            assert await asyncio.to_thread(request, tmp_path, "ping") == {"pong": True}
        return answer

    answer = asyncio.run(scenario())
    assert error in answer
    assert len(answer) < 500


def test_half_a_frame_is_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        path = socket_path(tmp_path)
        async with server(tmp_path):
            for sent in (b"", b'{"verb": "pi', b'{"verb": "ping"}'):
                assert await asyncio.to_thread(exchange, path, sent, leave=True) == b""
            assert await asyncio.to_thread(request, tmp_path, "ping") == {"pong": True}

    asyncio.run(scenario())
    assert caplog.text == ""


def test_a_request_that_never_ends_is_ended(tmp_path: Path) -> None:
    async def scenario() -> str:
        async with server(tmp_path, first_frame_limit=0.05):
            return await asyncio.to_thread(told, socket_path(tmp_path), b'{"verb"')

    assert "no request within 0.05 s" in asyncio.run(scenario())


def test_there_is_room_for_so_many_and_again_when_they_left(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = socket_path(tmp_path)
        async with server(tmp_path, max_clients=3):
            guests = [await asyncio.open_unix_connection(path) for _ in range(3)]
            for _, writer in guests:
                writer.write(b'{"verb": "listen"}\n')
            with pytest.raises(ControlError, match="more than 3 clients"):
                await asyncio.to_thread(request, tmp_path, "ping")
            for reader, writer in guests:
                writer.write_eof()
                assert await reader.read() == b"{}\n"
                writer.close()
                await writer.wait_closed()
            assert await asyncio.to_thread(request, tmp_path, "ping") == {"pong": True}

    asyncio.run(scenario())


def test_a_client_that_does_not_read_holds_up_only_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        control = server(tmp_path)
        await control.start()
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.connect(str(socket_path(tmp_path)))
            deaf.sendall(b'{"verb": "pour"}\n')
            for _ in range(20):
                assert await asyncio.to_thread(request, tmp_path, "ping") == {"pong": True}
            await control.stop()

    asyncio.run(scenario())


def test_a_client_that_leaves_in_the_middle_is_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with server(tmp_path, max_clients=1):
            with socket.socket(socket.AF_UNIX) as fickle:
                fickle.connect(str(socket_path(tmp_path)))
                fickle.sendall(b'{"verb": "pour"}\n')
                assert await asyncio.to_thread(fickle.recv, 10)
            while True:
                try:
                    await asyncio.to_thread(request, tmp_path, "ping")
                    return
                except ControlError:  # the server has not noticed yet
                    continue

    asyncio.run(scenario())
    assert caplog.text == ""


@contextmanager
def open_to_all() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hermes-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@root_only
def test_another_user_is_refused_by_the_kernel_s_word(start: Start) -> None:
    with open_to_all() as home:
        path = home / "private" / "x.sock"

        async def scenario() -> str:
            async with ControlServer(path, {"ping": ping}):
                # As if the permissions had failed:
                path.parent.chmod(0o755)
                path.chmod(0o666)
                process = start(BECOME_NOBODY + CONNECT, path)
                output, _ = await asyncio.to_thread(process.communicate)
                return str(output)

        assert json.loads(asyncio.run(scenario()))["error"] == (
            "the gateway belongs to another user"
        )


@root_only
def test_a_client_does_not_talk_to_another_user_s_server(start: Start, tmp_path: Path) -> None:
    with open_to_all() as directory:
        directory.chmod(0o777)
        planted = directory / "x.sock"
        impostor = start(BECOME_NOBODY + LISTEN, planted)
        assert impostor.stdout is not None
        assert impostor.stdout.readline() == "ready\n"
        path = socket_path(tmp_path)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        planted.rename(path)
        with pytest.raises(ControlError, match="belongs to another user"):
            request(tmp_path, "secret")
        assert impostor.stdout.read() == "\n"
        path.unlink()
