"""LINE as a chat platform for Hermes. A template: rename it, and write `network.py` anew."""

from __future__ import annotations

from hermes_core import Platform, hookimpl
from hermes_line.adapter import LineAdapter, LineSettings


@hookimpl
def platforms() -> list[Platform]:
    """The one platform of this plugin. What it declares here is what delivery keeps to."""
    return [Platform(name="line", adapter=LineAdapter, settings=LineSettings, max_length=5000)]
