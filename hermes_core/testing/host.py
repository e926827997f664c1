"""A whole gateway in a temporary home."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from hermes_core.gateway import Gateway, hosted
from hermes_core.home import Home
from hermes_core.testing.agent import ScriptedAgent


def home_at(path: Path, config: str = "") -> Home:
    """A home in `path`, with `config` as its settings file when there is any."""
    home = Home(path, path)
    home.ensure()
    if config:
        home.config_file().write_text(config, encoding="utf-8")
    return home


@asynccontextmanager
async def gateway(
    path: Path,
    *plugins: object,
    config: str = "",
    settle: float = 0.05,
    wall: Callable[[], float] = time.time,
) -> AsyncIterator[Gateway]:
    """Run a gateway with just these plugins, none that is installed, until the context is left.

    Its settings may change while it runs; they count when they rest for `settle` seconds.

    Without settings of its own, a `ScriptedAgent` among the plugins is the agent in use.
    """
    scripted = any(isinstance(plugin, ScriptedAgent) for plugin in plugins)
    if "[agent]" not in config and scripted:
        config = f'[agent]\nuse = "scripted"\n{config}'
    home = home_at(path, config)
    async with hosted(home, extra=plugins, installed=False, settle=settle, wall=wall) as running:
        yield running
