"""How far each channel has been read, kept over restarts.

Nostr events are dated by their authors, within the relay's tolerance: one that arrives now may be
dated before another that was handled minutes ago. So a channel is read again from a position that
lies that tolerance back, and what was handled since is recognised by its id.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from hermes_core import AccountFailed

TOLERANCE = 900
"""Seconds by which the date of an event may differ from the relay's time (block/buzz, ingest)."""
LOOK_BACK = 60
"""Seconds before the account came to a channel: the clocks of people there may be late."""
MAX_IDS = 500
"""Handled ids kept per channel. Beyond it the core's inbox recognises what it has stored."""
MAX_CHANNELS = 4096
_ID_PART = 32
"""Hexadecimal digits kept of an id: 128 bits, half the space and no collision anybody can make."""
_MAX_FILE = 128 << 20


class ChannelCursor(msgspec.Struct, kw_only=True):
    """One channel. `floor` is about when the account came to it: nothing older is asked for. `at`
    is the date up to which everything has been handled; `ids` are those handled lately, with their
    dates."""

    floor: int
    at: int = 0
    ids: dict[str, int] = msgspec.field(default_factory=dict)

    @property
    def since(self) -> int:
        """The date from which to read."""
        return max(self.floor, self.at - TOLERANCE)

    def has(self, event_id: str) -> bool:
        """Whether the event was handled, as far as is remembered."""
        return event_id[:_ID_PART] in self.ids

    def advance(self, event_id: str, created_at: int, now: int) -> None:
        """The event was handled; a date in the future moves the position no further than `now`."""
        self.ids[event_id[:_ID_PART]] = created_at
        self.at = max(self.at, min(created_at, now))
        if len(self.ids) > MAX_IDS:
            since = self.since
            kept = [(key, date) for key, date in self.ids.items() if date >= since]
            self.ids = dict(kept[-MAX_IDS // 2 :])


class _File(msgspec.Struct):
    channels: dict[str, ChannelCursor] = msgspec.field(default_factory=dict)
    mentions: dict[str, list[str]] = msgspec.field(default_factory=dict)
    members_since: int = 0


class CursorStore(Protocol):
    """What a connection needs to remember over restarts. Changes count once `save` has returned."""

    members_since: int
    """The date of the last change of membership that was seen."""

    def channel(self, channel_id: str, now: int) -> ChannelCursor:
        """The cursor of a channel, a new one that begins about `now` if there is none."""

    def left(self, channel_id: str, date: int) -> bool:
        """The account was removed from the channel: what is said until it comes back is not for it.
        False when it has come since, so that this is old news."""

    def frozen_mentions(self, row_id: str, resolve: Callable[[], list[str]]) -> list[str]:
        """The keys that an outbox row mentions: resolved once, the same ever after."""

    def sent(self, row_id: str) -> None:
        """The row has a receipt: its mentions need not be remembered."""

    def changed(self) -> None:
        """Something is to be saved."""

    async def save(self) -> None:
        """Write what has changed, whole and durable. Raises OSError."""


class FileCursors:
    """A `CursorStore` in one JSON file, mode 0600, replaced in one step."""

    MAX_ROWS = 1000

    def __init__(self, path: Path) -> None:
        """Reads the file. Raises AccountFailed when it is there and is not such a file."""
        self._path = path
        self._dirty = False
        self._saving = asyncio.Lock()
        try:
            with path.open("rb") as file:
                self._state = msgspec.json.decode(file.read(_MAX_FILE), type=_File)
        except FileNotFoundError:
            self._state = _File()
        except msgspec.DecodeError as error:
            raise AccountFailed(
                f"the file of cursors is damaged: {error}",
                where=str(path),
                remedy="move it away: every channel is then read from now on",
            ) from None

    @property
    def members_since(self) -> int:
        return self._state.members_since

    @members_since.setter
    def members_since(self, date: int) -> None:
        self._state.members_since = date
        self._dirty = True

    def channel(self, channel_id: str, now: int) -> ChannelCursor:
        found = self._state.channels.get(channel_id)
        if found is None:
            found = self._state.channels[channel_id] = ChannelCursor(floor=now - LOOK_BACK)
            self._dirty = True
            while len(self._state.channels) > MAX_CHANNELS:
                self._state.channels.pop(next(iter(self._state.channels)))
        return found

    def left(self, channel_id: str, date: int) -> bool:
        found = self._state.channels.get(channel_id)
        if found is not None:
            if date <= found.floor + LOOK_BACK:
                return False
            del self._state.channels[channel_id]
            self._dirty = True
        return True

    def frozen_mentions(self, row_id: str, resolve: Callable[[], list[str]]) -> list[str]:
        rows = self._state.mentions
        if row_id in rows:
            return rows[row_id]
        rows[row_id] = resolve()
        while len(rows) > self.MAX_ROWS:
            rows.pop(next(iter(rows)))
        self._dirty = True
        return rows[row_id]

    def sent(self, row_id: str) -> None:
        if self._state.mentions.pop(row_id, None) is not None:
            self._dirty = True

    def changed(self) -> None:
        self._dirty = True

    async def save(self) -> None:
        async with self._saving:
            if not self._dirty:
                return
            self._dirty = False
            content = msgspec.json.encode(self._state)
            try:
                await asyncio.to_thread(self._replace, content)
            except BaseException:
                self._dirty = True
                raise

    def _replace(self, content: bytes) -> None:
        directory = self._path.parent
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=directory, prefix=".cursors-")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self._path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
