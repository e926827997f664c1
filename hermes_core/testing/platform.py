"""A platform without a network: it says what a test tells it to, and records what it is sent."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from hermes_core.hookspecs import hookimpl
from hermes_core.messages import (
    Action,
    Address,
    ChatKind,
    Inbound,
    Message,
    Outbound,
    Receipt,
    Received,
    Sender,
)
from hermes_core.platforms import Adapter, AdapterContext, Channel, Platform
from hermes_core.settings import Settings


class Hang:
    """The result of an outbound call that never returns."""


class StoreThenRaise:
    """The message arrives, and then the call raises `error`."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class After:
    """The message arrives once `event` is set. `begun` is set when the call is made."""

    def __init__(self, event: asyncio.Event) -> None:
        self.event = event
        self.begun = asyncio.Event()


class _Ok:
    """The message arrives."""


OK = _Ok()
Result = _Ok | After | Hang | StoreThenRaise | Exception
"""What becomes of an outbound call. A plain exception is raised before the message arrives."""

Typing = Callable[[Address, bool], Awaitable[None]]
"""What becomes of the sign of typing: where, and whether it is shown or taken away."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """One message that arrived. `call` is how: a new message, or an edit of `message_id`."""

    call: Literal["send", "edit"]
    message_id: str
    message: Outbound


class Empty(Settings):
    """No settings."""


class ScriptedPlatform:
    """A plugin with one platform whose network is a list in memory, and a file if `journal` is
    given.

    `files` has the content of attachments by the path they were sent from. `results` says what
    becomes of the next outbound calls, in order; then they all succeed. `sent` is what arrived,
    previews included. The journal gets one JSON line per arrival, written through before the call
    returns, so that it survives a kill; what it holds at the start has arrived earlier. One that is
    `idempotent` shows a message once however often it is sent; one that `reconciles` can tell
    whether it arrived. In the kinds of chat in `drafts` it shows drafts: `drafted` are their
    texts, `draft_results` what is raised instead. `quoted` are the texts that messages reply to,
    by their ids; `quotes_asked` which were looked up.
    """

    def __init__(
        self,
        name: str = "scripted",
        *,
        edit: bool = False,
        edit_interval: float = 0.001,
        group_edit_interval: float | None = None,
        idempotent: bool = False,
        reconciles: bool = False,
        typing: Typing | None = None,
        max_length: int = 4000,
        length: Callable[[str], int] = len,
        max_attachment: int = 0,
        buttons: bool = False,
        drafts: Collection[ChatKind] = (),
        quoted: Mapping[str, str] | None = None,
        own_id: str = "bot",
        allow_all: bool = True,
        journal: Path | None = None,
    ) -> None:
        self.name = name
        self.idempotent = idempotent
        self.reconciles = reconciles
        self.typing = typing
        self.own_id = own_id
        self.results: deque[Result] = deque()
        self.sent: list[Sent] = []
        self.drafts = drafts
        self.quoted = quoted
        self.quotes_asked: list[str] = []
        self.drafted: list[str] = []
        self.draft_results: deque[Exception] = deque()
        self.attempts: list[Outbound] = []
        self.files: dict[str, bytes] = {}
        self.connects: list[bool] = []
        self.connect_results: deque[Exception] = deque()
        self.journal = journal
        self.allow_all = allow_all
        self._adapters: dict[str, AdapterContext] = {}
        earlier = _read(journal)
        self._known = {sent.message.id: sent.message_id for sent in earlier if sent.call == "send"}
        self._ids = itertools.count(len(earlier) + 1)
        self._events = itertools.count(1)
        self._arrived = asyncio.Event()
        self._read = 0
        self._declared = Platform(
            name,
            _bound_adapter(self),
            Empty,
            max_length=max_length,
            length=length,
            edit=edit,
            edit_interval=edit_interval,
            group_edit_interval=group_edit_interval,
            idempotent=idempotent,
            max_attachment=max_attachment,
            buttons=buttons,
            drafts=drafts,
            implicit=True,
        )

    def forget(self) -> None:
        """Nothing was scripted, sent or tried yet: the network is new."""
        self.results.clear()
        self.sent.clear()
        self.attempts.clear()
        self.connects.clear()
        self.connect_results.clear()
        self._known.clear()
        self._read = 0

    @hookimpl
    def platforms(self) -> list[Platform]:
        return [self._declared]

    @hookimpl
    def authorize(self) -> bool | None:
        return True if self.allow_all else None

    # ── what people do ───────────────────────────────────────────────────────────────────────────

    def address(
        self,
        chat: str = "c1",
        *,
        kind: ChatKind = "dm",
        thread: str | None = None,
        account: str = "default",
    ) -> Address:
        return Address(
            platform=self.name, account=account, chat_id=chat, thread_id=thread, kind=kind
        )

    async def say(
        self,
        text: str,
        *,
        user: str = "u1",
        chat: str = "c1",
        kind: ChatKind = "dm",
        thread: str | None = None,
        event_id: str | None = None,
        account: str = "default",
        mentions_me: bool = True,
    ) -> Received:
        """Let a person say something. Returns what `receive` returned, or raises what it raised."""
        event = Message(
            address=self.address(chat, kind=kind, thread=thread, account=account),
            sender=Sender(id=user, name=user.upper()),
            event_id=f"e{next(self._events)}" if event_id is None else event_id,
            text=text,
            mentions_me=mentions_me,
        )
        return await self.inject(event)

    async def press(
        self,
        value: str,
        *,
        message_id: str,
        user: str = "u1",
        chat: str = "c1",
        kind: ChatKind = "dm",
    ) -> Received:
        """Let a person press a button."""
        event = Action(
            address=self.address(chat, kind=kind),
            sender=Sender(id=user, name=user.upper()),
            event_id=f"e{next(self._events)}",
            message_id=message_id,
            value=value,
        )
        return await self.inject(event)

    async def inject(self, event: Inbound) -> Received:
        """Hand any event to the core, as the adapter of its account, connected or not."""
        return await self._adapters[event.address.account].receive(event)

    async def migrate(self, old: str, new: str, account: str = "default") -> None:
        """Let the network say that a chat has another id now."""
        await self._adapters[account].migrated(old, new)

    def lose_connection(self, error: Exception | None = None, account: str = "default") -> None:
        self._adapters[account].lost(error or ConnectionError("scripted"))

    # ── what people see ──────────────────────────────────────────────────────────────────────────

    def texts(self, chat: str | None = None) -> list[str]:
        """What stands in the chat now: messages in order, each with its last edit; no previews."""
        screen: dict[str, Sent] = {}
        for sent in self.sent:
            if chat is None or sent.message.address.chat_id == chat:
                screen[sent.message_id] = sent
        return [sent.message.text for sent in screen.values() if sent.message.kind != "preview"]

    async def next_text(self) -> str:
        """Wait for the next text that is no preview, and return it."""
        return (await self.next_sent()).message.text

    async def next_sent(self) -> Sent:
        """Wait for the next arrival that is no preview."""
        while True:
            while self._read < len(self.sent):
                sent = self.sent[self._read]
                self._read += 1
                if sent.message.kind != "preview":
                    return sent
            await self.change()

    async def change(self) -> None:
        """Wait until something more arrives."""
        self._arrived.clear()
        await self._arrived.wait()

    # ── the network's side of the adapter ────────────────────────────────────────────────────────

    def made(self, context: AdapterContext) -> None:
        """An adapter was made for an account."""
        self._adapters[context.account] = context

    def connected(self, is_reconnect: bool) -> str:
        self.connects.append(is_reconnect)
        if self.connect_results:
            raise self.connect_results.popleft()
        return self.own_id

    async def outbound(
        self, call: Literal["send", "edit"], message_id: str, message: Outbound
    ) -> Receipt:
        """One outbound call, with its scripted result."""
        self.attempts.append(message)
        result = self.results.popleft() if self.results else OK
        if isinstance(result, Exception):
            raise result
        if isinstance(result, Hang):
            await asyncio.get_running_loop().create_future()
        if isinstance(result, After):
            result.begun.set()
            await result.event.wait()
        message_id = self._show(call, message_id, message)
        if isinstance(result, StoreThenRaise):
            raise result.error
        return Receipt(message_id=message_id)

    def draft(self, message: Outbound) -> None:
        """A draft is shown, or is not."""
        if self.draft_results:
            raise self.draft_results.popleft()
        self.drafted.append(message.text)
        self._arrived.set()

    def quote(self, message_id: str) -> str:
        """The text of an earlier message. Raises KeyError for one that nobody knows."""
        self.quotes_asked.append(message_id)
        assert self.quoted is not None
        return self.quoted[message_id]

    async def found(self, message: Outbound) -> Receipt | None:
        """What became of an earlier call."""
        known = self._known.get(message.id)
        return None if known is None else Receipt(message_id=known)

    def _show(self, call: Literal["send", "edit"], message_id: str, message: Outbound) -> str:
        """Let a message arrive. Its id."""
        if call == "send":
            if self.idempotent and message.id in self._known:
                return self._known[message.id]
            message_id = self._known[message.id] = f"m{next(self._ids)}"
        sent = Sent(call=call, message_id=message_id, message=message)
        self.sent.append(sent)
        for file in message.attachments:
            self.files[file.path] = Path(file.path).read_bytes()
        if self.journal is not None:
            _append(self.journal, sent)
        self._arrived.set()
        return message_id

    async def serve(self, context: AdapterContext, channel: Channel) -> None:
        """A local client may inject events: each frame is one, each answer what `receive`
        returned."""
        while (frame := await channel.receive()) is not None:
            event = Message(
                address=context.address(str(frame.get("chat", "c1"))),
                sender=Sender(id=str(frame.get("user", "u1"))),
                event_id=str(frame.get("event_id", "")),
                text=str(frame.get("text", "")),
            )
            outcome = msgspec.to_builtins(await context.receive(event))
            await channel.send({"outcome": outcome})


def _bound_adapter(platform: ScriptedPlatform) -> type[Adapter[Empty]]:
    class ScriptedAdapter(Adapter[Empty]):
        def __init__(self, settings: Empty, context: AdapterContext) -> None:
            super().__init__(settings, context)
            platform.made(context)

        @hookimpl
        async def connect(self, is_reconnect: bool) -> str:
            return platform.connected(is_reconnect)

        @hookimpl
        async def disconnect(self) -> None:
            pass

        @hookimpl
        async def send(self, message: Outbound) -> Receipt:
            return await platform.outbound("send", "", message)

        @hookimpl
        async def edit(self, message_id: str, message: Outbound) -> Receipt:
            return await platform.outbound("edit", message_id, message)

        @hookimpl
        async def attach(self, channel: Channel) -> None:
            await platform.serve(self.context, channel)

    return type("ScriptedAdapter", (ScriptedAdapter,), _optional_hooks(platform))


def _optional_hooks(platform: ScriptedPlatform) -> dict[str, object]:
    """The adapter hooks that a platform has only when a test wants them."""

    async def reconcile(_: object, message: Outbound) -> Receipt | None:
        return await platform.found(message)

    async def draft(_: object, message: Outbound) -> None:
        platform.draft(message)

    async def quote(_: object, message_id: str) -> str:
        return platform.quote(message_id)

    async def set_typing(_: object, address: Address, active: bool) -> None:
        assert platform.typing is not None
        await platform.typing(address, active)

    hooks = (
        (platform.reconciles, reconcile),
        (platform.drafts, draft),
        (platform.quoted is not None, quote),
        (platform.typing is not None, set_typing),
    )
    return {hook.__name__: hookimpl(hook) for wanted, hook in hooks if wanted}


def _read(journal: Path | None) -> list[Sent]:
    if journal is None or not journal.exists():
        return []
    return [msgspec.json.decode(line, type=Sent) for line in journal.read_bytes().splitlines()]


def _append(journal: Path, record: Any) -> None:
    line = msgspec.json.encode(record) + b"\n"
    descriptor = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
