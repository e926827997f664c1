"""The client's side of the console, without a terminal: ask, attach again, know when it is
answered."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from hermes_console.protocol import (
    Attached,
    Cancel,
    Cancelled,
    FromAdapter,
    FromClient,
    Say,
    Silent,
    Taken,
    Write,
    from_adapter,
    pack,
)
from hermes_console.question import Question, Reply
from hermes_core import HermesError

RETRY = 0.5
"""Seconds between two attempts to reach the gateway, and before a message is offered again."""
WORTH_TELLING = 2
"""Offers in vain after which a person wants to know why: the first may be in passing."""


class Connection(Protocol):
    """One attachment to the gateway."""

    async def send(self, frame: Mapping[str, object]) -> None:
        """Raises ConnectionError when the gateway is gone, HermesError for what cannot be sent."""

    async def receive(self) -> Mapping[str, object] | None:
        """The next frame, None when the gateway is gone. Raises HermesError when it refuses."""

    async def close(self) -> None: ...


@dataclass(frozen=True)
class Lost:
    """The gateway cannot be reached. The client keeps trying."""


@dataclass(frozen=True)
class Delayed:
    """The gateway is there and takes in nothing. The client keeps trying."""

    reason: str


Happening = Write | Attached | Lost | Delayed
"""What a person may want to see."""


class Client:
    """Talks in one chat. `run` keeps it attached; `ask` may be called at any time meanwhile."""

    def __init__(
        self,
        attach: Callable[[], Awaitable[Connection]],
        tell: Callable[[Happening, bool], None],
        *,
        patience: float | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`attach` raises HermesError while there is nobody to attach to. After `patience` seconds
        of that, counted in pauses, `run` gives up, and so does `ask` when nothing is taken in for
        so long; None waits for ever. `tell(happening, own)` is
        called on the event loop; `own` says that a text answers a message of this client."""
        self._attach = attach
        self._tell = tell
        self._patience = patience
        self._sleep = sleep
        self._connection: Connection | None = None
        self._lost = False
        self._questions: dict[str, Question] = {}

    async def run(self) -> None:
        """Stay attached, until cancelled. Raises HermesError when the gateway refuses or stays
        away."""
        while True:
            connection = await self._reach()
            try:
                while (frame := await connection.receive()) is not None:
                    await self._hear(connection, from_adapter(frame))
            finally:
                self._connection = None
                await connection.close()
            self._be_lost()

    async def ask(self, text: str) -> Reply:
        """Send a message and wait for the whole reply, through any loss of the gateway."""
        question = Question(uuid.uuid4().hex, text)
        self._questions[question.id] = question
        try:
            await self._offer(question)
            while (reply := await question.settled()) is None:
                if not self._gives_up(question):
                    await self._sleep(RETRY)
                    await self._offer(question)
            return reply
        finally:
            del self._questions[question.id]

    async def cancel(self) -> None:
        """Stop the turn that runs. A message that no gateway was offered yet is withdrawn."""
        for question in self._questions.values():
            question.withdraw()
        await self._send(Cancel(uuid.uuid4().hex))

    async def _reach(self) -> Connection:
        waited = 0.0
        while True:
            try:
                return await self._attach()
            except HermesError as error:
                self._be_lost()
                if self._patience is not None and waited >= self._patience:
                    what = f"the gateway could not be reached for {waited:g} seconds"
                    raise HermesError(what, remedy=str(error)) from error
            await self._sleep(RETRY)
            waited += RETRY

    async def _hear(self, connection: Connection, said: FromAdapter) -> None:
        match said:
            case Attached():
                self._connection = connection
                self._lost = False
                self._tell(said, False)
                for question in list(self._questions.values()):
                    await self._offer(question)
            case Taken():
                for question in self._asked((said.id,)):
                    question.taken(said)
            case Cancelled() | Silent():
                self._end(said)
            case Write():
                self._write(said)

    def _write(self, text: Write) -> None:
        asked = self._asked(text.answers)
        self._tell(text, bool(asked))
        for question in asked:
            question.answered(text)

    def _end(self, said: Cancelled | Silent) -> None:
        for question in self._asked(said.answers):
            if isinstance(said, Silent):
                question.met_with_silence()
            else:
                question.cancelled()

    def _gives_up(self, question: Question) -> bool:
        """A message was not taken in: whether it is time to give up."""
        if self._patience is not None and len(question.delays) * RETRY > self._patience:
            question.give_up(self._patience)
            return True
        if len(question.delays) == WORTH_TELLING:
            self._tell(Delayed(question.delays[-1]), True)
        return False

    def _be_lost(self) -> None:
        if not self._lost:
            self._lost = True
            self._tell(Lost(), False)

    async def _offer(self, question: Question) -> None:
        try:
            if await self._send(Say(question.id, question.text)):
                question.offered = True
        except HermesError as error:
            question.unsendable(str(error))

    async def _send(self, said: FromClient) -> bool:
        if self._connection is None:
            return False
        try:
            await self._connection.send(pack(said))
        except ConnectionError:
            self._connection = None  # what was lost with it is offered again to the next one
            return False
        return True

    def _asked(self, answers: tuple[str, ...]) -> list[Question]:
        return [self._questions[id_] for id_ in answers if id_ in self._questions]
