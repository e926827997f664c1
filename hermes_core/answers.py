"""What an agent says during one run, gathered into one answer."""

from __future__ import annotations

from dataclasses import dataclass, field

from hermes_core.messages import (
    AgentEvent,
    Attach,
    Commentary,
    Final,
    Text,
    ToolStart,
    Usage,
)

MAX_ANSWER = 4_000_000
"""Characters of one answer at most. A run that says more is ended: it is a loop, not an answer."""
MAX_ATTACHMENTS = 20
"""Files of one answer at most."""
SILENCE = frozenset({"[SILENT]", "NO_REPLY"})
"""An agent that says just this chose to say nothing. Nothing is sent."""
_SHORT = 100
"""Characters, space around included, that may still become silence."""


class TooMuch(Exception):
    """The answer passed `MAX_ANSWER`."""


@dataclass
class Answer:
    """The state of an answer. `text` is what a person should have seen when the run ends well,
    `status` what the agent does at the moment, in words."""

    pieces: list[str] = field(default_factory=list)
    final: str | None = None
    usage: Usage = field(default_factory=Usage)
    said: int = 0
    status: str = ""
    attachments: list[Attach] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.final if self.final is not None else "".join(self.pieces)

    @property
    def visible(self) -> str:
        """What may be shown of it while it is written: nothing of what may yet become silence."""
        text = self.text
        begun = text.strip() if len(text) < _SHORT else text
        return "" if any(token.startswith(begun) for token in SILENCE) else text

    def apply(self, event: AgentEvent) -> bool:
        """Take one event in. True when the visible text changed."""
        if isinstance(event, Text):
            return self._add(event.text)
        if isinstance(event, Final):
            self.final = event.text
            return True
        if isinstance(event, Usage):
            self.usage = event
        elif isinstance(event, Attach):
            self.attachments = [*self.attachments, event][:MAX_ATTACHMENTS]
        elif isinstance(event, Commentary):
            self.status = event.text
        elif isinstance(event, ToolStart):
            self.status = f"Using {event.name} …"
        return False

    def _add(self, text: str) -> bool:
        self.pieces.append(text)
        self.said += len(text)
        if self.said > MAX_ANSWER:
            raise TooMuch
        return self.final is None and bool(text)
