"""From the bytes of the program's stdout to events, as they come."""

from __future__ import annotations

import codecs
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from hermes_command.events import NoEvent, Said, parse
from hermes_command.settings import Output
from hermes_core import AgentError, Text

_MAX_COMPLAINTS = 20
"""Lines of the log at most about lines of one run that say nothing."""

log = logging.getLogger(__name__)


class Reader(Protocol):
    """Takes the characters of an output in, piece by piece."""

    def feed(self, text: str) -> Iterator[Said]: ...

    def end(self) -> Iterator[Said]:
        """Nothing more comes. Raises AgentError when the whole output was of no use."""


class OutputReader:
    """Takes UTF-8 in, with a mark of the byte order or without; what is none becomes U+FFFD.
    `place` says in the log which run it is."""

    def __init__(self, output: Output, cwd: Path, place: Mapping[str, object]) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._reader: Reader = (
            PlainText()
            if output == "text"
            else EventLines(cwd, place)
            if output == "jsonl"
            else Either(cwd, place)
        )

    def feed(self, chunk: bytes) -> Iterator[Said]:
        return self._reader.feed(self._decode(chunk))

    def end(self) -> Iterator[Said]:
        yield from self._reader.feed(self._decode(b"", final=True))
        yield from self._reader.end()


class PlainText:
    """All of it is the answer, but for empty lines before and space after."""

    def __init__(self) -> None:
        self._begun = False
        self._space = ""

    def feed(self, text: str) -> Iterator[Said]:
        text = self._space + text
        if not self._begun:
            text = text.lstrip("\r\n")
        shown = text.rstrip()
        self._space = text[len(shown) :]
        if shown:
            self._begun = True
            yield Text(shown)

    def end(self) -> Iterator[Said]:
        return iter(())


class EventLines:
    """One event a line. A line that is none is skipped, and the log says why."""

    def __init__(self, cwd: Path, place: Mapping[str, object]) -> None:
        self._cwd = cwd
        self._place = place
        self._line = ""
        self._events = 0
        self._skipped = 0

    def feed(self, text: str) -> Iterator[Said]:
        *lines, rest = text.split("\n")
        for line in lines:
            yield from self._parse(self._line + line)
            self._line = ""
        self._line += rest

    def end(self) -> Iterator[Said]:
        yield from self._parse(self._line)
        if self._skipped and not self._events:
            raise AgentError(
                "The agent's program said nothing that could be understood.",
                where="[agent.command] output",
                remedy='its lines are no events: see the README, or set output = "text"',
            )

    def _parse(self, line: str) -> Iterator[Said]:
        if not line.strip():
            return
        try:
            event = parse(line, self._cwd)
        except NoEvent as error:
            self._skipped += 1
            if self._skipped <= _MAX_COMPLAINTS:
                log.warning("skipped a line of output: %s", error, extra=self._place)
            return
        self._events += 1
        yield event


class Either:
    """JSON lines if the first line is an object with a `type`, else plain text."""

    def __init__(self, cwd: Path, place: Mapping[str, object]) -> None:
        self._lines = EventLines(cwd, place)
        self._chosen: Reader | None = None
        self._start = ""

    def feed(self, text: str) -> Iterator[Said]:
        if self._chosen is None:
            self._start += text
            self._chosen = self._choose(whole=False)
            if self._chosen is None:
                return
            text, self._start = self._start, ""
        yield from self._chosen.feed(text)

    def end(self) -> Iterator[Said]:
        reader = self._chosen or self._choose(whole=True) or PlainText()
        yield from reader.feed(self._start)
        yield from reader.end()

    def _choose(self, *, whole: bool) -> Reader | None:
        """None while it cannot be told yet."""
        start = self._start.lstrip()
        if not start:
            return None
        if not start.startswith("{"):
            return PlainText()
        line, newline, _ = start.partition("\n")
        if not newline and not whole:
            return None
        return self._lines if _is_event(line) else PlainText()


def _is_event(line: str) -> bool:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and isinstance(value.get("type"), str)
