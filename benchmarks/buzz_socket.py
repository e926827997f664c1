"""Which library should carry the Buzz socket: frames a second read, import time, packages.

One server in a process of its own sends the same frames to each client; the two take turns. Run
with ``python benchmarks/buzz_socket.py`` where aiohttp and websockets are installed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import subprocess
import sys
import time
from multiprocessing.connection import Connection

FRAMES = 20_000
ROUNDS = 5
FRAME = '["EVENT","c",{"content":"' + "x" * 500 + '","kind":9}]'


async def _serve(ready: Connection) -> None:
    from websockets.asyncio.server import ServerConnection, serve

    async def handler(connection: ServerConnection) -> None:
        async for _ in connection:
            for _ in range(FRAMES):
                await connection.send(FRAME)

    async with serve(handler, "127.0.0.1", 0, compression=None) as server:
        ready.send(next(iter(server.sockets)).getsockname()[1])
        await server.serve_forever()


def _server(ready: Connection) -> None:
    asyncio.run(_serve(ready))


async def _by_websockets(url: str) -> float:
    from websockets.asyncio.client import connect

    async with connect(url, compression=None, max_size=1 << 20) as socket:
        await socket.send("go")
        started = time.perf_counter()
        for _ in range(FRAMES):
            await socket.recv()
        return FRAMES / (time.perf_counter() - started)


async def _by_aiohttp(url: str) -> float:
    import aiohttp

    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, compress=0, max_msg_size=1 << 20) as socket,
    ):
        await socket.send_str("go")
        started = time.perf_counter()
        for _ in range(FRAMES):
            await socket.receive()
        return FRAMES / (time.perf_counter() - started)


def _import_seconds(statement: str) -> float:
    """Median time of a fresh interpreter that runs `statement`, less that of a bare one."""

    def once(code: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - started

    bare = statistics.median(once("import asyncio, ssl") for _ in range(ROUNDS))
    return (
        statistics.median(once(f"import asyncio, ssl; {statement}") for _ in range(ROUNDS)) - bare
    )


def main() -> None:
    """Print one line a library."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=_server, args=(there,), daemon=True)
    process.start()
    url = f"ws://127.0.0.1:{here.recv()}/"
    rates: dict[str, list[float]] = {"websockets": [], "aiohttp": []}
    for _ in range(ROUNDS):
        rates["websockets"].append(asyncio.run(_by_websockets(url)))
        rates["aiohttp"].append(asyncio.run(_by_aiohttp(url)))
    process.terminate()
    process.join()
    imports = {
        "websockets": "from websockets.asyncio.client import connect",
        "aiohttp": "import aiohttp",
        "websockets + httpx": "from websockets.asyncio.client import connect; import httpx",
    }
    for name, values in rates.items():
        print(f"{name}: frames_per_second={statistics.median(values):.0f}")
    for name, statement in imports.items():
        try:
            print(f"{name}: import_ms={_import_seconds(statement) * 1000:.0f}")
        except subprocess.CalledProcessError:
            print(f"{name}: not installed")


if __name__ == "__main__":
    main()
