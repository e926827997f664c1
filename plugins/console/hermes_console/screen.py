"""What a growing, corrected and repeated text looks like on a terminal that only goes forward."""

from __future__ import annotations

from collections import OrderedDict
from typing import TextIO

from hermes_console.protocol import Write

REMEMBERED = 100
"""Messages that are recognised when they come again or change."""

_CONTROL = dict.fromkeys((*range(0x20), 0x7F, *range(0x80, 0xA0)), "\N{REPLACEMENT CHARACTER}")
_HARMLESS: dict[int, str | None] = {**_CONTROL, ord("\t"): "\t", ord("\n"): "\n", ord("\r"): None}


class Screen:
    """Writes texts to `out`. A text that grows is continued; any other change is written anew."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._seen: OrderedDict[str, str] = OrderedDict()
        self._open = ""  # the message whose line is not ended yet
        self._broken_off = False  # by a line that a person typed; it goes on below

    @property
    def writing(self) -> bool:
        """Whether a text is there that has not come to its end."""
        return bool(self._open)

    def written(self, text: Write) -> None:
        """Show a message of the chat, or what is new of it."""
        name = text.replaces or text.id
        visible = text.text.translate(_HARMLESS)
        before = self._seen.get(name)
        if name == self._open and before is not None and visible.startswith(before):
            self._out.write(visible[len(before) :])
            self._broken_off = self._broken_off and visible == before
        elif visible != before:
            self.end_line()
            self._out.write(visible)
            self._open = name
        self._remember(name, visible)
        if text.kind != "preview":
            self.end_line()
        self._out.flush()

    def note(self, text: str) -> None:
        """A remark of the program itself."""
        self.end_line()
        self._out.write(f"({text.translate(_HARMLESS)})\n")
        self._out.flush()

    def prompt(self, prompt: str) -> None:
        """Show the prompt, until it is erased. Nothing for an empty one."""
        if prompt:
            self.end_line()
            self._out.write(prompt)
            self._out.flush()

    def erase(self, prompt: str) -> None:
        """Take the prompt away again. It is all that the line holds."""
        if prompt:
            self._out.write(f"\r{' ' * len(prompt)}\r")
            self._out.flush()

    def break_off(self) -> None:
        """A person begins to type: the text that is being written goes on below."""
        if self._open and not self._broken_off:
            self._out.write("\n")
            self._out.flush()
            self._broken_off = True

    def line_break(self) -> None:
        """Leave the line that was being typed."""
        self._out.write("\n")
        self._out.flush()

    def end_line(self) -> None:
        """Whatever comes next begins a line."""
        if self._open and not self._broken_off:
            self._out.write("\n")
        self._open, self._broken_off = "", False

    def _remember(self, name: str, visible: str) -> None:
        self._seen[name] = visible
        self._seen.move_to_end(name)
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
