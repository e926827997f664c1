"""The standard streams, made safe: closed, full, gone, or in an encoding of few characters."""

from __future__ import annotations

import contextlib
import os
import sys
from io import TextIOWrapper
from typing import TextIO

from hermes_core.errors import EXIT_FAILURE

EXIT_PIPE = 141
"""What a shell shows for a program ended by SIGPIPE: the reader of the output went away."""

_ASCII = ("ascii", "us-ascii", "ansi_x3.4-1968", "646")


def open_standard_streams() -> None:
    """Make the standard streams usable, also where the caller closed them or speaks little.

    A closed descriptor is opened on /dev/null: the next file would otherwise become the output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, _null(number))
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, TextIOWrapper):
            # ASCII is what Python says of a locale that it knows nothing about. Not every text can
            # be written in every other encoding, and some texts hold undecodable file names.
            encoding = "utf-8" if output.encoding.lower() in _ASCII else None
            output.reconfigure(encoding=encoding, errors="backslashreplace")


def _null(number: int) -> TextIO:
    """Open /dev/null as the standard stream `number`."""
    _replace(number)
    return os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False)


def _replace(number: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != number:
        os.dup2(null, number)
        os.close(null)


def flush(*, told: bool) -> int:
    """Write what is still buffered. Returns an exit code for output that is lost, else 0.

    `told` says that a failure has been reported already, and one is enough.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes once more at its end, and would complain in its own way.
        _replace(sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return EXIT_PIPE
        if not told:
            complain(f"cannot write the output: {error.strerror}")
        return EXIT_FAILURE
    return 0


def complain(text: str) -> None:
    """Print what went wrong to the standard error, if anybody reads it."""
    lines = [one_line(line) for line in text.splitlines()]
    with contextlib.suppress(OSError):
        sys.stderr.write("hermes: " + "\n".join(lines) + "\n")
        sys.stderr.flush()


def one_line(text: str) -> str:
    """`text` with every character escaped that a terminal would act on, line ends included."""
    return "".join(ch if ch.isprintable() else ch.encode("unicode_escape").decode() for ch in text)
