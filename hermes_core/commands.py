"""Commands spoken in a chat. Stored first, then run, at most once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_core.delivery import Delivery, Reply
from hermes_core.messages import Inbound, Message

if TYPE_CHECKING:
    from hermes_core.authorization import Admitted

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Command:
    """What a person can type. `run` gets the call and the session's key and returns the answer."""

    name: str
    help: str
    run: Callable[[Call, str], Awaitable[str]]


@dataclass(frozen=True)
class Call:
    """One use of a command by an admitted sender."""

    command: Command
    arguments: str
    admitted: Admitted[Message]


class Commands:
    """The commands of one profile. An unknown word after a slash is ordinary text."""

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._commands: dict[str, Command] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, command: Command) -> None:
        self._commands[command.name] = command

    @property
    def all(self) -> list[Command]:
        return sorted(self._commands.values(), key=lambda command: command.name)

    def parse(self, admitted: Admitted[Inbound]) -> Call | None:
        """The call that a message makes, or None when it is text."""
        event = admitted.event
        if not isinstance(event, Message) or not event.text.startswith("/"):
            return None
        word, _, rest = event.text[1:].partition(" ")
        command = self._commands.get(word.strip().lower())
        if command is None:
            return None
        return Call(command, rest.strip(), admitted)  # type: ignore[arg-type]

    def run(self, call: Call, session_key: str) -> None:
        """Run a stored command in a task of its own and send its answer."""
        task = asyncio.get_running_loop().create_task(
            self._answer(call, session_key), name=f"command {call.command.name}"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def tell(self, admitted: Admitted[Inbound], session_key: str, text: str) -> None:
        """Send a text of the core about an event to where the event came from."""
        self._delivery.tell(_reply(admitted.event, session_key), text)

    async def stop(self) -> None:
        """Wait for the commands that run."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _answer(self, call: Call, session_key: str) -> None:
        reply = _reply(call.admitted.event, session_key)
        try:
            text = await call.command.run(call, session_key)
        except Exception:
            log.exception("a command failed", extra={"session": session_key})
            text = f"/{call.command.name} failed; the log says why."
            self._delivery.tell(reply, text, "error")
            return
        self._delivery.tell(reply, text)


def _reply(event: Inbound, session_key: str) -> Reply:
    message_id = event.message_id or event.event_id
    return Reply(event.address, session_key, reply_to=message_id, answers=(event.event_id,))
