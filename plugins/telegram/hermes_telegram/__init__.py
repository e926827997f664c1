"""Telegram as a chat platform. Light to import: the client is loaded when an account connects."""

from __future__ import annotations

from hermes_core import Platform, hookimpl, utf16_length
from hermes_telegram.adapter import TelegramAdapter
from hermes_telegram.settings import TelegramSettings

MAX_TEXT = 4096
"""UTF-16 code units of one message (Bot API, sendMessage: 1-4096 characters after parsing)."""
MAX_FILE = 50_000_000
"""Bytes of a file that a bot sends (Bot API, Sending files). A picture of more than 10 MB goes as a
document."""
RATE = 30.0
"""Messages per second of one bot, from Telegram's FAQ for bots."""
CHAT_RATE = 1.0
"""Messages per second in one chat, from the same place."""
EDIT_INTERVAL = 1.5
"""Seconds between two edits of a preview: edits share the chat's rate with messages."""
GROUP_EDIT_INTERVAL = 4.0
"""The same in a group, which takes 20 messages a minute from a bot (the same FAQ): there has to be
room for the answer itself, or it waits for half a minute."""


def declare(adapter: type[TelegramAdapter] = TelegramAdapter, *, previews: bool = True) -> Platform:
    """The platform, spoken by `adapter`. With `previews`, answers grow by edits."""
    return Platform(
        name="telegram",
        adapter=adapter,
        settings=TelegramSettings,
        max_length=MAX_TEXT,
        length=utf16_length,
        edit=previews,
        edit_interval=EDIT_INTERVAL,
        group_edit_interval=GROUP_EDIT_INTERVAL,
        max_attachment=MAX_FILE,
        rate=RATE,
        chat_rate=CHAT_RATE,
        buttons=True,
        drafts=["dm"] if previews else [],
        hint=(
            "Telegram shows Markdown: bold, italic, strikethrough, links, quotes, code with a"
            " language. Tables are shown as they are written; images are links."
        ),
    )


@hookimpl
def platforms() -> list[Platform]:
    """The one platform of this plugin."""
    return [declare()]
