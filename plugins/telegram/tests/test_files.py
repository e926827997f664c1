"""Files that people send: what is fetched, from where, and how much of it."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hermes_core import RateLimited, Secret, SendFailed, SendRejected
from hermes_telegram.client import Client
from hermes_telegram.files import Files
from hermes_telegram.settings import TelegramSettings
from hermes_telegram.testing import TOKEN, Answer, BotApi, flood

LIMIT = 1000
Fetch = Callable[[str], Awaitable[bytes]]


def run(work: Callable[[Fetch, BotApi], Awaitable[None]], directory: str = "") -> None:
    async def main() -> None:
        async with asyncio.timeout(20), BotApi() as api:
            client = Client(TelegramSettings(token=Secret(TOKEN), base_url=api.url))
            files = Files(client.bot, client.files, directory)

            async def fetch(file_id: str) -> bytes:
                target = io.BytesIO()
                await files.fetch(file_id, target, LIMIT)
                return target.getvalue()

            try:
                await work(fetch, api)
            finally:
                await client.close()

    asyncio.run(main())


def test_a_file_is_fetched() -> None:
    async def work(fetch: Fetch, api: BotApi) -> None:
        api.files |= {"f1": b"x" * LIMIT, "a b#c?d": b"odd"}
        assert await fetch("f1") == b"x" * LIMIT
        assert await fetch("a b#c?d") == b"odd"

    run(work)


@pytest.mark.parametrize("claims", [{}, {"file_size": 1}, {"file_size": None}])
def test_no_more_is_taken_than_may_be_whatever_is_said_of_it(claims: dict[str, object]) -> None:
    async def work(fetch: Fetch, api: BotApi) -> None:
        api.files["f1"] = b"x" * (LIMIT + 1)
        api.claims = claims
        with pytest.raises(SendRejected, match="1001 bytes"):
            await fetch("f1")

    run(work)


def test_what_cannot_be_had_is_said_so() -> None:
    async def work(fetch: Fetch, api: BotApi) -> None:
        with pytest.raises(SendRejected) as caught:
            await fetch("expired")
        assert caught.value.kind == "not_found"
        api.faults["getFile"] += [Answer(400, "Bad Request: file is too big"), flood(7)]
        with pytest.raises(SendRejected, match="too big"):
            await fetch("f1")
        with pytest.raises(RateLimited):
            await fetch("f1")

        api.files["f1"] = b"x"
        api.cut_files = True
        with pytest.raises(SendFailed):
            await fetch("f1")

    run(work)


def test_a_path_of_our_own_disk_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is no local one has no business there."""
    monkeypatch.chdir(tmp_path)
    private = tmp_path / "secrets.env"
    private.write_bytes(b"private")

    async def work(fetch: Fetch, api: BotApi) -> None:
        for path in (str(private), "secrets.env", "./secrets.env"):
            api.paths["f1"] = path
            with pytest.raises(SendRejected):
                await fetch("f1")

    run(work)


def test_a_local_server_shares_one_directory_and_nothing_outside_of_it(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "file").write_bytes(b"content")
    (shared / "large").write_bytes(b"x" * (LIMIT + 1))
    private = tmp_path / "private"
    private.write_bytes(b"private")
    (tmp_path / "shared-not").write_bytes(b"private")
    (shared / "link").symlink_to(private)
    (shared / "circle").symlink_to(shared / "circle")
    (shared / "up").symlink_to(tmp_path)
    os.mkfifo(shared / "pipe")
    refused = [
        *(str(private), f"{shared}/../private", f"{shared}/link", f"{shared}/up/private"),
        *(f"{shared}/circle", f"{shared}/large", f"{shared}/pipe", f"{shared}/none", str(shared)),
        *(f"{shared}-not", "/dev/zero", f"{shared}/a\0b"),
    ]

    async def work(fetch: Fetch, api: BotApi) -> None:
        api.claims = {"file_size": 1}
        api.paths["f1"] = f"{shared}/file"
        assert await fetch("f1") == b"content"
        for path in refused:
            api.paths["f1"] = path
            with pytest.raises(SendRejected):
                await fetch("f1")
        api.paths["f1"] = "documents/f2"
        api.files["f2"] = b"by HTTP"
        assert await fetch("f1") == b"by HTTP"

    run(work, str(shared))
