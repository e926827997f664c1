"""One event a line, whatever is logged, and no secret in any of them."""

from __future__ import annotations

import io
import json
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.logs import LineHandler, LogFormat, setup_logging
from hermes_core.redaction import MIN_LENGTH, Redactor

SECRET = 'tok:"en/+ value\n-----line-two-----'
FORMATS: tuple[LogFormat, ...] = ("human", "json")


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)


Logged = Callable[..., list[str]]


@pytest.fixture(params=FORMATS)
def logged(request: pytest.FixtureRequest) -> Logged:
    """The lines that come out of what `act` logs."""
    kind = cast("LogFormat", request.param)

    def run(act: Callable[[logging.Logger], object], *, level: str = "info") -> list[str]:
        stream = io.StringIO()
        setup_logging(kind, level, stream).add([SECRET])
        act(logging.getLogger("some.library"))
        text = stream.getvalue()
        assert text == "" or text.endswith("\n")
        return text.split("\n")[:-1]

    return run


def _raise(log: logging.Logger) -> None:
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(f"about\n{SECRET}") from error
    except ValueError:
        log.exception("failed with %s", SECRET)


ACTS: list[Callable[[logging.Logger], object]] = [
    lambda log: log.info("two\nlines\r\n and \x00 \x1b[31m \u2028 \ud800"),
    lambda log: log.info("secret %s", SECRET),
    lambda log: log.info("secret %(a)s", {"a": SECRET}),
    lambda log: log.info(SECRET * 1000),
    lambda log: log.info("x", extra={"profile": "work", "list": [SECRET, {SECRET: SECRET}]}),
    lambda log: log.info("x", extra={"message2": float("nan"), "turn": None}),
    lambda log: log.info("does not fit %d", SECRET),
    lambda log: log.info("does not fit", SECRET),  # noqa: PLE1205 - as others do it
    lambda log: log.info("x", extra={"level": 1, "time": 2, "exception": 3}),
    lambda log: log.info(object()),
    lambda log: log.info("repr %r", [SECRET]),
    lambda log: log.info("json %s", json.dumps({"a": SECRET})),
    lambda log: log.info("url https://x/%s/y", "tok%3A%22en%2F%2B%20value%0A-----line-two-----"),
    lambda log: log.info("a part of it: -----line-two-----"),
    lambda log: log.info("x", exc_info=True),  # noqa: LOG014 - as others do it
    _raise,
]


@pytest.mark.parametrize("number", range(len(ACTS)))
def test_one_line_without_secrets(logged: Logged, number: int) -> None:
    (line,) = logged(ACTS[number])
    assert line.isprintable()
    assert "en/+ value" not in line
    assert "line-two" not in line
    if line.startswith("{"):
        assert json.loads(line)["logger"] == "some.library"


class _Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_values_that_cannot_show_themselves(logged: Logged) -> None:
    (line,) = logged(lambda log: log.info("x", extra={"value": _Hostile()}))
    assert "_Hostile" in line


def test_fields_of_json() -> None:
    stream = io.StringIO()
    setup_logging("json", logging.INFO, stream)
    extra = {"turn": "t1", "profile": "work", "account": "line.ops", "session": "s", "tries": 2}
    logging.getLogger("hermes_core.turns").warning("ended", extra=extra)
    event: dict[str, Any] = json.loads(stream.getvalue())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.pop("time"))
    assert list(event.items()) == [
        ("level", "warning"),
        ("logger", "hermes_core.turns"),
        ("message", "ended"),
        ("profile", "work"),
        ("account", "line.ops"),
        ("session", "s"),
        ("turn", "t1"),
        ("tries", 2),
    ]


def test_a_traceback_of_json_is_whole() -> None:
    stream = io.StringIO()
    setup_logging("json", "info", stream)
    _raise(logging.getLogger("x"))
    exception = json.loads(stream.getvalue())["exception"]
    assert "The above exception was the direct cause" in exception
    assert exception.count("Traceback") == 2


def test_levels(logged: Logged) -> None:
    def act(log: logging.Logger) -> None:
        log.debug("debug")
        log.info("info")
        logging.getLogger("httpx").info("GET https://x/token")
        logging.getLogger("httpx").warning("trouble")

    assert len(logged(act)) == 2


def test_warnings_are_events(logged: Logged) -> None:
    def act(log: logging.Logger) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(capture=True)
            warnings.warn("deprecated", stacklevel=1)

    (line,) = logged(act)
    assert "deprecated" in line


def test_setting_up_again_replaces() -> None:
    first, second = io.StringIO(), io.StringIO()
    setup_logging("human", "info", first)
    setup_logging("human", "info", second)
    logging.getLogger("x").info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


@pytest.mark.parametrize("kind", FORMATS)
def test_a_stream_that_cannot_be_written_is_no_error(kind: LogFormat) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    setup_logging(kind, "info", Full())
    log = logging.getLogger("x")
    log.info("one")
    log.info("two")
    handler = logging.getLogger().handlers[0]
    assert isinstance(handler, LineHandler)
    assert handler.lost == 2


@pytest.mark.parametrize("kind", FORMATS)
def test_a_stream_that_speaks_little(kind: LogFormat) -> None:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="ascii")
    setup_logging(kind, "info", stream)
    logging.getLogger("x").info("grüße \ud800")
    assert b"gr" in buffer.getvalue()
    assert buffer.getvalue().count(b"\n") == 1


# ── redaction ────────────────────────────────────────────────────────────────────────────────────

VALUES = st.text(min_size=MIN_LENGTH, max_size=30).filter(lambda text: text.strip("*") != "")


@given(st.lists(VALUES, max_size=4), st.text(max_size=20), st.text(max_size=20))
def test_no_value_survives(values: list[str], before: str, after: str) -> None:
    redact = Redactor(values)
    for value in values:
        for written in (value, json.dumps(value), repr(value), f"{value}{value}"):
            text = redact(before + written + after)
            assert value not in text or value in before + after or value in f"{before}***{after}"


def test_a_longer_value_wins_over_its_beginning() -> None:
    redact = Redactor(["abcd", "abcdefgh"])
    assert redact("x abcdefgh y abcd") == "x *** y ***"


def test_short_values_are_left_alone() -> None:
    assert Redactor(["a", "abc", ""])("a abc") == "a abc"


def test_values_can_be_learnt_later() -> None:
    redact = Redactor()
    assert redact("value") == "value"
    redact.add(["value"])
    assert redact("a value") == "a ***"


def test_what_ends_the_program_or_a_thread_shows_no_secret() -> None:
    script = (
        "import threading\n"
        "from hermes_core.redaction import Redactor, redact_tracebacks\n"
        "redact_tracebacks(Redactor(['marked-value']))\n"
        "def fail():\n"
        "    raise ValueError('marked-value')\n"
        "thread = threading.Thread(target=fail)\n"
        "thread.start()\n"
        "thread.join()\n"
        "try:\n"
        "    fail()\n"
        "except ValueError as error:\n"
        "    raise RuntimeError('marked-value too') from error\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.count("ValueError: ***") == 2
    assert "RuntimeError: *** too" in done.stderr
    assert "ValueError: marked" not in done.stderr
