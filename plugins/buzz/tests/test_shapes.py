"""What the plugin publishes has the form that Buzz's own builders give it.

Theirs is in ``buzzkit.json``, made by ``buzzkit_peer.py`` with buzzkit 0.3.1, which binds the
crates of Buzz. Where that package is installed (`make test` does it, with Python 3.12 or newer), it
is asked whether that still holds, and takes part in a conversation.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from hermes_buzz import ownership
from hermes_buzz.cursors import FileCursors
from hermes_buzz.events import OUTBOX_TAG, Draft
from hermes_buzz.keys import LocalSigner
from hermes_buzz.outgoing import Composer, anchors
from hermes_buzz.settings import BuzzSettings
from hermes_buzz.testing import BuzzRelay, Person, Witness, talking
from hermes_core import Address, Outbound, Secret

HERE = Path(__file__).parent
RECORDED: dict[str, Any] = json.loads((HERE / "buzzkit.json").read_text())
PEER = Path(sys.prefix) / "peers"
needs_buzzkit = pytest.mark.skipif(
    not list(PEER.glob("lib/python*/site-packages/buzzkit")),
    reason="buzzkit is not installed: make test does, with Python 3.12 or newer",
)
COMMAND = (str(PEER / "bin" / "python"), str(HERE / "buzzkit_peer.py"))
SECRET, OWNER = "5".zfill(64), LocalSigner("7".zfill(64))
SIGNER = LocalSigner(SECRET)
CHANNEL = "0b8f6e8a-6c3a-4f0e-9d53-3d1f3f0d2f11"
ADDRESS = Address(platform="buzz", chat_id=CHANNEL)
A, B, C = "a" * 64, "b" * 64, "c" * 64
SETTINGS = BuzzSettings(relay_url="wss://r.example", private_key=Secret(SECRET))


def row(**more: Any) -> Outbound:
    return Outbound(id="o", created_at=1, address=ADDRESS, text="hello", **more)


def chat(composer: Composer, root: str, parent: str | None, *mentions: str) -> Draft:
    message = row(reply_to=parent)
    return composer.chat(message, 1, anchors(message, root, SETTINGS)[0], mentions, ())


MADE: dict[str, Callable[[Composer], Draft]] = {
    "message": lambda composer: chat(composer, "", None),
    "mention": lambda composer: chat(composer, "", None, B, C),
    "reply": lambda composer: chat(composer, A, A, C),
    "nested": lambda composer: chat(composer, A, B, C),
    "edit": lambda composer: composer.edit(row(), 1, A, ()),
    "reaction": lambda composer: composer.reaction(ADDRESS, 1, A, "👍"),
}


@pytest.mark.parametrize("name", MADE)
def test_our_events_are_theirs(tmp_path: Path, name: str) -> None:
    """But for the tag that names the row, and the channel of a reaction, which only Buzz knows."""
    composer = Composer(SETTINGS, None, FileCursors(tmp_path / "c.json"), SIGNER.public_key)
    draft, theirs = MADE[name](composer), RECORDED[name]
    tags = [list(tag) for tag in draft.tags if tag[0] != OUTBOX_TAG]
    if name == "reaction":
        tags.remove(["h", CHANNEL])
    assert {"kind": draft.kind, "tags": tags, "content": draft.content} == theirs


def test_keys_and_owners_are_the_same() -> None:
    assert RECORDED["keys"] == [SIGNER.public_key, OWNER.public_key]


@pytest.mark.parametrize(
    "conditions",
    ["", "kind=9", "kind=09", "kind=65536", "created_at<4294967296", "kind=9&", "pubkey=1"],
)
def test_what_they_do_not_sign_is_no_owner_tag(conditions: str) -> None:
    text = json.dumps(["auth", OWNER.public_key, conditions, "0" * 128])
    if conditions in RECORDED["refused"]:
        with pytest.raises(ValueError, match="condition"):
            ownership.parse(text)
    else:
        assert ownership.parse(text).conditions == conditions


def names(event: dict[str, Any]) -> tuple[int, list[str], str]:
    return event["kind"], [tag[0] for tag in event["tags"]], event["content"]


def test_what_is_said_to_the_relay_itself_is_what_they_say(tmp_path: Path) -> None:
    bot = Person("bot", SECRET)
    digest = sha256(f"nostr:agent-auth:{bot.key}:".encode()).digest()
    tag = json.dumps(["auth", OWNER.public_key, "", OWNER.sign(digest)])

    async def test() -> None:
        async with BuzzRelay() as relay:
            relay.channel("", bot)
            async with talking(tmp_path / "home", relay, bot, more=f"auth_tag = '{tag}'"):
                presence = await relay.next_event(bot, 20001)
            ((_, auth),) = [frame for frame in relay.frames if frame[0] == "AUTH"]
            assert names(auth) == names(RECORDED["auth of an agent"])
            assert names(relay.bridge.authorizations[0]) == names(RECORDED["http auth"])
            assert names(presence) == names(RECORDED["presence"])

    async def limited() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(limited())


def test_an_owner_tag_is_only_on_events_that_its_conditions_allow(tmp_path: Path) -> None:
    """A relay takes one that does not fit for none, and here it would be a lie besides."""
    alice, bot = Person("alice"), Person("bot", SECRET)
    digest = sha256(f"nostr:agent-auth:{bot.key}:kind=9".encode()).digest()
    tag = ["auth", OWNER.public_key, "kind=9", OWNER.sign(digest)]

    async def test() -> None:
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            more = f"streaming = false\nauth_tag = '{json.dumps(tag)}'"
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), more=more):
                await relay.say(alice, direct, "hello")
                assert tag in (await relay.next_event(bot))["tags"]
            ((_, auth),) = [frame for frame in relay.frames if frame[0] == "AUTH"]
            assert names(auth) == names(RECORDED["auth"])

    async def limited() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(limited())


@needs_buzzkit
def test_the_recorded_events_are_those_of_the_package() -> None:
    made = subprocess.run([*COMMAND, "vectors"], check=True, capture_output=True).stdout
    assert json.loads(made) == RECORDED


@needs_buzzkit
def test_a_conversation_with_their_client(tmp_path: Path) -> None:
    alice, bot = Person("alice"), Person("bot")

    async def test() -> None:
        async with BuzzRelay() as relay:
            channel = relay.channel("general", alice, bot)
            witness = Witness()
            async with talking(tmp_path / "home", relay, bot, witness, allowed=(alice,)):
                words = ("talk", relay.url, alice.nsec, channel, bot.key)
                process = await asyncio.create_subprocess_exec(
                    *COMMAND, *words, stdout=asyncio.subprocess.PIPE
                )
                output, _ = await process.communicate()
                assert process.returncode == 0
                found = json.loads(output)
                await witness.until(lambda: len(witness.received) == 2)
            assert found["said"]["accepted"]
            assert found["authentic"]
            assert found["channels"] == [channel]
            assert found["answer"]["content"] == "hello"
            reply = ["e", found["said"]["event_id"], "", "reply"]
            assert reply in found["answer"]["tags"]
            assert [info.type for info in witness.received] == ["message", "reaction"]

    async def limited() -> None:
        async with asyncio.timeout(30):
            await test()

    asyncio.run(limited())
