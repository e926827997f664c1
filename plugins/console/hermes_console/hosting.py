"""Whom the chat talks to: the gateway that holds the home, or else one in this very process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from hermes_core.errors import HermesError, HomeLocked
from hermes_core.supervision.control import ClientChannel, open_channel
from hermes_core.supervision.lock import holder

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_core.home import Home

MAX_LOG = 1_000_000
"""Bytes of the log from which on the next chat begins a new one."""
RUNS = "hermes chat"
"""What a chat that is the gateway says it is: such a one ends when its person leaves."""
POLL = 0.2
"""Seconds between two looks at whether the chat that is the gateway is still there."""


@asynccontextmanager
async def some_gateway(home: Home) -> AsyncIterator[None]:
    """Be the gateway of `home` for as long as the context lasts, unless somebody is it already.

    If that is another chat, take its place when it leaves. Raises what a gateway raises that cannot
    start.
    """
    async with AsyncExitStack() as stack:
        while (found := holder(home.lock_path)) is None:
            if await _is_gateway(home, stack, stack):
                yield
                return
        try:
            async with asyncio.TaskGroup() as group:
                inherit = _inherit(home, stack, guest=found.runs == RUNS)
                heir = group.create_task(inherit, name="heir of a chat")
                yield
                heir.cancel()
        except* HermesError as errors:
            raise errors.exceptions[0] from None


async def _is_gateway(home: Home, stack: AsyncExitStack, logs: AsyncExitStack) -> bool:
    """Become the gateway until `stack` is left, with a log until `logs` is. False when somebody was
    faster."""
    from hermes_core.gateway import hosted
    from hermes_core.logs import setup_logging

    home.ensure()
    setup_logging("human", "info", logs.enter_context(_log_file(home.log_dir())))
    with suppress(HomeLocked):
        await stack.enter_async_context(hosted(home, runs=RUNS))
        return True
    return False


async def _inherit(home: Home, logs: AsyncExitStack, *, guest: bool) -> None:
    """Wait until the chat that is the gateway has left, then be the gateway, until cancelled.

    The place of a `hermes run` is never taken: whoever looks after it starts it again.
    """
    while True:
        found = holder(home.lock_path)
        if found is None:
            if not guest:
                return
            async with AsyncExitStack() as stack:
                if await _is_gateway(home, stack, logs):
                    await asyncio.Event().wait()
        elif found.runs == RUNS:
            guest = True
        elif found.runs:
            return
        await asyncio.sleep(POLL)


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
