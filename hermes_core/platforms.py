"""What a platform author writes: a `Platform` that declares, and an `Adapter` that speaks.

See `hookspecs.py` for the adapter hooks and `docs/plugins.md` for the manual.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from hermes_core.messages import Address, ChatKind, Inbound, Received
from hermes_core.settings import Settings

if TYPE_CHECKING:
    from hermes_core.profiles import ProfileScope

SettingsT = TypeVar("SettingsT", bound=Settings)


class AdapterContext(Protocol):
    """What the core gives to one adapter. Everything in it is bound to the adapter's own
    account."""

    @property
    def scope(self) -> ProfileScope:
        """The profile that the account belongs to."""

    @property
    def platform(self) -> str: ...

    @property
    def account(self) -> str: ...

    def address(
        self, chat_id: str, *, kind: ChatKind = "dm", thread_id: str | None = None
    ) -> Address:
        """An address on this account."""

    async def receive(self, inbound: Inbound) -> Received:
        """Hand an event to the core. Returns when its fate is committed; only then acknowledge it.

        Raises `NotReady` when it was not taken in: do not acknowledge, stop taking in, offer it
        again. Calls for one chat are admitted in the order they were made.
        """

    def reachable(self, chat_id: str) -> None:
        """A chat that was `Unreachable` can be reached again: deliver what waits for it."""

    async def migrated(self, old_chat_id: str, new_chat_id: str) -> None:
        """The network has given a chat that many people share another id. Its sessions, what waits
        and what is to be sent go on under the new one, and whoever could speak in the old one can
        speak there. Returns when that is committed; saying it again does nothing.

        Say it only on the network's own word about that very chat, never on what a person says:
        permissions follow it. Raises `NotReady` when it was not taken in: say it again later.
        """

    def lost(self, error: Exception) -> None:
        """The connection is gone. The core calls `disconnect` and later
        `connect(is_reconnect=True)`."""


class Adapter(Generic[SettingsT]):
    """The object that speaks the network's protocol for one account.

    Subclass it and mark methods that implement adapter hooks with ``@hookimpl``; `connect` and
    `send` are required. The core makes one instance per account and never shares it.
    """

    def __init__(self, settings: SettingsT, context: AdapterContext) -> None:
        self.settings = settings
        self.context = context


class Channel(Protocol):
    """A local client that is attached to an adapter through the control socket: JSON objects both
    ways."""

    @property
    def peer_uid(self) -> int:
        """The operating-system user at the other end, as the kernel states it."""

    @property
    def parameters(self) -> Mapping[str, object]:
        """What the client asked for when it attached."""

    async def send(self, frame: Mapping[str, object]) -> None:
        """Raises ConnectionError when the client is gone."""

    async def receive(self) -> dict[str, object] | None:
        """The next object, or None when the client is gone."""


def utf16_length(text: str) -> int:
    """Length in UTF-16 code units, as Telegram and Discord count it."""
    return len(text) + sum(ch > "\uffff" for ch in text)


@dataclass(frozen=True, init=False)
class Platform:
    """A kind of chat network, as declared by the `platforms` hook. Delivery decides from these
    facts.

    `max_length` is the longest text of one message, measured by `length`, a number from 0 on for
    any text; where it fails, UTF-8 bytes are counted instead, and the failure to the plugin.
    `edit` allows streaming by edits, at most one per `edit_interval` seconds, or per
    `group_edit_interval` where more than two people may read, if it is another; in the kinds of
    chat that `drafts` names, by drafts if those work. `idempotent` says that sending the same
    `Outbound.id` twice shows one message. `rate` and `chat_rate` are messages per second for the
    whole account and for one chat, None for no limit. `buttons` says that those of an `Outbound`
    are shown, and that pressing one comes in as an `Action`. `hint` is text for agents about what
    the platform can show.
    """

    name: str
    adapter: type[Adapter[Settings]]
    settings: type[Settings]
    max_length: int
    length: Callable[[str], int]
    edit: bool
    edit_interval: float
    group_edit_interval: float | None
    idempotent: bool
    rate: float | None
    chat_rate: float | None
    max_attachment: int
    buttons: bool
    drafts: frozenset[ChatKind]
    implicit: bool
    hint: str

    def __init__(
        self,
        name: str,
        adapter: type[Adapter[SettingsT]],
        settings: type[SettingsT],
        *,
        max_length: int,
        length: Callable[[str], int] = len,
        edit: bool = False,
        edit_interval: float = 1.0,
        group_edit_interval: float | None = None,
        idempotent: bool = False,
        rate: float | None = None,
        chat_rate: float | None = None,
        max_attachment: int = 0,
        buttons: bool = False,
        drafts: Collection[ChatKind] = (),
        implicit: bool = False,
        hint: str = "",
    ) -> None:
        """`implicit` platforms need no section in the settings: an account exists as soon as the
        plugin is installed. For local platforms only."""
        values = {key: value for key, value in locals().items() if key != "self"}
        values["drafts"] = frozenset(drafts)
        for key, value in values.items():
            object.__setattr__(self, key, value)
