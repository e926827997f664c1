"""The accounts of one profile, by their keys, and the task that keeps each of them connected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_core.adapters import Account
    from hermes_core.authorization import AccessList

Spawn = Callable[[Coroutine[object, object, None], str], "asyncio.Task[None]"]


class Accounts:
    """A profile's accounts and nobody else's. An account's key is `telegram`, or `telegram.ops`."""

    def __init__(self, spawn: Spawn) -> None:
        """`spawn(work, name)` runs something in a task that the profile owns."""
        self._spawn = spawn
        self._accounts: dict[str, Account] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def add(self, account: Account) -> None:
        self._accounts[account.name] = account

    def get(self, name: str) -> Account | None:
        return self._accounts.get(name)

    link = get
    """The account as delivery sees it."""

    def access(self, name: str) -> AccessList | None:
        """Who may speak on it."""
        account = self._accounts.get(name)
        return None if account is None else account.access

    def connect(self) -> None:
        """Begin to keep every account connected that nobody keeps connected yet."""
        for name, account in self._accounts.items():
            if name not in self._tasks:
                work = account.run()
                self._tasks[name] = self._spawn(work, f"account {name}@{account.scope.name}")

    def shut(self, reason: str) -> None:
        """Connect none of them, because of `reason`."""
        for account in self._accounts.values():
            account.shut(reason)

    async def replace(self, name: str, account: Account | None) -> None:
        """Disconnect the account `name` and put another one, or none, in its place.

        What is to be sent by it waits until the new one is connected.
        """
        while (task := self._tasks.get(name)) is not None:
            task.cancel()
            await asyncio.wait([task])
            if self._tasks.get(name) is task:  # until here nobody connects the old one again
                del self._tasks[name]
        old = self._accounts.pop(name, None)
        if account is not None:
            if old is not None:
                account.budget = old.budget  # the platform still wants the pauses it asked for
            self.add(account)

    def __iter__(self) -> Iterator[Account]:
        return iter(list(self._accounts.values()))
