"""A message of ours, and what has come back for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Literal, TypeAlias

from hermes_console.protocol import Taken, Write

End: TypeAlias = Literal["answered", "failed", "denied", "refused", "cancelled", "silent", "unsent"]


@dataclass(frozen=True)
class Reply:
    """How a message of ours ended. `text` is the whole answer, or the reason where there is
    none."""

    end: End
    text: str


class Question:
    """A message that has no whole reply yet. Made on the event loop on which it is awaited."""

    def __init__(self, id_: str, text: str) -> None:
        self.id = id_
        self.text = text
        self.offered = False
        self._command = False
        self._later = False
        self.delays: list[str] = []
        """Why it was not taken in, each time that it was offered in vain."""
        self._parts: dict[tuple[str, int], str] = {}
        self._reply: Reply | None = None
        self._changed = asyncio.Event()

    async def settled(self) -> Reply | None:
        """Wait for the reply, or for being told to offer the message again (None)."""
        while self._reply is None and not self._later:
            self._changed.clear()
            await self._changed.wait()
        self._later = False
        return self._reply

    def taken(self, taken: Taken) -> None:
        """The gateway says what became of the message."""
        match taken.outcome:
            case "denied":
                self._end("denied", f"denied: {taken.reason}")
            case "refused":
                self._end("refused", f"not taken: {taken.reason}")
            case "later":
                self._later = True
                self.delays.append(taken.reason)
                self._changed.set()
            case outcome:
                self._command = self._command or outcome == "handled"
                self._end_command()

    def answered(self, text: Write) -> None:
        """A text that answers the message, or a part of one."""
        self._parts[text.kind, text.part] = text.text
        if text.kind == "error":
            self._end("failed", text.text)
        elif text.kind == "final" and self._count("final") == text.parts:
            self._end("answered", self._joined("final"))
        elif text.kind == "notice" and text.part == text.parts:
            self._end_command()

    def cancelled(self) -> None:
        """The turn that was to answer it is no more."""
        self._end("cancelled", "cancelled")

    def met_with_silence(self) -> None:
        """The agent chose to say nothing to it."""
        self._end("silent", "the agent chose to say nothing")

    def withdraw(self) -> None:
        """Do not wait for it any more, if it never left."""
        if not self.offered:
            self._end("unsent", "not sent")

    def give_up(self, seconds: float) -> None:
        """Do not offer it any more: it was not taken in for so long."""
        self._end("unsent", f"not taken in for {seconds:g} seconds: {self.delays[-1]}")

    def unsendable(self, reason: str) -> None:
        """It cannot be put into a frame."""
        self._end("unsent", reason)

    def _end_command(self) -> None:
        """A command is answered by a notice; for a message a notice is news on the way."""
        if self._command and self._count("notice"):
            self._end("answered", self._joined("notice"))

    def _end(self, end: End, text: str) -> None:
        if self._reply is None:
            self._reply = Reply(end, text)
            self._changed.set()

    def _count(self, kind: str) -> int:
        return sum(known == kind for known, _ in self._parts)

    def _joined(self, kind: str) -> str:
        return "".join(self._parts[key] for key in sorted(self._parts) if key[0] == kind)
