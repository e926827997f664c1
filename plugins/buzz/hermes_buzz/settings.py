"""``[platforms.buzz]``."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

from hermes_buzz import nip19
from hermes_core import Duration, Secret, Settings
from hermes_core.settings import Bounds


class BuzzSettings(Settings):
    """One account: a key pair on one relay.

    `channels` limits the account to these channel ids; empty stands for every channel it is a
    member of. `reply_to_mode` says which parts of an answer refer to the message they answer:
    ``first`` only the first part, the others to the thread; ``all``; or ``off``, and then nothing
    does. ``reply_in_thread = false`` is the same as ``off``. `read_idle` is how long the relay may
    be silent before the connection counts as dead.
    """

    relay_url: str
    private_key: Secret
    auth_tag: str = ""
    channels: tuple[str, ...] = ()
    reply_to_mode: Literal["first", "all", "off"] = "first"
    reply_in_thread: bool = True
    typing: bool = True
    presence: bool = True
    reconcile_every: Annotated[Duration, Bounds(1)] = Duration(300)
    read_idle: Annotated[Duration, Bounds(0.1, 3600)] = Duration(90)

    def __post_init__(self) -> None:
        """Raises ValueError for what can never work, without showing the key."""
        url = urlsplit(self.relay_url)
        if url.scheme not in ("ws", "wss") or not url.hostname:
            raise ValueError("relay_url: expected ws://HOST[:PORT] or wss://HOST[:PORT]")
        if url.username or url.query or url.fragment:
            raise ValueError("relay_url: expected no user, query or fragment")
        try:
            nip19.secret_key(self.private_key.reveal().strip())
        except ValueError as error:
            raise ValueError(f"private_key: {error}") from None
        if self.auth_tag:
            from hermes_buzz import ownership

            try:
                ownership.parse(self.auth_tag)
            except ValueError as error:
                raise ValueError(f"auth_tag: {error}") from None

    @property
    def threaded(self) -> bool:
        """Whether answers refer to what they answer."""
        return self.reply_in_thread and self.reply_to_mode != "off"

    @property
    def http_url(self) -> str:
        """The relay's own origin over HTTP, as the relay itself writes it: lower case, without a
        port that goes without saying and without a slash at the end."""
        url = urlsplit(self.relay_url)
        scheme, port = ("https", ":443") if url.scheme == "wss" else ("http", ":80")
        return f"{scheme}://{url.netloc.lower().removesuffix(port)}"
