"""Signs of life that nobody stores: typing and presence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes_buzz.events import Draft, Kind

if TYPE_CHECKING:
    from hermes_buzz.connection import Connection
    from hermes_buzz.keys import Signer
    from hermes_core import Address

TYPING_EVERY = 3.0
"""Seconds between two typing events; clients show one for five."""
TYPING_FOR = 1800.0
"""Seconds after which nobody believes it any more."""
PRESENCE_EVERY = 30.0
"""Seconds between two presence events. They last for 90 s on older relays, for 180 s on newer."""


class Signs:
    """Sent when there is a frame to spare, else dropped."""

    def __init__(self, connection: Connection, signer: Signer, wall: Callable[[], float]) -> None:
        self._connection = connection
        self._signer = signer
        self._wall = wall
        self._typing: dict[Address, asyncio.Task[None]] = {}

    async def keep_present(self) -> None:
        """Say that the account is there, until cancelled."""
        while True:
            await self.present("online")
            await asyncio.sleep(PRESENCE_EVERY)

    async def present(self, status: str) -> None:
        """Say it once: ``online``, ``away`` or ``offline``."""
        await self._whisper(Kind.PRESENCE, (("status", status),), status)

    def set_typing(self, group: asyncio.TaskGroup, address: Address, active: bool) -> None:
        """Show, in a task of `group`, that an answer is being written, until told otherwise."""
        task = self._typing.pop(address, None)
        if task is not None:
            task.cancel()
        if active:
            self._typing[address] = group.create_task(self._keep_typing(address))

    async def _keep_typing(self, address: Address) -> None:
        tags: list[tuple[str, ...]] = [("h", address.chat_id)]
        if address.thread_id is not None:
            tags.append(("e", address.thread_id, "", "reply"))
        loop = asyncio.get_running_loop()
        until = loop.time() + TYPING_FOR
        while loop.time() < until:
            await self._whisper(Kind.TYPING, tuple(tags), "")
            await asyncio.sleep(TYPING_EVERY)

    async def _whisper(self, kind: Kind, tags: tuple[tuple[str, ...], ...], text: str) -> None:
        draft = Draft(kind=kind, created_at=int(self._wall()), tags=tags, content=text)
        await self._connection.whisper(draft.signed(self._signer))
