"""The accounts of one profile, by their keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_core.adapters import Account
    from hermes_core.authorization import AccessList


class Accounts:
    """A profile's accounts and nobody else's. An account's key is `telegram`, or `telegram.ops`."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}

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

    def __iter__(self) -> Iterator[Account]:
        return iter(self._accounts.values())
