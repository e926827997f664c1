"""Files: described by messages, fetched from the relay alone, stored with authorization."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hermes_buzz.bridge import MAX_FILE, Bridge, media_hash
from hermes_buzz.events import Event
from hermes_buzz.incoming import MAX_ATTACHMENTS, attachments_of
from hermes_buzz.keys import LocalSigner
from hermes_buzz.testing import BuzzRelay, Person, Witness, talking
from hermes_buzz.trouble import RelayError
from hermes_core import AgentEvent, Attach, Text, Turn
from hermes_core.testing import ScriptedAgent

ORIGIN = "https://r.example"
A, B = "a" * 64, "b" * 64


def imeta(*facts: str) -> tuple[str, ...]:
    return ("imeta", *facts)


def event(*tags: tuple[str, ...], text: str = "") -> Event:
    return Event(id=A, pubkey=A, created_at=1, kind=9, tags=tags, content=text, sig="0" * 128)


def test_a_file_of_the_relay_is_an_attachment() -> None:
    tag = imeta(f"url {ORIGIN}/media/{A}.png", "m image/png", f"x {A}", "size 12", "dim 1x1")
    (found,) = attachments_of(event(tag), ORIGIN)
    assert (found.ref, found.name) == (f"{ORIGIN}/media/{A}.png", f"{A}.png")
    assert (found.media_type, found.size) == ("image/png", 12)


@pytest.mark.parametrize(
    "facts",
    [
        [f"url https://evil.example/media/{A}.png"],
        [f"url https://r.example.evil.example/media/{A}.png"],
        [f"url https://r.example@evil.example/media/{A}.png"],
        [f"url http://r.example/media/{A}.png"],
        [f"url {ORIGIN}/media/../api/{A}.png"],
        [f"url {ORIGIN}/media/{A}.png?x=https://evil.example"],
        [f"url {ORIGIN}/media/short.png"],
        [f"url {ORIGIN}/media/{A}.png", f"x {B}"],
        [f"url {ORIGIN}/media/{A}.png", f"size {MAX_FILE + 1}"],
        ["m image/png"],
        [],
    ],
)
def test_anything_else_is_left_to_the_text(facts: list[str]) -> None:
    url = facts[0].removeprefix("url ") if facts else ""
    assert attachments_of(event(imeta(*facts), text=f"see ![]({url})"), ORIGIN) == ()


def test_a_file_that_only_the_text_shows_is_an_attachment() -> None:
    """Some clients describe nothing."""
    text = f"![]({ORIGIN}/media/{A}.png) and {ORIGIN}/media/{B}."
    first, second = attachments_of(event(text=text), ORIGIN)
    assert (first.ref, first.media_type) == (f"{ORIGIN}/media/{A}.png", "image/png")
    assert (second.ref, second.media_type) == (f"{ORIGIN}/media/{B}", "application/octet-stream")


def test_a_file_that_is_described_and_shown_is_one() -> None:
    tag = imeta(f"url {ORIGIN}/media/{A}.png", "m image/webp", "filename cat.webp")
    (found,) = attachments_of(event(tag, text=f"![]({ORIGIN}/media/{A}.png)"), ORIGIN)
    assert (found.name, found.media_type) == ("cat.webp", "image/webp")


@pytest.mark.parametrize("size", ["9" * 5000, "-1", "1e3", "٣", " 3", ""])
def test_a_size_that_is_none_is_not_known(size: str) -> None:
    tag = imeta(f"url {ORIGIN}/media/{A}.png", f"size {size}")
    assert [file.size for file in attachments_of(event(tag), ORIGIN)] == [None]


def test_a_message_has_few_attachments() -> None:
    tags = [imeta(f"url {ORIGIN}/media/{number:064x}.png") for number in range(9)]
    assert len(attachments_of(event(*tags, tags[0]), ORIGIN)) == MAX_ATTACHMENTS


def test_the_hash_is_in_the_address() -> None:
    assert media_hash(f"{ORIGIN}/media/{A}.tar", ORIGIN) == A
    assert media_hash(f"{ORIGIN}/media/{A}", ORIGIN) == A


def bridged(test: Callable[[BuzzRelay, Bridge], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20), BuzzRelay() as relay, aiohttp.ClientSession() as http:
            signer = LocalSigner("5".zfill(64))
            bridge = Bridge(http, url=relay.http_url, signer=signer, owner=None, wall=relay.wall)
            await test(relay, bridge)

    asyncio.run(limited())


@pytest.mark.parametrize("key", ["type", "mime", "nothing"])
def test_a_file_comes_back_as_it_was_stored(key: str) -> None:
    async def test(relay: BuzzRelay, bridge: Bridge) -> None:
        relay.bridge.type_key = key
        blob = await bridge.upload(b"content", "text/plain")
        assert blob.sha256 == sha256(b"content").hexdigest()
        assert (blob.type, blob.size) == ("text/plain", 7)
        target = io.BytesIO()
        await bridge.download(blob.url, target)
        assert target.getvalue() == b"content"

    bridged(test)


def test_a_file_that_is_not_what_was_described_is_refused() -> None:
    async def test(relay: BuzzRelay, bridge: Bridge) -> None:
        relay.bridge.files[A] = (b"something else", "text/plain")
        with pytest.raises(RelayError, match="not the one"):
            await bridge.download(f"{relay.http_url}/media/{A}.bin", io.BytesIO())

    bridged(test)


def test_a_file_that_is_too_large_is_not_read_to_its_end() -> None:
    async def test(relay: BuzzRelay, bridge: Bridge) -> None:
        blob = await bridge.upload(b"x" * 1000, "text/plain")
        with pytest.raises(RelayError, match="more than 999 bytes"):
            await bridge.download(blob.url, io.BytesIO(), limit=999)

    bridged(test)


def test_nothing_is_asked_of_other_hosts() -> None:
    async def test(relay: BuzzRelay, bridge: Bridge) -> None:
        with pytest.raises(RelayError, match="not a file of this relay"):
            await bridge.download(f"http://127.0.0.1:1/media/{A}.bin", io.BytesIO())
        assert relay.bridge.downloads == 0

    bridged(test)


def test_a_wrong_clock_is_named_as_the_reason_of_a_refusal() -> None:
    async def test(relay: BuzzRelay, bridge: Bridge) -> None:
        relay.faults.clock = -200
        with pytest.raises(RelayError, match=r"20[01] s ahead"):
            await bridge.query([{"kinds": [39002]}])

    bridged(test)


def limited(test: Coroutine[Any, Any, None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(20):
            await test

    asyncio.run(run())


def content_of(path: str) -> str:
    return Path(path).read_text()


def describe(relay: BuzzRelay, content: bytes) -> tuple[str, ...]:
    """Store a file at the relay, and the tag that describes it."""
    digest = sha256(content).hexdigest()
    relay.bridge.files[digest] = (content, "text/plain")
    return imeta(f"url {relay.http_url}/media/{digest}.txt", "m text/plain", f"x {digest}")


def test_the_agent_reads_a_file_of_somebody_who_may_speak(tmp_path: Path) -> None:
    async def test() -> None:
        alice, mallory, bot = Person("alice"), Person("mallory"), Person("bot")

        async def answer(turn: Turn) -> AsyncIterator[AgentEvent]:
            (file,) = turn.messages[0].attachments
            yield Text(content_of(file.path) if file.path else f"no file: {file.problem}")

        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, mallory, bot, kind="dm")
            witness = Witness()
            async with talking(
                tmp_path / "home",
                relay,
                bot,
                witness,
                allowed=(alice,),
                agent=ScriptedAgent(answer),
                more="streaming = false",
            ):
                tag = describe(relay, b"what is in it")
                await relay.say(mallory, direct, "read this", tags=[tag])
                await witness.until(lambda: bool(witness.denied))
                assert relay.bridge.downloads == 0
                await relay.say(alice, direct, "read this", tags=[tag])
                assert (await relay.next_event(bot))["content"] == "what is in it"
                wrong = imeta(f"url {relay.http_url}/media/{A}.txt", "m text/plain")
                relay.bridge.files[A] = (b"something else", "text/plain")
                await relay.say(alice, direct, "and this", tags=[wrong])
                assert (await relay.next_event(bot))["content"].startswith("no file")

    limited(test())


def test_an_answer_brings_its_file(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        picture = tmp_path / "files" / "picture.png"
        picture.parent.mkdir()
        picture.write_bytes(b"png")

        async def answer(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text("look")
            yield Attach(path=str(picture), media_type="image/png")

        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            more = (
                f'streaming = false\n[agent]\nuse = "scripted"\n'
                f'send_files_from = ["{picture.parent}"]'
            )
            async with talking(
                tmp_path / "home",
                relay,
                bot,
                allowed=(alice,),
                agent=ScriptedAgent(answer),
                more=more,
            ):
                await relay.say(alice, direct, "show me")
                said = await relay.next_event(bot)
                while not any(tag[0] == "imeta" for tag in said["tags"]):
                    said = await relay.next_event(bot)
            digest = sha256(b"png").hexdigest()
            url = f"{relay.http_url}/media/{digest}.bin"
            assert relay.bridge.files[digest] == (b"png", "image/png")
            assert url in said["content"]
            assert [tag[1] for tag in said["tags"] if tag[0] == "imeta"] == [f"url {url}"]

    limited(test())
