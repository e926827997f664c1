"""The agent `command`. What it takes to run a program is loaded with the first turn."""

from __future__ import annotations

from collections.abc import AsyncIterator

from hermes_command.settings import CommandSettings
from hermes_core import Agent, AgentEvent, Turn


class CommandAgent(Agent[CommandSettings]):
    """Runs the program of its settings once for every turn."""

    def run(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        """Give the turn to the program and yield what it says.

        Raises AgentError when it cannot be started, fails, says too much or takes too long.
        """
        # asyncio and subprocess: not for a command that only lists what plugins declare.
        from hermes_command.program import answer

        return answer(self.settings, turn)
