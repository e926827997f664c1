"""Buzz's own event builders, by way of the package `buzzkit`: run by a Python that has it.

``vectors`` prints, as JSON, what they make of what the tests ask for: that is ``buzzkit.json``.
``talk URL SECRET CHANNEL BOT`` is a person with Buzz's own client: says something to the bot,
reacts to the answer, and prints what came of it.
"""

from __future__ import annotations

import asyncio
import base64
import importlib
import json
import sys
from typing import Any

kit: Any = importlib.import_module("buzzkit")

SECRET, OWNER = "5".zfill(64), "7".zfill(64)
CHANNEL = "0b8f6e8a-6c3a-4f0e-9d53-3d1f3f0d2f11"
A, B, C = "a" * 64, "b" * 64, "c" * 64
RELAY = "wss://r.example"


def vectors() -> dict[str, Any]:
    agent = kit.pubkey_from_secret(SECRET)[1]
    tag = kit.compute_auth_tag(OWNER, agent)
    made = {
        "message": kit.build_message_event(SECRET, CHANNEL, "hello"),
        "mention": kit.build_message_event(SECRET, CHANNEL, "hello", [B, C]),
        "reply": kit.build_message_event(SECRET, CHANNEL, "hello", [C], A, None),
        "nested": kit.build_message_event(SECRET, CHANNEL, "hello", [C], B, A),
        "edit": kit.build_edit_event(SECRET, CHANNEL, A, "hello"),
        "reaction": kit.build_reaction_event(SECRET, A, "👍"),
        "reaction removed": kit.build_remove_reaction_event(SECRET, A),
        "presence": kit.build_presence_event(SECRET, "online"),
        "auth": kit.build_auth_event(SECRET, C, RELAY),
        "auth of an agent": kit.build_auth_event(SECRET, C, RELAY, tag),
        "http auth": _decoded(kit.sign_nip98(SECRET, "POST", f"{RELAY}/query", b"[]")),
    }
    shapes: dict[str, Any] = {name: _shape(json.loads(event)) for name, event in made.items()}
    return shapes | {"keys": [agent, json.loads(tag)[1]], "refused": _refused(agent)}


def _decoded(header: str) -> str:
    return base64.b64decode(header.removeprefix("Nostr ")).decode()


def _shape(event: dict[str, Any]) -> dict[str, Any]:
    """What does not change from run to run. Of a nonce only that it is there."""
    tags = [[*tag[:1], "…"] if tag[0] == "nonce" else tag for tag in event["tags"]]
    tags = [[*tag[:3], "…"] if tag[0] == "auth" else tag for tag in tags]
    return {"kind": event["kind"], "tags": tags, "content": event["content"]}


def _refused(agent: str) -> list[str]:
    """Conditions of an owner's tag that nobody may set."""
    conditions = [
        "",
        "kind=9",
        "kind=09",
        "kind=65536",
        "created_at<4294967296",
        "kind=9&",
        "pubkey=1",
    ]
    return [text for text in conditions if not _is_made(agent, text)]


def _is_made(agent: str, conditions: str) -> bool:
    try:
        kit.compute_auth_tag(OWNER, agent, conditions)
    except ValueError:
        return False
    return True


async def talk(url: str, secret: str, channel: str, bot: str) -> None:
    async with kit.BuzzClient(url, secret) as client:
        heard = client.subscribe_channel(channel, kinds=[9, 40003])
        text = kit.build_message_event(secret, channel, "hello", [bot])
        said = await client.publish(text)
        async for event in heard:
            if event["pubkey"] == bot:
                await client.publish(kit.build_reaction_event(secret, event["id"], "👍"))
                channels = [found["channel_id"] for found in await client.list_channels()]
                answer = {"said": said, "answer": event, "channels": channels}
                answer["authentic"] = kit.verify_event(json.dumps(event))
                sys.stdout.write(json.dumps(answer))
                return


if __name__ == "__main__":
    if sys.argv[1] == "talk":
        asyncio.run(talk(*sys.argv[2:]))
    else:
        lines = [f"{json.dumps(name)}: {json.dumps(made)}" for name, made in vectors().items()]
        sys.stdout.write("{" + ",\n".join(lines) + "}\n")
