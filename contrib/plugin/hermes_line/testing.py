"""The far side, for tests: a network in memory that keeps what the real one keeps.

Write it anew with `network.py`. The nearer it is to the real network, the more the tests prove: a
server of the network's own makers on loopback is best.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from hermes_line.network import Event, Network

OWN_ID = "bot"
PERSON, STRANGER = "u1", "u2"
GROUP = "g1"


class FakeServer:
    """One account, and who talks to it: in chats that are named like the people, and in a group.

    `tokens` are valid. `pending` is what was said and not acknowledged yet, `shown` is who was sent
    what. Only the latest login, the one with the number `session`, is connected. This is a
    `Network` as `hermes_core.testing.conformance` asks for one.
    """

    def __init__(self, *tokens: str) -> None:
        self.tokens = set(tokens)
        self.pending: list[Event] = []
        self.acknowledged: list[str] = []
        self.shown: list[tuple[str, str]] = []
        self.session = 0
        self._said: list[Event] = []
        self._changed = asyncio.Event()

    # ── what people do and see ───────────────────────────────────────────────────────────────────

    async def say(self, text: str, *, stranger: bool = False) -> None:
        user = STRANGER if stranger else PERSON
        event = Event(
            id=f"e{len(self._said) + 1}",
            chat=user,
            is_group=False,
            user=user,
            user_name=user,
            text=text,
        )
        self._said.append(event)
        self._offer(event)

    async def say_in_group(self, text: str, *, mention: bool) -> None:
        event = Event(f"e{len(self._said) + 1}", GROUP, True, PERSON, PERSON, text, mention)
        self._said.append(event)
        self._offer(event)

    async def screen(self, *, stranger: bool = False) -> list[str]:
        user = STRANGER if stranger else PERSON
        return [text for chat, text in self.shown if chat == user]

    async def change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def offer_again(self) -> None:
        self._offer(next(event for event in reversed(self._said) if event.user == PERSON))

    async def cut(self) -> None:
        self.session += 1
        self.touch()

    def touch(self) -> None:
        """Something changed."""
        self._changed.set()

    def _offer(self, event: Event) -> None:
        self.pending.append(event)
        self.touch()


class FakeNetwork(Network):
    """What `network.py` is for the real network."""

    def __init__(self, token: str, server: FakeServer) -> None:
        super().__init__(token)
        self._server = server
        self._session = 0

    async def log_in(self) -> str:
        if self._token not in self._server.tokens:
            raise PermissionError
        self._server.session += 1
        self._session = self._server.session
        return OWN_ID

    async def events(self) -> AsyncIterator[Event]:
        while True:
            self._check()
            for event in list(self._server.pending):
                yield event
                self._check()
            await self._server.change()

    async def acknowledge(self, event: Event) -> None:
        self._check()
        self._server.pending.remove(event)
        self._server.acknowledged.append(event.id)

    async def send(self, chat: str, text: str) -> str:
        if self._session != self._server.session:
            raise ConnectionRefusedError
        self._server.shown.append((chat, text))
        self._server.touch()
        return f"m{len(self._server.shown)}"

    async def close(self) -> None:
        self._session = 0

    def _check(self) -> None:
        if self._session != self._server.session:
            raise ConnectionResetError
