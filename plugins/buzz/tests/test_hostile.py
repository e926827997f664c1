"""What somebody in a channel may write to hurt the account. None of it may stop a channel."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from hermes_buzz.testing import BuzzRelay, Person, Witness, talking

A = "a" * 64
DEEP = "[" * 100_000 + "]" * 100_000
HOSTILE: dict[str, dict[str, Any]] = {
    "a size that is no number of this world": {
        "tags": [["imeta", f"url ORIGIN/media/{A}.png", f"size {'9' * 5000}"]]
    },
    "a file name of a megabyte": {
        "tags": [["imeta", f"url ORIGIN/media/{A}.png", f"filename {'x' * (1 << 20)}"]]
    },
    "a type that is none": {"tags": [["imeta", f"url ORIGIN/media/{A}.png", "m \r\n\0"]]},
    "empty tags": {"tags": [["e"], ["p", ""], ["imeta"], ["", ""]]},
    "a thread that is none": {"tags": [["e", "x" * 64, "", "reply"]]},
    "a thread that nobody has": {"tags": [["e", "f" * 64, "", "reply"]]},
    "ten thousand tags": {"tags": [["p", f"{number:064x}"] for number in range(10_000)]},
    "control characters": {"text": "\x00\x1b[2J\u202e"},
    "a date far in the future": {"at": 2**40},
    "a date of 1970": {"at": 0},
    "a deletion of everything": {
        "kind": 5,
        "tags": [["e", f"{number:064x}"] for number in range(5_000)],
    },
    "a deletion of nothing": {"kind": 5, "tags": [["e", "*"], ["e", ""]]},
    "an edit of nothing": {"kind": 40003},
    "a reaction of a megabyte": {"kind": 7, "text": "x" * (1 << 20), "tags": [["e", A]]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_it_costs_next_to_nothing(tmp_path: Path, name: str) -> None:
    async def test() -> None:
        mallory, alice, bot = Person("mallory"), Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", mallory, alice, bot, kind="dm")
            witness = Witness()
            async with talking(
                tmp_path / "home", relay, bot, witness, allowed=(mallory, alice)
            ) as running:
                values = {"text": "x", "kind": 9, "tags": [], "at": relay.now(), **HOSTILE[name]}
                text = json.dumps(values["tags"]).replace("ORIGIN", relay.http_url)
                tags = [["h", direct], *json.loads(text)]
                event = mallory.event(values["kind"], values["text"], tags, at=values["at"])
                requests = len(relay.requests)
                for client in relay.clients:
                    await client.place(direct, event)
                await relay.say(alice, direct, "still there?")
                while (await relay.next_event(bot))["content"] != "still there?":
                    pass
                assert len(relay.requests) - requests <= 3
                assert all(len(query.get("ids", ())) <= 16 for query in relay.requests)
                assert relay.connections == 1
                account = running.profiles["default"].accounts.get("buzz")
                assert account is not None
                assert account.connected

    async def limited() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(limited())


@pytest.mark.parametrize(
    "frame", [DEEP, f'["NOTICE",{DEEP}]', f'["EVENT","SUB",{{"id":"{A}","x":{DEEP}}}]']
)
def test_a_frame_that_is_nested_too_deeply_is_passed_over(tmp_path: Path, frame: str) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                (client,) = relay.clients
                (subscription,) = client.subscriptions(direct)
                await relay.inject(frame.replace("SUB", subscription))
                await relay.say(alice, direct, "hello")
                assert (await relay.next_event(bot))["content"] == "hello"
                assert relay.connections == 1

    async def limited() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(limited())
