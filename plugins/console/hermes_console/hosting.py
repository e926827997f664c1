"""Whom the chat talks to: the gateway that holds the home, or else one in this very process."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from hermes_core.errors import HomeLocked
from hermes_core.supervision.control import ClientChannel, open_channel
from hermes_core.supervision.lock import holder

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_core.home import Home

MAX_LOG = 1_000_000
"""Bytes of the log from which on the next chat begins a new one."""


@asynccontextmanager
async def some_gateway(home: Home) -> AsyncIterator[None]:
    """Be the gateway of `home` for as long as the context lasts, unless somebody is it already.

    Raises what a gateway raises that cannot start.
    """
    async with AsyncExitStack() as stack:
        if holder(home.lock_path) is None:
            from hermes_core.gateway import hosted
            from hermes_core.logs import setup_logging

            home.ensure()
            stream = stack.enter_context(_log_file(home.log_dir()))
            setup_logging("human", "info", stream)
            with suppress(HomeLocked):  # somebody was faster: talk to them
                await stack.enter_async_context(hosted(home))
        yield


async def attach(home: Home, profile: str, chat: str) -> ClientChannel:
    """Attach to a chat of the gateway that holds `home`. Raises ControlError when nobody does."""
    parameters = {"profile": profile, "platform": "console", "account": "default", "chat": chat}
    return await open_channel(home.state_root, "attach", parameters)


def _log_file(directory: Path) -> TextIO:
    """The terminal shows the conversation, so that the gateway's log goes to a file."""
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / "chat.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    if os.fstat(descriptor).st_size > MAX_LOG:
        os.ftruncate(descriptor, 0)
    return os.fdopen(descriptor, "w", encoding="utf-8")
