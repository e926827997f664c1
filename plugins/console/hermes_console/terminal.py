"""The chat on a terminal: a prompt, then the answer as it is written, then the prompt again."""

from __future__ import annotations

import concurrent.futures
from typing import TypeAlias

from hermes_console.background import Background
from hermes_console.client import Delayed, Happening, Lost
from hermes_console.inbox import Inbox
from hermes_console.protocol import Attached, Write
from hermes_console.question import Reply
from hermes_console.screen import Screen
from hermes_console.tty import Keyboard

PROMPT = "> "
ENOUGH = 2
"""Ctrl-C once cancels the turn, twice stops waiting for it."""


class Interrupt:
    """Ctrl-C, anywhere but in a line that is being typed."""


News: TypeAlias = Inbox[Happening | Interrupt | None]
"""What happened; None when there is something else to look at (a reply, the client's end)."""


class Terminal:
    """Lets a person talk until Ctrl-D. All of it runs in the main thread."""

    def __init__(
        self, background: Background, news: News, screen: Screen, keyboard: Keyboard
    ) -> None:
        self._background = background
        self._news = news
        self._screen = screen
        self._keyboard = keyboard
        self._attached = False
        self._lost = False

    def run(self) -> None:
        """Raises HermesError when the gateway refuses this client, KeyboardInterrupt for Ctrl-C
        before there is one."""
        while not self._attached:
            self._news.wait()
            if self._show_news():
                raise KeyboardInterrupt
        while (line := self._line()) is not None:
            if line.strip():
                self._ask(line)

    def _line(self) -> str | None:
        """The next line, None when there are no more. What happens meanwhile is shown above it."""
        while True:
            self._screen.prompt(PROMPT)
            happened = self._news.wait(self._keyboard.descriptor)
            self._screen.erase(PROMPT)
            if happened:
                self._show_news()
                continue
            try:
                return self._keyboard.line(PROMPT)
            except KeyboardInterrupt:
                self._screen.line_break()
            except EOFError:
                self._screen.line_break()
                return None

    def _ask(self, text: str) -> None:
        """Send a message and show what comes until it is answered."""
        asking = self._background.ask(text)
        asking.add_done_callback(lambda _: self._news.put(None))
        interrupts = 0
        while not asking.done() and interrupts < ENOUGH:
            self._news.wait()
            if pressed := self._show_news():
                interrupts += pressed
                self._background.cancel()
        self._show_news()
        if asking.done():
            self._close(asking)
        else:
            self._screen.note("not waiting for the answer any more")

    def _close(self, asking: concurrent.futures.Future[Reply]) -> None:
        reply = asking.result()
        if reply.end in ("denied", "unsent"):  # of all other ends the gateway has told
            self._screen.note(reply.text)
        self._screen.end_line()

    def _show_news(self) -> int:
        """Show what happened. Returns how often Ctrl-C was pressed."""
        interrupts = 0
        for happening in self._news.take():
            match happening:
                case Write():
                    self._screen.written(happening)
                case Lost():
                    self._lost = True
                    self._screen.note(
                        "the gateway does not answer; waiting for it, or for a new `hermes run`"
                    )
                case Delayed(reason=reason):
                    self._screen.note(f"the gateway takes nothing in, waiting for it: {reason}")
                case Attached():
                    self._attached = True
                    if self._lost:
                        self._screen.note("the gateway is back")
                    self._lost = False
                case Interrupt():
                    interrupts += 1
        self._background.check()
        return interrupts
