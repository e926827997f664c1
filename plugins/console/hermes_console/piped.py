"""The chat without a terminal: one message after the other, replies on the output, the rest beside
it."""

from __future__ import annotations

import concurrent.futures
import sys
from collections.abc import Iterable
from typing import TextIO

from hermes_console.background import Background
from hermes_console.client import Delayed, Happening, Lost
from hermes_console.protocol import Attached, Write
from hermes_console.question import Reply


class Remarks:
    """What a person should know although it is no reply: written to `err`, on the client's
    thread."""

    def __init__(self, err: TextIO = sys.stderr) -> None:
        self._err = err
        self._lost = False

    def tell(self, happening: Happening, own: bool) -> None:
        """An answer that somebody asked for and left is shown rather than lost."""
        match happening:
            case Write(kind="final" | "error", stray=True) if not own:
                self._say(f"an answer that was still to be delivered: {happening.text}")
            case Write(kind="question"):
                self._say(happening.text)
            case Lost():
                self._lost = True
                self._say("the gateway does not answer; waiting for it")
            case Delayed(reason=reason):
                self._say(f"the gateway takes nothing in, waiting for it: {reason}")
            case Attached() if self._lost:
                self._lost = False
                self._say("the gateway is back")

    def _say(self, text: str) -> None:
        self._err.write(f"hermes: {text}\n")
        self._err.flush()


def converse(background: Background, lines: Iterable[str], out: TextIO, err: TextIO) -> int:
    """Say each line when the one before it is answered. 0 when each was, or the agent chose to say
    nothing; else 1.

    Raises HermesError when the gateway refuses or stays away, BrokenPipeError when nobody reads.
    """
    code = 0
    for line in lines:
        text = line.rstrip("\r\n")
        if not text.strip():
            continue
        reply = _answer(background, text)
        if reply.end == "answered":
            out.write(f"{reply.text}\n")
            out.flush()
        elif reply.end != "silent":
            err.write(f"hermes: {reply.text}\n")
            err.flush()
            code = 1
    return code


def _answer(background: Background, text: str) -> Reply:
    asking = background.ask(text)
    try:
        return asking.result()
    except concurrent.futures.CancelledError:
        background.check()  # says why
        raise
    except KeyboardInterrupt:
        background.cancel()
        raise
