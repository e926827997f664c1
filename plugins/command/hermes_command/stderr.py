"""What the program says on its stderr goes to the log, never to the chat."""

from __future__ import annotations

import asyncio
import codecs
import logging
import re
from collections import deque
from collections.abc import Mapping

MAX_LINE = 2_000
"""Characters of one line in the log."""
MAX_LINES = 1_000
"""Lines of one run in the log."""
_LAST = 20
"""Lines that are told again when the run fails."""
_CHUNK = 65_536

_BREAK = re.compile(r"[\r\n]+")
_COLOUR = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")

log = logging.getLogger(__name__)


class ErrorLog:
    """Logs a stderr line by line, within bounds. `place` says which run it is."""

    def __init__(self, program: str, place: Mapping[str, object]) -> None:
        self._program = program
        self._place = place
        self._count = 0
        self._last: deque[str] = deque(maxlen=_LAST)
        self._line = ""

    @property
    def last_words(self) -> str:
        """The last lines, for the log of a failure; empty when there were none."""
        return " | ".join(self._last)

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Read until the end."""
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        while chunk := await stream.read(_CHUNK):
            self._feed(decode(chunk))
        self._say(self._line)

    def _feed(self, text: str) -> None:
        *lines, rest = _BREAK.split(text)
        for line in lines:
            self._say(self._line + line)
            self._line = ""
        # One character more than is shown tells that there was more.
        self._line = (self._line + rest)[: MAX_LINE + 1]

    def _say(self, line: str) -> None:
        line = _COLOUR.sub("", line).strip()
        if not line:
            return
        if len(line) > MAX_LINE:
            line = f"{line[:MAX_LINE]}…"
        self._last.append(line)
        self._count += 1
        if self._count <= MAX_LINES:
            log.info("%s: %s", self._program, line, extra=self._place)
        elif self._count == MAX_LINES + 1:
            log.info("%s: what follows is not logged", self._program, extra=self._place)
