"""The echo agent: which text gets which answer, and how it is streamed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from hermes_core import Agent, AgentError, AgentEvent, Settings, Text, Turn

MAX_LENGTH = 10_000_000
"""Characters of a `long` answer: what a person can ask for without filling the memory."""

_WORD = re.compile(r"\s*\S+\s*|\s+")
_SLOW = re.compile(r"slow\s+(?P<seconds>[0-9]{1,5}(?:\.[0-9]{1,3})?)\s+(?P<text>.+)", re.DOTALL)
_ASK = re.compile(r"ask\s+(?P<question>\S.*)", re.DOTALL)
_LONG = re.compile(r"long\s+(?P<length>[0-9]{1,8})\s*")


class EchoSettings(Settings):
    """Nothing to set."""


@dataclass(frozen=True)
class Answer:
    """Pieces of text, each after a pause of `pause` seconds."""

    pieces: Sequence[str]
    pause: float = 0.0


def answer(text: str) -> Answer:
    """What the echo agent says to `text`. `fail` raises AgentError, `crash` a RuntimeError."""
    word = text.strip()
    if word == "silent":
        return Answer([])
    if word == "fail":
        raise AgentError("The echo agent failed, as you asked.")
    if word == "crash":
        raise RuntimeError("the echo agent was asked to crash")
    if slow := _SLOW.fullmatch(text):
        pieces = words(slow["text"])
        return Answer(pieces, pause=float(slow["seconds"]) / len(pieces))
    if long := _LONG.fullmatch(text):
        return Answer(words(numbered(min(int(long["length"]), MAX_LENGTH))))
    return Answer(words(text))


def words(text: str) -> list[str]:
    """`text` cut after each word. The pieces add up to it."""
    return _WORD.findall(text)


def numbered(length: int) -> str:
    """`1 2 3 …`, cut to exactly `length` characters: what is missing or repeated can be seen."""
    enough = length // 4 + 100  # 99 numbers take less than four characters each, space included
    text = " ".join(map(str, range(1, enough + 1)))[:length]
    return text.rstrip().ljust(length, ".")


class EchoAgent(Agent[EchoSettings]):
    """Says what it was told."""

    async def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Stream the answer word by word."""
        text = "\n".join(message.text for message in turn.messages)
        if asked := _ASK.fullmatch(text):
            text = await turn.ask(asked["question"], ["Yes", "No"]) or "Nobody answered."
        reply = answer(text)
        for piece in reply.pieces:
            await asyncio.sleep(reply.pause)
            yield Text(piece)
