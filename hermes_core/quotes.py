"""What a message replies to: fetched after the grant, for an agent that was not told of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec

from hermes_core.messages import Address, Message
from hermes_core.store import inbox
from hermes_core.store.database import connection_of
from hermes_core.text import clean

if TYPE_CHECKING:
    from hermes_core.store import Store

log = logging.getLogger(__name__)

MAX_QUOTE = 4000
"""Characters of a quote that an agent is given."""


class Source(Protocol):
    """The account that a message came from."""

    @property
    def quotes(self) -> bool:
        """Whether it can look an earlier message up."""

    async def quote(self, address: Address, message_id: str) -> str: ...


class Quotes:
    """The quotes of one profile's messages."""

    def __init__(self, store: Store, source: Callable[[str], Source | None]) -> None:
        """`source` finds an account by its key."""
        self._store = store
        self._source = source

    async def of(self, event: Message, session_key: str, generation: int) -> Message:
        """The message with the text that it replies to, if its session has not been told that
        already. Without it when it cannot be had: it never costs the message."""
        source = self._source(event.address.account_key)
        if event.quoted or not event.reply_to or source is None or not source.quotes:
            return event
        try:
            if await self._was_told(event.address, event.reply_to, session_key, generation):
                return event
            text = await source.quote(event.address, event.reply_to)
        except Exception as error:
            log.info(
                "what a message replies to could not be looked up: %s",
                error,
                extra={"account": event.address.account_key},
            )
            return event
        return msgspec.structs.replace(event, quoted=clean(text)[:MAX_QUOTE])

    async def _was_told(
        self, address: Address, message_id: str, session_key: str, generation: int
    ) -> bool:
        chat = address.account_key, address.chat_id
        return await self._store.read(
            lambda database: inbox.has_message(
                connection_of(database), chat, message_id, session_key, generation
            )
        )
