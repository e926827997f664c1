"""Which channels the account is in, what kind they are, and how their members are called."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Literal

import msgspec

from hermes_buzz.events import Event, Kind
from hermes_buzz.subscriptions import Filter

log = logging.getLogger(__name__)

MAX_NAMES = 500
"""Profiles that are asked for at once, and in one round."""

Query = Callable[[Sequence[Filter]], Awaitable[list[Event]]]


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """One channel. `bots` are the members with that role; `members` are empty if unknown."""

    id: str
    kind: Literal["dm", "channel"] = "channel"
    name: str = ""
    members: frozenset[str] = frozenset()
    bots: frozenset[str] = frozenset()


class _Profile(msgspec.Struct):
    display_name: str | None = None
    name: str | None = None


class Directory:
    """Asks the relay for what it knows, and remembers it."""

    def __init__(self, query: Query, me: str, only: frozenset[str], relay_key: str) -> None:
        """`only` limits the channels, unless it is empty. Of `relay_key`, if known, are all facts
        about channels."""
        self._query = query
        self._me = me
        self._only = only
        self._relay_key = relay_key
        self._names: dict[str, str] = {}
        self._asked: set[str] = set()
        self.channels: dict[str, Channel] = {}

    async def refresh(self, added: frozenset[str] = frozenset()) -> None:
        """Learn the channels anew. `added` were pushed: they count although lists may lag behind.

        Raises RelayError.
        """
        lists = self._latest(
            await self._query([{"kinds": [Kind.CHANNEL_MEMBERS], "#p": [self._me], "limit": 1000}])
        )
        wanted = {channel_id for channel_id in lists if self._me in lists[channel_id].values("p")}
        wanted |= self._only | added
        if self._only:
            wanted &= self._only
        facts: dict[str, Event] = {}
        if wanted:
            facts = self._latest(
                await self._query([{"kinds": [Kind.CHANNEL], "#d": sorted(wanted), "limit": 1000}])
            )
        self.channels = {
            channel_id: _channel(channel_id, facts.get(channel_id), lists.get(channel_id))
            for channel_id in sorted(wanted)
            if not (channel_id in facts and facts[channel_id].has("archived"))
        }
        await self._learn_names(key for event in lists.values() for key in event.values("p"))

    def name(self, key: str) -> str:
        """What a member is called, "" when that is not known."""
        return self._names.get(key, "")

    def keys_by_name(self, channel_id: str) -> dict[str, str]:
        """Folded names and whom they mean in a channel; a name that two of its members bear means
        nobody."""
        channel = self.channels.get(channel_id)
        members = channel.members if channel is not None else frozenset()
        found: dict[str, str] = {}
        twice = set()
        for key, name in self._names.items():
            if members and key not in members:
                continue
            folded = name.casefold()
            if folded in found:
                twice.add(folded)
            found[folded] = key
        return {name: key for name, key in found.items() if name not in twice}

    def _latest(self, events: Iterable[Event]) -> dict[str, Event]:
        """The newest event of each channel, by the channel's id."""
        found: dict[str, Event] = {}
        for event in events:
            channel_id = event.value("d")
            known = found.get(channel_id)
            if self._relay_key and event.pubkey != self._relay_key:
                continue
            if channel_id and (known is None or known.created_at < event.created_at):
                found[channel_id] = event
        return found

    async def _learn_names(self, keys: Iterable[str]) -> None:
        new = sorted(set(keys) - self._asked - {self._me})[:MAX_NAMES]
        if not new:
            return
        events = await self._query([{"kinds": [Kind.PROFILE], "authors": new}])
        self._asked.update(new)
        for event in sorted(events, key=lambda event: event.created_at):
            try:
                profile = msgspec.json.decode(event.content, type=_Profile)
            except (msgspec.DecodeError, UnicodeEncodeError):
                continue
            name = " ".join((profile.display_name or profile.name or "").split())
            if name and event.pubkey in self._asked:
                self._names[event.pubkey] = name[:100]


def _channel(channel_id: str, facts: Event | None, members: Event | None) -> Channel:
    """Only the channel's own metadata says that it is a direct chat."""
    direct = facts is not None and (facts.value("t") == "dm" or facts.has("hidden"))
    bots = [
        tag[1]
        for tag in (members.tags if members is not None else ())
        if len(tag) > 2 and tag[0] == "p" and "bot" in tag[2:]  # noqa: PLR2004
    ]
    return Channel(
        id=channel_id,
        kind="dm" if direct else "channel",
        name=facts.value("name") if facts is not None else "",
        members=frozenset(members.values("p")) if members is not None else frozenset(),
        bots=frozenset(bots),
    )
