"""The terminal as a chat platform. `hermes chat` is its client."""

from __future__ import annotations

import os

from hermes_console.adapter import ConsoleAdapter, ConsoleSettings, turn_ended
from hermes_console.protocol import MAX_TEXT, frame_length
from hermes_core import Address, Platform, ProfileScope, Sender, TurnEnd, hookimpl


@hookimpl
def platforms() -> list[Platform]:
    """The one platform of this plugin, there without settings."""
    return [
        Platform(
            name="console",
            adapter=ConsoleAdapter,
            settings=ConsoleSettings,
            max_length=MAX_TEXT,
            length=frame_length,
            edit=True,
            edit_interval=0.05,
            idempotent=True,
            implicit=True,
            hint="Plain text on a terminal.",
        )
    ]


@hookimpl
def authorize(sender: Sender, address: Address) -> bool | None:
    """The operating-system user that runs the gateway may speak."""
    return True if address.platform == "console" and sender.id == str(os.getuid()) else None


@hookimpl
async def on_turn_end(scope: ProfileScope, turn: TurnEnd) -> None:
    """Whoever waits for an answer is told when none will come."""
    await turn_ended(scope, turn)
