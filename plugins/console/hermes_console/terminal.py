"""The chat on a terminal: a prompt, then the answer as it is written, then the prompt again."""

from __future__ import annotations

import concurrent.futures
from typing import TypeAlias

from hermes_console.background import Background
from hermes_console.client import Happening, Lost
from hermes_console.inbox import Inbox
from hermes_console.protocol import Attached, Write
from hermes_console.question import Reply
from hermes_console.screen import Screen
from hermes_console.tty import Keyboard

PROMPT = "> "
ENOUGH = 2
"""Ctrl-C once cancels the turn, twice stops waiting for it."""

News: TypeAlias = Inbox[Happening | None]
"""What happened; None when there is something else to look at (a reply is there, the client has
ended)."""


class Terminal:
    """Lets a person talk until Ctrl-D. All of it runs in the main thread."""

    def __init__(
        self, background: Background, news: News, screen: Screen, keyboard: Keyboard
    ) -> None:
        self._background = background
        self._news = news
        self._screen = screen
        self._keyboard = keyboard
        self._lost = False

    def run(self) -> None:
        """Raises HermesError when the gateway refuses this client."""
        while (line := self._line()) is not None:
            if line.strip():
                self._ask(line)

    def _line(self) -> str | None:
        """The next line, None when there are no more. What happens meanwhile is shown above it."""
        while True:
            self._show_news()
            self._screen.prompt(PROMPT)
            try:
                if self._news.wait(self._keyboard.descriptor):
                    self._screen.erase(PROMPT)
                    continue
                self._screen.erase(PROMPT)
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
            try:
                self._news.wait()
                self._show_news()
            except KeyboardInterrupt:
                interrupts += 1
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

    def _show_news(self) -> None:
        for happening in self._news.take():
            match happening:
                case Write():
                    self._screen.written(happening)
                case Lost():
                    self._lost = True
                    self._screen.note("the gateway is gone; waiting for it to come back")
                case Attached() if self._lost:
                    self._lost = False
                    self._screen.note("the gateway is back")
        self._background.check()
