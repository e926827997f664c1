"""What ``[platforms.telegram]`` may say, and the times that nobody has to set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from hermes_core import Secret, Settings


class TelegramSettings(Settings):
    """One bot.

    `base_url` is the root of a Bot API server, `local_files` the directory that one of our own
    shares with us; nothing outside of it is read. `proxy` is an ``http://`` or ``socks5://``
    address, `proxy_auth` is ``user:password`` for it. `pending` says what becomes of the messages
    that waited before a cold start. With `drafts`, an answer in a private chat is shown as a draft
    while it is written. With a `webhook_url`, Telegram calls us there instead of being asked;
    requests arrive at `webhook_listen` (``host:port``), behind whatever ends TLS.
    """

    token: Secret
    base_url: str = "https://api.telegram.org"
    local_files: str = ""
    proxy: str = ""
    proxy_auth: Secret | None = None
    pending: Literal["keep", "drop"] = "keep"
    link_previews: bool = True
    drafts: bool = True
    webhook_url: str = ""
    webhook_listen: str = "127.0.0.1:8443"


@dataclass(frozen=True)
class Timing:
    """Every pause of the adapter, in seconds. Tests make them short, or replace `sleep`."""

    poll: int = 30
    """How long Telegram may hold a question for updates open; it allows 50."""
    slack: float = 10.0
    """What a question may take beyond that before its connection counts as dead."""
    patience: float = 90.0
    """Without a completed round trip for so long the account counts as lost. Above `poll` and
    `slack` together, so that one dead connection is survived."""
    first_pause: float = 1.0
    """After a failure; twice as long each time, up to `longest_pause`."""
    longest_pause: float = 30.0
    hold: float = 0.25
    """Between two questions while some updates are not taken in yet: an album that may grow."""
    album: float = 1.0
    """How long an album must have been quiet to be whole. Telegram sends its parts one by one."""
    answer: float = 50.0
    """A webhook request is answered within this; Telegram gives up after about 60."""
    goodbye: float = 3.0
    """Each step of disconnecting may take this, whatever state the connection is in."""
    watch: float = 300.0
    """Between two looks at the bot's name, and at the webhook if there is one."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
