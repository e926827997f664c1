"""How much other bots may say: two bots that answer each other must come to an end."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Literal

from hermes_core.messages import Address

_MAX_CHATS = 1000


class BotTurns:
    """Counts messages of bots per chat within a window that slides. Bounded."""

    def __init__(self) -> None:
        self._chats: OrderedDict[tuple[str, str], _Chat] = OrderedDict()

    def spend(
        self, address: Address, limit: int, window: float, now: float
    ) -> Literal["taken", "first over", "over"]:
        """Take one message into account, at the monotonic time `now`. The first one over the limit
        is told apart, so that people are told once."""
        key = (address.account_key, address.chat_id)
        chat = self._chats.pop(key, None) or _Chat()
        self._chats[key] = chat
        if len(self._chats) > _MAX_CHATS:
            self._chats.popitem(last=False)
        while chat.times and now - chat.times[0] >= window:
            chat.times.popleft()
        if len(chat.times) < limit:
            chat.times.append(now)
            chat.told = False
            return "taken"
        first, chat.told = not chat.told, True
        return "first over" if first else "over"


class _Chat:
    def __init__(self) -> None:
        self.times: deque[float] = deque()
        self.told = False
