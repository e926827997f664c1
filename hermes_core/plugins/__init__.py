"""The plugin host: finds, loads and orders plugins, and calls their hooks.

A name is loaded when it is first asked for: a command that lists plugins needs no event loop.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_core.plugins.adapters import AdapterCalls, normalizer
    from hermes_core.plugins.ledger import Tally
    from hermes_core.plugins.loading import Loaded, load
    from hermes_core.plugins.model import (
        Abandoned,
        Answer,
        Foreign,
        LeftOut,
        Owned,
        Plugin,
        Quarantined,
        Running,
    )
    from hermes_core.plugins.runner import Ask, Decider, Hooks, load_plugins

__all__ = [
    "Abandoned",
    "AdapterCalls",
    "Answer",
    "Ask",
    "Decider",
    "Foreign",
    "Hooks",
    "LeftOut",
    "Loaded",
    "Owned",
    "Plugin",
    "Quarantined",
    "Running",
    "Tally",
    "load",
    "load_plugins",
    "normalizer",
]

_HOMES = {
    "adapters": "AdapterCalls normalizer",
    "ledger": "Tally",
    "loading": "Loaded load",
    "model": "Abandoned Answer Foreign LeftOut Owned Plugin Quarantined Running",
    "runner": "Ask Decider Hooks load_plugins",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"hermes_core.plugins.{_HOME_OF[name]}")
    value: object = getattr(module, name)
    globals()[name] = value
    return value
