"""`hermes chat`."""

from __future__ import annotations

import signal
import sys
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hermes_core.cli.invocation import Invocation
    from hermes_core.home import Home

PATIENCE = 60.0
"""Seconds that a chat without a terminal waits for a gateway that is gone. A restart takes a
few."""


@click.command()
@click.option("-m", "--message", metavar="TEXT", help="Say TEXT, print the reply, leave.")
@click.option(
    "--chat", metavar="NAME", default="main", show_default=True, help="Talk in this chat."
)
@click.option("--profile", metavar="NAME", help="Use the profile NAME.")
@click.pass_obj
def chat(invocation: Invocation, message: str | None, chat: str, profile: str | None) -> int:
    """Talk to the agent.

    On a terminal: Ctrl-C stops the answer that is being written, Ctrl-D leaves. With -m, or with
    lines on the standard input: prints the replies only, one message after the other.
    """
    _leave_in_order()
    who = profile or invocation.profile
    invocation.home.state_dir(who)
    if message is not None:
        if not message.strip():
            raise click.BadParameter("there is nothing to say", param_hint="--message")
        return _piped(invocation.home, who, chat, [message])
    if sys.stdin.isatty() and sys.stdout.isatty():
        return _terminal(invocation.home, who, chat)
    sys.stdin.reconfigure(errors="replace")  # type: ignore[union-attr]
    return _piped(invocation.home, who, chat, sys.stdin)


def _terminal(home: Home, profile: str, chat: str) -> int:
    from hermes_console.background import Background
    from hermes_console.client import Client
    from hermes_console.hosting import attach, some_gateway
    from hermes_console.inbox import Inbox
    from hermes_console.screen import Screen
    from hermes_console.terminal import Interrupt, News, Terminal
    from hermes_console.tty import Keyboard

    news: News = Inbox()
    client = partial(
        Client, partial(attach, home, profile, chat), lambda happening, _: news.put(happening)
    )
    with (
        news,
        Background(partial(some_gateway, home), client, lambda: news.put(None)) as background,
        Keyboard(
            home.state_dir(profile) / "chat-history", lambda: news.put(Interrupt())
        ) as keyboard,
    ):
        Terminal(background, news, Screen(sys.stdout), keyboard).run()
    return 0


def _piped(home: Home, profile: str, chat: str, lines: Iterable[str]) -> int:
    from hermes_console.background import Background
    from hermes_console.client import Client
    from hermes_console.hosting import attach, some_gateway
    from hermes_console.piped import Remarks, converse

    client = partial(
        Client, partial(attach, home, profile, chat), Remarks(sys.stderr).tell, patience=PATIENCE
    )
    with Background(partial(some_gateway, home), client) as background:
        return converse(background, lines, sys.stdout, sys.stderr)


def _leave_in_order() -> None:
    """A gateway in this process is drained also when the terminal is closed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)


def _leave(number: int, _: FrameType | None) -> None:
    sys.exit(128 + number)
