"""Telegram calls us: over a real socket, with a client that does not behave."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hermes_core import NotReady
from hermes_core.testing import ScriptedAgent
from hermes_telegram.settings import Timing
from hermes_telegram.testing import FAST, BotApi, telegram_gateway
from hermes_telegram.webhook import MAX_BODY, WebhookServer
from hermes_telegram.wire import Update

SECRET = "the-secret"


async def accept(update: Update) -> None:
    pass


async def exchange(port: int, *requests: bytes) -> list[int]:
    """Send raw requests on one connection; the statuses of the answers until it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    statuses = []
    for request in requests:
        writer.write(request)
        line = await reader.readline()
        if not line:
            break
        statuses.append(int(line.split()[1]))
        while (await reader.readline()).strip():
            pass
    writer.close()
    await writer.wait_closed()
    return statuses


def post(
    body: bytes, *, path: str = "/hook", secret: str = SECRET, method: str = "POST", more: str = ""
) -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        f"X-Telegram-Bot-Api-Secret-Token: {secret}\r\n{more}\r\n"
    )
    return head.encode() + body


def update(number: int = 1) -> bytes:
    return json.dumps({"update_id": number}).encode()


def serve(
    work: Callable[[int], Awaitable[None]],
    take: Callable[[Update], Awaitable[None]] = accept,
    timing: Timing = FAST,
) -> None:
    async def main() -> None:
        server = WebhookServer(take, path="/hook", secret=SECRET, timing=timing)
        port = await server.start("127.0.0.1", 0)
        try:
            await work(port)
        finally:
            await server.stop()

    asyncio.run(main())


def test_updates_are_taken_one_after_the_other_on_one_connection() -> None:
    taken: list[int] = []

    async def take(update: Update) -> None:
        taken.append(update.update_id)

    async def work(port: int) -> None:
        assert await exchange(port, post(update(1)), post(update(2))) == [200, 200]
        assert taken == [1, 2]

    serve(work, take)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (post(update(), secret="wrong"), 401),
        (post(update(), secret=""), 401),
        (post(update(), more=f"X-Telegram-Bot-Api-Secret-Token: {SECRET}\r\n"), 401),
        (post(update(), path="/other"), 404),
        (post(update(), method="GET"), 405),
        (post(b"{"), 400),
        (post(b'{"message":{}}'), 400),
        (post(b"x" * (MAX_BODY + 1)), 413),
    ],
)
def test_everything_else_is_refused(request_: bytes, status: int) -> None:
    taken: list[Update] = []

    async def take(update: Update) -> None:
        taken.append(update)

    async def work(port: int) -> None:
        assert await exchange(port, request_) == [status]
        assert taken == []

    serve(work, take)


@pytest.mark.parametrize(
    "odd",
    [
        b'{"update_id":1,"message":{"message_id":1,"chat":{"id":1},"text":"a\\ud83d"}}',
        b'{"update_id":1,"later":%b1%b}' % (b"[" * 50_000, b"]" * 50_000),
        b'{"update_id":1,"message":{"message_id":1e999}}',
    ],
)
def test_an_odd_update_is_not_sent_again_and_again(odd: bytes) -> None:
    async def work(port: int) -> None:
        assert await exchange(port, post(odd), post(update())) == [200, 200]

    serve(work)


@pytest.mark.parametrize(
    "garbage", [b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"A" * 20_000 + b"\r\n\r\n"]
)
def test_garbage_is_hung_up_on(garbage: bytes) -> None:
    async def work(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(garbage)
        if garbage.startswith(b"\x16"):
            writer.write_eof()
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        assert await exchange(port, post(update())) == [200]

    serve(work)


def test_what_is_not_taken_in_is_to_be_sent_again() -> None:
    async def closed(update: Update) -> None:
        raise NotReady("stopping")

    async def work(port: int) -> None:
        assert await exchange(port, post(update())) == [503]

    serve(work, closed)


def test_an_answer_does_not_wait_for_ever() -> None:
    async def never(update: Update) -> None:
        await asyncio.get_running_loop().create_future()

    async def work(port: int) -> None:
        assert await exchange(port, post(update())) == [503]

    serve(work, never, Timing(answer=0.01))


def test_a_gateway_is_told_by_webhook(tmp_path: Path) -> None:
    async def main() -> None:
        async with BotApi() as api:
            port = api.port + 1 if api.port < 65_000 else api.port - 1
            url = f"http://127.0.0.1:{port}/hook"
            settings = f'webhook_url = "{url}"\nwebhook_listen = "127.0.0.1:{port}"'
            async with telegram_gateway(tmp_path, api.url, ScriptedAgent(), settings=settings):
                call = await api.called("setWebhook")
                assert call.fields["url"] == url
                assert "message_reaction" in call.fields["allowed_updates"]
                body = json.dumps({"update_id": 1, "message": api.message("hi")}).encode()
                request = post(body, secret=call.fields["secret_token"])
                assert await exchange(port, request, request) == [200, 200]
                assert (await api.called("sendMessage")).fields["text"] == "hi"
                assert api.of("getUpdates") == []
        assert len(api.of("sendMessage")) == 1

    asyncio.run(main())


def test_a_webhook_that_others_took_away_is_noticed_and_set_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), BotApi() as api:
            port = api.port + 1 if api.port < 65_000 else api.port - 1
            settings = (
                f'webhook_url = "http://127.0.0.1:{port}/"\nwebhook_listen = "127.0.0.1:{port}"'
            )
            look = asyncio.Event()

            async def sleep(seconds: float) -> None:
                await look.wait()

            timing = dataclasses.replace(FAST, sleep=sleep)
            async with telegram_gateway(
                tmp_path, api.url, ScriptedAgent(), settings=settings, timing=timing
            ):
                await api.called("setWebhook")
                api.webhook["url"] = ""
                look.set()
                await api.called("setWebhook")
                assert api.webhook["url"] == f"http://127.0.0.1:{port}/"

    asyncio.run(main())


@pytest.mark.case("TG-13")
def test_disorder_and_delay_lose_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with BotApi() as api:
            port = api.port + 1 if api.port < 65_000 else api.port - 1
            settings = (
                f'webhook_url = "http://127.0.0.1:{port}/"\nwebhook_listen = "127.0.0.1:{port}"'
            )
            agent = ScriptedAgent()
            async with telegram_gateway(tmp_path, api.url, agent, settings=settings):
                secret = (await api.called("setWebhook")).fields["secret_token"]
                # 104 never comes, 102 comes late.
                for number in (103, 101, 105, 102):
                    said = api.message(str(number), message_id=number)
                    body = json.dumps({"update_id": number, "message": said}).encode()
                    assert await exchange(port, post(body, path="/", secret=secret)) == [200]
                answers = [(await api.called("sendMessage")).fields["text"] for _ in range(4)]
                assert answers == ["103", "101", "105", "102"]

    asyncio.run(main())
