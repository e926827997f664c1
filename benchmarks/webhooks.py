"""Outbound webhooks: deliveries a second against the bare client, cost of the hook, cost to a turn.

A server in a process of its own takes the POSTs. Run with ``python -m benchmarks.webhooks`` where
hermes-plugin-outbound-webhooks is installed; ``--quick`` for a look.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import hermes_outbound_webhooks
from hermes_core.events import TurnEnd, TurnInfo
from hermes_core.messages import Address
from hermes_core.profiles import ProfileSecrets
from hermes_core.settings import SecretText
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from hermes_outbound_webhooks.client import Client
from hermes_outbound_webhooks.delivery import Delivery, MemoryBacklog, Post, Worker
from hermes_outbound_webhooks.retry import Outcome
from hermes_outbound_webhooks.targets import Target, TargetSettings, make_target

POSTS = 200 if "--quick" in sys.argv else 2000
TURNS = 20 if "--quick" in sys.argv else 200
ROUNDS = 3
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
TURN = TurnEnd(
    turn=TurnInfo(
        turn_id="t_1",
        session_id="s_1",
        session_key="agent:main:scripted:dm:c1",
        address=Address(platform="scripted", chat_id="c1"),
        attempt=1,
        messages=("x" * 400,),
    ),
    outcome="answered",
    text="y" * 400,
)


async def _serve(ready: Connection) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length))
                writer.write(ANSWER)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    ready.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _server(ready: Connection) -> None:
    asyncio.run(_serve(ready))


def target(port: int) -> Target:
    settings = TargetSettings(
        name="bench",
        url=f"http://127.0.0.1:{port}/hook",
        events=("on_turn_end",),
        secret=SecretText("env:S"),
        allow_private=True,
    )
    return make_target(settings, ProfileSecrets({"S": "a secret of some length"}))


def make_worker(port: int, post: Post) -> Worker:
    backlog = MemoryBacklog(target(port), lambda _: None)
    return Worker(
        target(port),
        backlog,
        profile="default",
        post=post,
        mask=lambda text: text,
        wall=time.time,
    )


def delivery() -> Delivery:
    return Delivery("on_turn_end", "on_turn_end", time.time(), {"turn": TURN})


async def by_plugin(port: int) -> float:
    """Deliveries a second, from the event to the answer."""
    client = Client(target(port))
    worker = make_worker(port, client.post)
    began = time.perf_counter()
    for _ in range(POSTS):
        outcome = await worker.attempt(delivery())
        assert outcome.state == "delivered"
    taken = time.perf_counter() - began
    await client.close()
    return POSTS / taken


async def by_client(port: int) -> float:
    """The same POSTs a second, body and headers, with aiohttp alone."""
    import aiohttp

    client = Client(target(port))
    made = delivery()
    sent: dict[str, str] = {}

    async def keep(body: bytes, headers: Mapping[str, str]) -> Outcome:
        sent.update(headers)
        return await client.post(body, headers)

    await make_worker(port, keep).attempt(made)
    await client.close()
    url, headers = f"http://127.0.0.1:{port}/hook", {**sent, "Content-Type": "application/json"}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
        began = time.perf_counter()
        for _ in range(POSTS):
            async with session.post(url, data=made.body, headers=headers) as response:
                await response.read()
        return POSTS / (time.perf_counter() - began)


async def cost_of_the_hook(port: int, path: Path) -> float:
    """Microseconds that `on_turn_end` takes: what the observer does before it returns."""
    async with hosted(path, port) as running:
        scope = running.profiles["default"].scope
        hook: Callable[..., None] = hermes_outbound_webhooks.on_turn_end  # type: ignore[attr-defined]
        took = []
        for _ in range(200):
            began = time.perf_counter()
            hook(scope=scope, turn=TURN)
            took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


async def turn_times(path: Path, port: int | None) -> list[float]:
    """Seconds from what a person says to the answer."""
    platform = ScriptedPlatform()
    took = []
    async with hosted(path, port, platform):
        for number in range(TURNS):
            began = time.perf_counter()
            await platform.say(str(number))
            await platform.next_text()
            took.append(time.perf_counter() - began)
    return took


def hosted(
    path: Path, port: int | None, platform: ScriptedPlatform | None = None
) -> AbstractAsyncContextManager[Any]:
    """A gateway, with a target at `port` unless it is None."""
    config = ""
    if port is not None:
        config = (
            f'[[hooks.outbound]]\nname = "bench"\nurl = "http://127.0.0.1:{port}/"\n'
            'events = ["on_turn_end"]\nsecret = "a plain one"\nallow_private = true\n'
        )
    plugins = (platform or ScriptedPlatform(), ScriptedAgent(), hermes_outbound_webhooks)
    return gateway(path, *plugins, config=config)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def main() -> None:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=_server, args=(theirs,), daemon=True)
    server.start()
    port = ours.recv()
    plugin, bare = [], []
    for _ in range(ROUNDS):  # they take turns: a slow moment is slow for both
        plugin.append(run(by_plugin(port)))
        bare.append(run(by_client(port)))
    with tempfile.TemporaryDirectory() as directory:
        hook = run(cost_of_the_hook(port, Path(directory) / "hook"))
        differences = []
        for number in range(ROUNDS):
            none = run(turn_times(Path(directory) / f"none{number}", None))
            dead = run(turn_times(Path(directory) / f"dead{number}", 1))
            differences.append(statistics.median(dead) - statistics.median(none))
    report = {
        "deliveries_per_second": round(statistics.median(plugin)),
        "bare_posts_per_second": round(statistics.median(bare)),
        "ratio": round(statistics.median(plugin) / statistics.median(bare), 2),
        "hook_microseconds": round(hook, 1),
        "dead_target_costs_a_turn_ms": round(statistics.median(differences) * 1000, 3),
    }
    print(json.dumps(report, indent=2))
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
