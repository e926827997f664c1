"""Kinds of values on the command line that click has not."""

from __future__ import annotations

import click

from hermes_core.settings import Duration


def seconds(value: str | float) -> float:
    """A time span: a number of seconds, or as settings write it (`30s`, `5m`)."""
    if isinstance(value, float):  # a default
        return value
    try:
        return Duration.parse(value if value[-1:].isalpha() else f"{value}s")
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is neither a number of seconds nor a time like 30s or 5m"
        ) from None
