"""An agent that runs a program for every turn: messages on stdin, the answer from stdout."""

from __future__ import annotations

from hermes_command.agent import CommandAgent
from hermes_command.settings import CommandSettings
from hermes_core import AgentType, Check, ProfileScope, hookimpl

__all__ = ["CommandAgent", "CommandSettings", "agents", "doctor_checks"]


@hookimpl
def agents() -> list[AgentType]:
    """The one agent of this plugin, `command`."""
    return [AgentType(name="command", agent=CommandAgent, settings=CommandSettings)]


@hookimpl
def doctor_checks(scope: ProfileScope) -> list[Check]:
    """Look whether the program is there that the profile's settings name."""
    from hermes_command.checks import checks

    return checks(scope)
