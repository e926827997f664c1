"""Logs: the standard library's logging, one event a line, without secrets.

Say where an event belongs through `extra`: ``log.info("sent", extra={"profile": "work"})``.
"""

from __future__ import annotations

import json
import logging
import math
import time
import traceback
from collections import deque
from collections.abc import Mapping
from typing import Literal, TextIO

from hermes_core.redaction import Redactor

LogFormat = Literal["human", "json"]
PLACE = ("profile", "account", "session", "turn")
"""Where an event belongs; shown first, in this order."""

_QUIET = (
    "aiohttp.access",
    "httpcore",
    "httpx",
    "httpx2",
    "requests",
    "urllib3",
    "watchfiles",
    "websockets",
)
"""Libraries that log addresses, which can hold tokens."""
KEPT_ERRORS = 10
"""How many of the last errors `hermes status` can show."""
MAX_ERROR = 1000
"""Characters of each of them."""
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def setup_logging(
    format: LogFormat,  # noqa: A002 - it is what the option is called
    level: int | str,
    stream: TextIO,
    redactor: Redactor | None = None,
) -> Redactor:
    """Send every record of the process, third-party ones included, to `stream`.

    Replaces what was set up before. Returns the redactor in use: teach it the secrets of every
    profile before anything that knows them runs. Raises ValueError for a level that does not exist.
    """
    redactor = redactor or Redactor()
    formatter = JsonFormatter(redactor) if format == "json" else HumanFormatter(redactor)
    handler = LineHandler(stream)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.setLevel(level.upper() if isinstance(level, str) else level)
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    root.addHandler(handler)
    root.addHandler(RecentErrors(formatter))
    logging.captureWarnings(capture=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    return redactor


def recent_errors() -> list[dict[str, object]]:
    """The last errors of this process, oldest first: ``{"time": UNIX seconds, "text": ...}`` each.

    Empty in a process whose logging was not set up by `setup_logging`.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler, RecentErrors):
            return list(handler.errors)
    return []


class LineHandler(logging.StreamHandler[TextIO]):
    """Writes one line a record. A line that cannot be written is counted, and never an error."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self.lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
            encoding = getattr(self.stream, "encoding", None) or "utf-8"
            writable = line.encode(encoding, "backslashreplace").decode(encoding)
            self.stream.write(writable + self.terminator)
            self.flush()
        except (OSError, ValueError):  # a full disk, a closed pipe, a closed file
            self.lost += 1


class _Formatter(logging.Formatter):
    """Takes a record apart. Secrets are replaced before anything is escaped or put together."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self.redact = redactor

    def text(self, record: logging.LogRecord) -> str:
        try:
            message = record.getMessage()
        except Exception as error:  # the caller's arguments do not fit: still an event
            message = f"{record.msg!s} (arguments do not fit: {type(error).__name__})"
        return self.redact(message)

    def fields(self, record: logging.LogRecord) -> dict[str, object]:
        """What `extra` added, the place of the event first."""
        found = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        names = [name for name in PLACE if name in found]
        names += sorted(name for name in found if name not in PLACE)
        return {name: self.plain(found[name]) for name in names if found[name] is not None}

    def plain(self, value: object) -> object:
        """`value` as JSON knows it, without secrets."""
        if value is None or isinstance(value, (bool, int)):
            return value
        if isinstance(value, float) and math.isfinite(value):
            return value
        if isinstance(value, Mapping):
            return {self.redact(str(key)): self.plain(inner) for key, inner in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self.plain(inner) for inner in value]
        try:
            return self.redact(str(value))
        except Exception as error:  # a value that cannot show itself
            return f"<{type(value).__name__}: {type(error).__name__}>"

    def time(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return f"{seconds}.{int(record.created % 1 * 1000):03d}Z"


class RecentErrors(logging.Handler):
    """Keeps the last errors, redacted."""

    def __init__(self, formatter: _Formatter) -> None:
        super().__init__(logging.ERROR)
        self.errors: deque[dict[str, object]] = deque(maxlen=KEPT_ERRORS)
        self._formatter = formatter

    def emit(self, record: logging.LogRecord) -> None:
        place = self._formatter.fields(record)
        names = [f"{name}={place[name]}" for name in PLACE if name in place]
        where = f" ({' '.join(names)})" if names else ""
        text = self._formatter.text(record)[:MAX_ERROR]
        self.errors.append({"time": record.created, "text": f"{text}{where}"})


class HumanFormatter(_Formatter):
    """``2026-05-04T10:11:12.345Z INFO  hermes_core.gateway: ready (profile=work)``."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [f"{self.time(record)} {record.levelname:<7} {record.name}: {self.text(record)}"]
        if fields := self.fields(record):
            parts.append("(" + " ".join(f"{key}={value}" for key, value in fields.items()) + ")")
        if record.exc_info and record.exc_info[1] is not None:
            parts.append(f"| {self.redact(_one_line(record.exc_info[1]))}")
        return _visible(" ".join(parts))


class JsonFormatter(_Formatter):
    """One JSON object a line: time, level, logger, message, the fields of `extra`, exception."""

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": self.time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self.text(record),
        }
        for name, value in self.fields(record).items():
            event[name if name not in event else f"extra_{name}"] = value
        if record.exc_info and record.exc_info[1] is not None:
            event["exception"] = self.redact(
                "".join(traceback.format_exception(record.exc_info[1]))
            )
        return json.dumps(event)


def _one_line(error: BaseException) -> str:
    """An exception, its causes, and where each was raised, innermost frame first."""
    described: list[str] = []
    current: BaseException | None = error
    while current is not None and len(described) < 10:  # noqa: PLR2004 - a line has an end
        frames = traceback.extract_tb(current.__traceback__)
        places = " < ".join(
            f"{frame.filename}:{frame.lineno} {frame.name}" for frame in reversed(frames)
        )
        text = "".join(traceback.format_exception_only(current)).strip()
        described.append(f"{text} at {places}" if places else text)
        current = current.__cause__ or (
            None if current.__suppress_context__ else current.__context__
        )
    return " ← ".join(described)


def _visible(text: str) -> str:
    """`text` on one line, with everything escaped that a terminal would act on."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
