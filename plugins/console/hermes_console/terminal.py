"""The chat on a terminal: a prompt, then the answer as it is written, then the prompt again.

A line may be typed while an answer is written: as soon as a person begins, the answer rests, and
goes on below the line once it is said. So no two hands ever write on one line.
"""

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
        self._asked: list[concurrent.futures.Future[Reply]] = []
        self._interrupts = 0
        self._leaving = False
        self._attached = False
        self._lost = False

    def run(self) -> None:
        """Raises HermesError when the gateway refuses this client, KeyboardInterrupt for Ctrl-C
        before there is one."""
        while not self._attached:
            self._news.wait()
            if self._show_news():
                raise KeyboardInterrupt
        while self._asked or not self._leaving:
            if self._key_was_pressed():
                self._read()
            else:
                self._listen()

    def _key_was_pressed(self) -> bool:
        """Wait until a person begins to type; False when something else happened first. There is a
        prompt unless an answer is being written, but a line may be typed at any time."""
        prompt = "" if self._asked or self._screen.writing else PROMPT
        self._screen.prompt(prompt)
        keys = () if self._leaving else (self._keyboard.descriptor,)
        happened = self._news.wait(*keys)
        self._screen.erase(prompt)
        return not happened

    def _read(self) -> None:
        """Let a person type a line, and say it. What happens meanwhile is shown after it."""
        self._screen.break_off()
        try:
            line = self._keyboard.line(PROMPT)
        except KeyboardInterrupt:
            self._screen.line_break()
        except EOFError:
            self._screen.line_break()
            self._leaving = True
        else:
            if line.strip():
                asking = self._background.ask(line)
                asking.add_done_callback(lambda _: self._news.put(None))
                self._asked.append(asking)

    def _listen(self) -> None:
        """Show what happened. Ctrl-C cancels the turn, then stops waiting for it."""
        pressed = self._show_news()
        if pressed and self._asked:
            self._interrupts += pressed
            self._background.cancel()
        if done := [asking for asking in self._asked if asking.done()]:
            self._show_news()  # what came before the replies
            for asking in done:
                self._asked.remove(asking)
                self._close(asking)
        if self._asked and self._interrupts >= ENOUGH:
            self._asked.clear()
            self._screen.note("not waiting for the answer any more")
        if not self._asked:
            self._interrupts = 0

    def _close(self, asking: concurrent.futures.Future[Reply]) -> None:
        reply = asking.result()
        if reply.end in ("denied", "silent", "unsent"):  # of all other ends the gateway has told
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
