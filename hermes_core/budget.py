"""How fast an account may send: the platform's rates, and the pauses it asked for.

Two nested budgets, one for the account and one for each chat. A final text reserves the next free
moment and waits for it; a preview is shown only when there is room right now; typing likewise.
"""

from __future__ import annotations

from dataclasses import dataclass, field

BURST = 3
"""Messages that may go out at once after a quiet time, before the rate holds."""
MAX_CHATS = 10_000
"""Chats remembered at most; those whose budget is full again are forgotten first."""


@dataclass
class Budget:
    """The budget of one account. Rates are messages per second, None for no limit; times are the
    loop's."""

    rate: float | None = None
    chat_rate: float | None = None
    _account: float = field(default=0.0, repr=False)
    _chats: dict[str, float] = field(default_factory=dict, repr=False)
    _paused: dict[str, float] = field(default_factory=dict, repr=False)

    def pause(self, chat_id: str | None, until: float) -> None:
        """The platform wants silence until then: in one chat, or (None) on the whole account."""
        key = "" if chat_id is None else f"chat {chat_id}"
        self._paused[key] = max(until, self._paused.get(key, until))

    def delay(self, chat_id: str, now: float) -> float:
        """Seconds until a message may go to this chat; 0 when one may go now."""
        due = max(
            now,
            self._paused.get("", now),
            self._paused.get(f"chat {chat_id}", now),
            self._due(self._account, self.rate),
            self._due(self._chats.get(chat_id, 0.0), self.chat_rate),
        )
        return due - now

    def spend(self, chat_id: str, now: float) -> None:
        """A message goes out now."""
        self._paused.pop(f"chat {chat_id}", None)
        if self.rate:
            self._account = max(self._account, now - BURST / self.rate) + 1 / self.rate
        if self.chat_rate:
            spent = max(self._chats.get(chat_id, 0.0), now - BURST / self.chat_rate)
            self._chats[chat_id] = spent + 1 / self.chat_rate
            if len(self._chats) > MAX_CHATS:
                self._forget(now)

    def has_room(self, chat_id: str, now: float) -> bool:
        """Whether something that may be left out can go to this chat now. Spends when it can."""
        if self.delay(chat_id, now) > 0:
            return False
        self.spend(chat_id, now)
        return True

    @staticmethod
    def _due(level: float, rate: float | None) -> float:
        """When the budget has room for one more."""
        return level if rate else 0.0

    def _forget(self, now: float) -> None:
        self._chats = {chat: level for chat, level in self._chats.items() if level > now}
        while len(self._chats) > MAX_CHATS:
            self._chats.pop(next(iter(self._chats)))
