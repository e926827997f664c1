"""From rows of the outbox to events on the relay.

The event of a row is a function of the row: same row, same id, whatever happens in between. So
publishing again shows nothing twice, and whether a message arrived is a question by id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from hermes_buzz.bridge import Blob
from hermes_buzz.events import MAX_EMOJI, OUTBOX_TAG, Draft, Event, Kind, Tag
from hermes_buzz.mentions import mentioned, without_code
from hermes_buzz.threads import reply_tags
from hermes_buzz.trouble import ConnectionDown, RelayError, is_missing_target, send_error
from hermes_core import OutcomeUnknown, RateLimited, SendError

if TYPE_CHECKING:
    from hermes_buzz.connection import Answer
    from hermes_buzz.cursors import CursorStore
    from hermes_buzz.keys import Signer
    from hermes_buzz.ownership import OwnerTag
    from hermes_buzz.pacing import Pacing
    from hermes_buzz.settings import BuzzSettings
    from hermes_core import Address, Outbound

REDATE_AFTER = 600
"""Seconds after which the event of a row is dated anew, because the relay refuses dates that are
900 s off. A row's dates are its own date plus multiples of this, so that there are few of them and
each can be looked for."""
MAX_DATES = 200
"""Dates of a row that are looked for: a row lives for a day, which is 144."""
ANSWER_LIMIT = 10.0
"""Seconds to wait for the relay's answer to an event."""
PATIENCE = 20.0
"""Seconds that a call waits for the relay to take frames again; a longer pause is delivery's."""
MAX_TRIES = 4
TARGET_PAUSES = (0.25, 0.5, 1.0)
"""Seconds until the relay is asked again to take a reply to what it has just got."""


class Relay(Protocol):
    """What is needed of a connection."""

    async def publish(self, event: Event, limit: float) -> Answer: ...

    async def authenticated(self, limit: float) -> None: ...

    async def fetch(self, query: dict[str, object]) -> list[Event]: ...


class MissingTarget(Exception):
    """The relay does not have what the event refers to."""


