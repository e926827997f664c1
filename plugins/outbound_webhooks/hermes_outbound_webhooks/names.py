"""The events that a target can ask for, and the names the established system has for them."""

from __future__ import annotations

import difflib

from hermes_core import NOTIFY_HOOKS

EVENTS: tuple[str, ...] = tuple(name for name in NOTIFY_HOOKS if name != "on_housekeeping")
"""Every notify hook but the one that tells of nothing that happened."""

ALIASES = {"post_tool_call": "on_tool_call_end", "subagent_stop": "on_subagent_end"}
"""Names of the established system, and the hooks that take their place."""

TOOL_EVENTS = frozenset({"on_tool_call_end"})
"""The events that a `matcher` chooses among."""

TEST = "test"
"""The event of ``hermes webhooks test``. No target has to ask for it."""


def hook_of(event: str) -> str:
    """The hook behind an event's name in the settings. Raises ValueError with the near miss."""
    hook = ALIASES.get(event, event)
    if hook in EVENTS:
        return hook
    close = difflib.get_close_matches(event, [*EVENTS, *ALIASES], n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"there is no event {event!r:.60}{hint}")
