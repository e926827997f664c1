"""One JSON object a line, bounded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NoReturn

from hermes_core.errors import EXIT_FAILURE, ControlError, HermesError

MAX_FRAME = 1 << 20
"""Bytes of one frame, its line end included."""
_MAX_TEXT = 10_000
"""Characters of each text in an error, so that every error fits into a frame."""


def encode(frame: Mapping[str, object]) -> bytes:
    """A line for the wire. Raises ControlError for what JSON cannot hold or what is too long."""
    try:
        line = json.dumps(frame, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise ControlError(f"not a JSON object: {error}", where="control socket") from error
    if len(line) > MAX_FRAME:
        raise oversize()
    return line


def decode(line: bytes) -> dict[str, object]:
    """The object on one line. Raises ControlError for anything but a JSON object."""
    try:
        frame = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ControlError("expected one JSON object a line", where="control socket") from error
    if not isinstance(frame, dict):
        raise ControlError("expected one JSON object a line", where="control socket")
    return frame


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def oversize() -> ControlError:
    """The error for a frame beyond the limit."""
    return ControlError(f"a frame is longer than {MAX_FRAME} bytes", where="control socket")


def failure(error: HermesError) -> dict[str, object]:
    """The frame that tells the other side of `error`."""
    return {
        "error": error.what[:_MAX_TEXT],
        "where": error.where[:_MAX_TEXT],
        "remedy": error.remedy[:_MAX_TEXT],
        "code": error.exit_code,
    }


def raise_failure(frame: Mapping[str, object]) -> None:
    """Raise what the other side tells, if `frame` is an error. Its exit code is kept."""
    if "error" not in frame:
        return
    code = frame.get("code")
    error = ControlError(
        str(frame["error"]),
        where=str(frame.get("where", "")),
        remedy=str(frame.get("remedy", "")),
    )
    error.exit_code = code if type(code) is int else EXIT_FAILURE
    raise error
