"""The standard streams, made safe: closed, full, gone, or in an encoding of few characters."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

from hermes_core.errors import EXIT_FAILURE

EXIT_PIPE = 141
"""What a shell shows for a program ended by SIGPIPE: the reader of the output went away."""


def open_standard_streams() -> None:
    """Make the standard streams usable, also where the caller closed them or speaks little.

    A closed descriptor is opened on /dev/null: the next file would otherwise become the output.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, _null(number))
    for output in (sys.stdout, sys.stderr):
        # Not every text can be written in every encoding, and some hold undecodable file names.
        reconfigure = getattr(output, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _null(number: int) -> TextIO:
    """Open /dev/null as the standard stream `number`."""
    _replace(number)
    return os.fdopen(number, "w" if number else "r", encoding="utf-8", closefd=False)


def _replace(number: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != number:
        os.dup2(null, number)
        os.close(null)


def flush() -> int:
    """Write what is still buffered. Returns an exit code for output that is lost, else 0."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes once more at its end, and would complain in its own way.
        _replace(sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return EXIT_PIPE
        complain(f"cannot write the output: {error.strerror}")
        return EXIT_FAILURE
    return 0


def complain(text: str) -> None:
    """Print one line about a failure to the standard error, if anybody reads it."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"hermes: {' '.join(text.splitlines())}\n")
        sys.stderr.flush()