def dates(message: Outbound, now: float) -> list[int]:
    """The dates that the event of a row has had, the one it has now at the end."""
    first = int(message.created_at)
    count = max(0, int(now - message.created_at) // REDATE_AFTER)
    return [first + number * REDATE_AFTER for number in range(count + 1)][-MAX_DATES:]


def anchors(message: Outbound, root: str, settings: BuzzSettings) -> list[list[Tag]]:
    """The tags for what the event refers to, best first: others are for when the relay does not
    take those before. `root` is the root of the thread, "" outside any.

    The first part of an answer, or every part, refers to the message it answers; the others to the
    thread. If that message is gone the answer stays in the thread, if the thread is gone it is said
    at the top level.
    """
    if not root or not settings.threaded:
        return [[]]
    direct = message.part == 1 or settings.reply_to_mode == "all"
    parents = [message.reply_to] if direct and message.reply_to else []
    found: list[list[Tag]] = [
        [*reply_tags(root, parent)] for parent in dict.fromkeys([*parents, root])
    ]
    return [*found, []]


class Composer:
    """Makes the drafts of rows."""

    def __init__(
        self, settings: BuzzSettings, owner: OwnerTag | None, store: CursorStore, me: str
    ) -> None:
        self._settings = settings
        self._store = store
        self._me = me
        self._owner = owner

    def chat(
        self,
        message: Outbound,
        date: int,
        anchor: Sequence[Tag],
        mentions: Sequence[str],
        files: Sequence[Blob],
    ) -> Draft:
        """A message of the channel, referring to what `anchor` names."""
        tags: list[Tag] = [("h", message.address.chat_id), *anchor]
        tags += [("p", key) for key in mentions]
        text = message.text
        for blob in files:
            tags.append(_imeta(blob))
            text += f"\n![]({blob.url})" if blob.type.startswith("image/") else f"\n{blob.url}"
        return self._draft(Kind.CHAT, message, date, tags, text.lstrip("\n"))

    def edit(self, message: Outbound, date: int, target: str, mentions: Sequence[str]) -> Draft:
        """A new text for an earlier message."""
        tags: list[Tag] = [("h", message.address.chat_id), ("e", target)]
        tags += [("p", key) for key in mentions]
        return self._draft(Kind.EDIT, message, date, tags, message.text)

    def reaction(self, address: Address, date: int, target: str, emoji: str) -> Draft:
        """An emoji on a message. The channel is named for relays that do not know it."""
        tags = [("h", address.chat_id), ("e", target)]
        return self._signed_off(Kind.REACTION, date, tags, emoji[:MAX_EMOJI])

    def mentions(self, message: Outbound, names: Callable[[], dict[str, str]]) -> list[str]:
        """Whom the text of a row means. Names are resolved once and kept, since they may change;
        a preview means nobody yet."""
        if message.kind == "preview":
            return []

        def resolve() -> list[str]:
            return [key for key in mentioned(message.text, names()) if key != self._me]

        if "@" not in without_code(message.text):
            return resolve()
        return self._store.frozen_mentions(message.id, resolve)

    def _draft(
        self, kind: Kind, message: Outbound, date: int, tags: Sequence[Tag], text: str
    ) -> Draft:
        return self._signed_off(kind, date, [*tags, (OUTBOX_TAG, message.id)], text)

    def _signed_off(self, kind: Kind, date: int, tags: Sequence[Tag], text: str) -> Draft:
        """With the owner's tag, if it may be on such an event."""
        made = [tuple(tag) for tag in tags]
        if self._owner is not None and self._owner.covers(kind, date):
            made.append(self._owner.tag)
        text = text.encode("utf-8", "replace").decode()
        return Draft(kind=kind, created_at=date, tags=tuple(made), content=text)


class Publisher:
    """Gets one event to the relay, or says what became of it."""

    def __init__(
        self, relay: Relay, signer: Signer, pacing: Pacing, where: str, skew: float | None
    ) -> None:
        self._relay = relay
        self._signer = signer
        self._pacing = pacing
        self._where = where
        self._skew = skew

    async def publish(self, draft: Draft) -> Event:
        """The event, taken by the relay. Raises SendError, or MissingTarget after some patience."""
        event = draft.signed(self._signer)
        for pause in (*TARGET_PAUSES, None):
            answer = await self._answer(event)
            if answer.accepted:
                return event
            if not is_missing_target(answer.reason):
                raise send_error(answer.reason, self._where, self._skew)
            if pause is None:
                raise MissingTarget(answer.reason)
            await asyncio.sleep(pause)
        raise AssertionError

    async def stored(self, message: Outbound, drafts: Sequence[Draft]) -> str:
        """The id of that one of `drafts` which the relay has, "" when it has none. Raises
        RelayError."""
        ids = [draft.id_for(self._signer.public_key) for draft in drafts]
        query: dict[str, object] = {"ids": ids, "#h": [message.address.chat_id]}
        found = {event.id for event in await self._relay.fetch(query)}
        return next((event_id for event_id in ids if event_id in found), "")

    async def _answer(self, event: Event) -> Answer:
        """The relay's last word on an event.

        What was refused for a passing reason, or not answered, is sent again: the same event."""
        timed_out = False
        for _ in range(MAX_TRIES):
            await self._gate()
            try:
                answer = await self._relay.publish(event, ANSWER_LIMIT)
            except TimeoutError:
                if timed_out:
                    break
                timed_out = True
                continue
            except ConnectionDown as error:
                raise OutcomeUnknown(error.what, where=self._where) from error
            if answer.accepted is not None:
                return answer
            if answer.reason.startswith("auth-required"):
                await self._authenticate()
        else:
            raise RateLimited(max(1.0, self._pacing.closed_for), scope="account", where=self._where)
        raise OutcomeUnknown("the relay did not answer", where=self._where)

    async def _gate(self) -> None:
        if self._pacing.closed_for > PATIENCE:
            raise RateLimited(self._pacing.closed_for, scope="account", where=self._where)

    async def _authenticate(self) -> None:
        try:
            await self._relay.authenticated(ANSWER_LIMIT)
        except RelayError as error:
            raise OutcomeUnknown(error.what, where=self._where) from error


def as_send_error(error: RelayError) -> SendError:
    """What delivery has to know of a question that could not be asked."""
    return OutcomeUnknown(error.what, where=error.where, remedy=error.remedy)


def _imeta(blob: Blob) -> tuple[str, ...]:
    facts = [f"url {blob.url}", f"m {blob.type}", f"x {blob.sha256}", f"size {blob.size}"]
    if blob.dim:
        facts.append(f"dim {blob.dim}")
    return ("imeta", *facts)
