"""The network's own protocol. This is the file to write anew: nothing in it knows of Hermes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """Somebody said something. `id` names this event for ever, also when it is delivered again.
    `is_for_us` says that it mentions us or replies to us: in a group the rest is not taken."""

    id: str
    chat: str
    is_group: bool
    user: str
    user_name: str
    text: str
    is_for_us: bool = False


class Network:
    """A client of the network for one account."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def log_in(self) -> str:
        """Returns our own user id. Raises PermissionError when the token is not valid any more."""
        raise NotImplementedError

    def events(self) -> AsyncIterator[Event]:
        """What happens, in order, beginning with what was not acknowledged. Raises OSError."""
        raise NotImplementedError

    async def acknowledge(self, event: Event) -> None:
        """The network need not deliver this event again."""
        raise NotImplementedError

    async def send(self, chat: str, text: str) -> str:
        """Returns the id of the message. Raises ConnectionRefusedError when it did not leave."""
        raise NotImplementedError

    async def close(self) -> None:
        """Log out."""
        raise NotImplementedError
