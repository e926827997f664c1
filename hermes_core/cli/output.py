"""What commands print: one JSON document for programs, plain lines for people."""

from __future__ import annotations

import dataclasses
import json as json_module
import os
import sys
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from typing import Any, TextIO, TypeVar

import click

from hermes_core.cli.streams import one_line

T = TypeVar("T")
CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_STDOUT = "hermes_core.cli.output.stdout"
_GAP = 2
_NARROWEST = 40
"""Columns that a table gets however narrow the terminal is."""


def json_option(command: CommandT) -> CommandT:
    """Add `--json` to a command, as its parameter `json: bool`.

    From then on `emit` alone writes to the standard output; whatever else prints (a plugin that is
    being loaded, say) does so to the standard error.
    """
    option = click.option(
        "--json", is_flag=True, is_eager=True, callback=_reserve_stdout, help="Print JSON."
    )
    return option(command)


def _reserve_stdout(ctx: click.Context, _param: click.Parameter, wanted: bool) -> bool:
    if wanted and _STDOUT not in ctx.meta:
        stdout = sys.stdout
        ctx.meta[_STDOUT] = stdout
        sys.stdout = sys.stderr

        @ctx.call_on_close
        def restore() -> None:
            sys.stdout = stdout

    return wanted


def emit(data: T, json: bool, human: Callable[[T], object]) -> None:
    """Print `data` as JSON, or let `human` print it.

    `data` is made of what JSON knows, and of paths, dataclasses and msgspec structs.
    """
    if not json:
        human(data)
        return
    out = _stdout()
    utf8 = (out.encoding or "").lower().replace("-", "") == "utf8"
    document = json_module.dumps(data, indent=2, ensure_ascii=not utf8, default=_to_plain)
    print(document, file=out)


def _stdout() -> TextIO:
    ctx = click.get_current_context(silent=True)
    stdout: TextIO = sys.stdout
    if ctx is not None and _STDOUT in ctx.meta:
        stdout = ctx.meta[_STDOUT]
    return stdout


def _to_plain(value: object) -> object:
    if isinstance(value, PurePath):
        return os.fspath(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    import msgspec

    return msgspec.to_builtins(value, enc_hook=_to_plain)


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print aligned columns. On a terminal lines are cut at the edge; piped, nothing is cut."""
    lines = [tuple(headers), *(tuple(one_line(str(cell)) for cell in row) for row in rows)]
    widths = [max(width(line[column]) for line in lines) for column in range(len(headers))]
    edge = _terminal_width()
    for number, line in enumerate(lines):
        text = _cut(_align(line, widths), edge)
        click.secho(text, bold=True) if number == 0 else click.echo(text)


def _align(line: Sequence[str], widths: Sequence[int]) -> str:
    cells = [cell + " " * (room - width(cell)) for cell, room in zip(line, widths, strict=True)]
    return (" " * _GAP).join(cells).rstrip()


def _terminal_width() -> int | None:
    if not sys.stdout.isatty():
        return None
    return max(_NARROWEST, os.get_terminal_size(sys.stdout.fileno()).columns)


def _cut(text: str, edge: int | None) -> str:
    if edge is None or width(text) <= edge:
        return text
    while text and width(text) >= edge:
        text = text[:-1]
    return f"{text}…"


def width(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    return sum(_columns(ch) for ch in text)


def _columns(ch: str) -> int:
    if unicodedata.combining(ch):
        return 0
    return 2 if unicodedata.east_asian_width(ch) in "WF" else 1
