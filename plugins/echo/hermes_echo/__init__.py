"""An agent that answers with what it was told: no key, no network, and a few words that show how
the gateway behaves."""

from __future__ import annotations

from hermes_core import AgentType, hookimpl
from hermes_echo.agent import EchoAgent, EchoSettings

__all__ = ["EchoAgent", "EchoSettings", "agents"]


@hookimpl
def agents() -> list[AgentType]:
    """The one agent of this plugin, `echo`."""
    return [AgentType(name="echo", agent=EchoAgent, settings=EchoSettings)]
