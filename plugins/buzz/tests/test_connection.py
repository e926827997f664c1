"""Frames of relays with habits of their own, on a socket in memory."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from aiohttp import WSMessage, WSMsgType

from hermes_buzz.connection import Answer, Connection
from hermes_buzz.events import Draft, Kind
from hermes_buzz.keys import LocalSigner
from hermes_buzz.pacing import Pacing

SIGNER = LocalSigner("5".zfill(64))


class Wire:
    """A web socket whose other end is the test."""

    close_code: int | None = None

    def __init__(self) -> None:
        self._to_client: asyncio.Queue[WSMessage] = asyncio.Queue()
        self.sent: asyncio.Queue[list[Any]] = asyncio.Queue()

    def say(self, *frame: object) -> None:
        self._to_client.put_nowait(WSMessage(WSMsgType.TEXT, json.dumps(frame), None))

    async def receive(self) -> WSMessage:
        return await self._to_client.get()

    async def send_str(self, data: str) -> None:
        self.sent.put_nowait(json.loads(data))

    async def ping(self, message: bytes = b"") -> None:
        raise AssertionError

    async def pong(self, message: bytes = b"") -> None:
        raise AssertionError

    async def close(self) -> bool:
        return True


def draft(kind: Kind) -> Draft:
    return Draft(kind=kind, created_at=int(time.time()))


def answer_to(*frames: list[object], sign_taken: bool) -> Answer:
    """What a message is answered with by a relay that says `frames` after a sign of life and the
    message; "ID" stands for the message's. The sign has an answer before, or none yet."""

    async def test() -> Answer:
        wire = Wire()
        connection = Connection(
            wire,
            url="ws://r.example",
            signer=SIGNER,
            owner=None,
            pacing=Pacing(),
            wall=time.time,
            read_idle=90,
        )
        running = asyncio.create_task(connection.run())
        sign, message = draft(Kind.TYPING).signed(SIGNER), draft(Kind.CHAT).signed(SIGNER)
        await connection.whisper(sign)
        if sign_taken:
            wire.say("OK", sign.id, True, "")
        publishing = asyncio.create_task(connection.publish(message, 9))
        while (await wire.sent.get())[1]["id"] != message.id:
            pass
        for frame in frames:
            wire.say(*(message.id if part == "ID" else part for part in frame))
        answer = await publishing
        running.cancel()
        await asyncio.wait({running})
        return answer

    return asyncio.run(test())


def test_a_refusal_without_an_id_is_that_of_the_oldest_event_without_an_answer() -> None:
    refusal: list[object] = ["OK", "", False, "blocked: no"]
    taken: list[object] = ["OK", "ID", True, ""]
    assert answer_to(refusal, taken, sign_taken=False) == Answer(True)
    assert answer_to(refusal, sign_taken=True) == Answer(False, "blocked: no")
