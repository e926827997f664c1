"""One message to a gateway in another process, and what became of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hermes_core.supervision.control import open_channel


def say(home: Path, text: str, chat: str = "c0") -> object:
    """Let somebody say something, and wait for its outcome."""

    async def once() -> object:
        async with await open_channel(home, "attach", {"platform": "scripted"}) as channel:
            await channel.send({"chat": chat, "event_id": text, "text": text})
            answer = await channel.receive()
            assert answer is not None
            return answer["outcome"]

    return asyncio.run(once())
