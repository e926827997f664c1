"""Buzz as a chat platform: channels and direct messages on a Nostr relay."""

from __future__ import annotations

from hermes_buzz.adapter import BuzzAdapter
from hermes_buzz.settings import BuzzSettings
from hermes_core import Platform, hookimpl

MAX_LENGTH = 30_000
"""Bytes of text in one event. The relay takes 64 KiB of content; older ones cut the connection at
a frame of that size, in which JSON may double a text."""


MAX_UPLOAD = 50 << 20
"""Bytes of a file that is sent: what the relay takes of an image."""


def utf8_length(text: str) -> int:
    """Length in bytes, as the relay counts."""
    return len(text.encode("utf-8", "surrogatepass"))


def platform(adapter: type[BuzzAdapter] = BuzzAdapter) -> Platform:
    """The platform, spoken by `adapter`."""
    return Platform(
        name="buzz",
        adapter=adapter,
        settings=BuzzSettings,
        max_length=MAX_LENGTH,
        length=utf8_length,
        edit=True,
        edit_interval=2.0,
        idempotent=True,
        rate=1.0,
        max_attachment=MAX_UPLOAD,
        hint=(
            "Buzz shows Markdown. Mention people as @Name or nostr:npub1…; "
            "inside code nobody is mentioned."
        ),
    )


@hookimpl
def platforms() -> list[Platform]:
    """The one platform of this plugin."""
    return [platform()]
