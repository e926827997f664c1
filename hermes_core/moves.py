"""Chats that have got another id: where they are now, for what still speaks of the old one.

A network may give a chat another id: a group of Telegram that becomes a supergroup. What is stored
moves in one transaction (`store.moves`). This is the other half: what was on its way at that moment
(an event in the gate, an answer of a turn that runs) learns the new id here. It is kept in memory
only: after a restart nothing is on its way, and what is stored speaks of the new id.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from hermes_core.messages import Address, Outbound
from hermes_core.sessions import chat_prefixes

MAX_MOVES = 1000
"""Chats remembered at most; those that moved first are forgotten first."""


class Moves:
    """The chats of one profile that have moved since the start."""

    def __init__(self, profile: str) -> None:
        self._profile = profile
        self._chats: dict[tuple[str, str], str] = {}
        self._prefixes: dict[str, str] = {}

    def add(self, account: str, old: str, new: str) -> bool:
        """Note that a chat of an account has moved. False when it is said to be somewhere else
        already, or to have come from there: one of the two is wrong, and the first one counts."""
        new = self._chats.get((account, new), new)
        if (known := self._chats.get((account, old))) is not None:
            return known == new
        if new == old:
            return False
        for chat in (old, *(before for before, at in self.of(account).items() if at == old)):
            self._chats[account, chat] = new
            self._prefixes.update(self.prefixes(account, chat, new))
        while len(self._chats) > MAX_MOVES:
            forgotten = next(iter(self._chats))
            del self._chats[forgotten]
            for prefix in chat_prefixes(self._profile, *forgotten):
                self._prefixes.pop(prefix, None)
        return True

    def prefixes(self, account: str, old: str, new: str) -> dict[str, str]:
        """What the session keys of a chat begin with, before and after it moved."""
        return dict(
            zip(
                chat_prefixes(self._profile, account, old),
                chat_prefixes(self._profile, account, new),
                strict=True,
            )
        )

    def of(self, account: str) -> Mapping[str, str]:
        """The chats of an account that have moved, by their old ids."""
        return {old: new for (key, old), new in self._chats.items() if key == account}

    def address(self, address: Address) -> Address:
        """Where an address is now. Direct chats do not move."""
        if not self._chats or address.kind == "dm":
            return address
        new = self._chats.get((address.account_key, address.chat_id))
        return address if new is None else msgspec.structs.replace(address, chat_id=new)

    def key(self, session_key: str) -> str:
        """The key that a session has now."""
        if not self._prefixes:
            return session_key
        parts = session_key.split(":", 5)
        new = self._prefixes.get(":".join(parts[:5]))
        return session_key if new is None else ":".join([new, *parts[5:]])

    def message(self, message: Outbound) -> Outbound:
        """A message to where its chat is now. It answers nothing there: the ids of messages belong
        to the chat that is gone."""
        address = self.address(message.address)
        if address is message.address:
            return message
        return msgspec.structs.replace(message, address=address, reply_to=None)
