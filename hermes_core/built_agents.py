"""The agents of one profile: each is built once, when it is first needed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hermes_core.errors import ConfigError, HermesError

if TYPE_CHECKING:
    from hermes_core.agents import Agent
    from hermes_core.plugins import Hooks
    from hermes_core.profiles import ProfileScope
    from hermes_core.settings import Settings

log = logging.getLogger(__name__)


class BuiltAgents:
    """Agents by name. One that cannot be built is tried again the next time."""

    def __init__(self, hooks: Hooks, scope: ProfileScope) -> None:
        self._hooks = hooks
        self._scope = scope
        self._built: dict[str, tuple[Settings, Agent[Settings]]] = {}

    def require(self, name: str) -> None:
        """Raises ConfigError unless an installed plugin brings the agent."""
        if name not in self._hooks.agents:
            raise ConfigError(
                f"no installed plugin brings the agent {name!r}",
                where="[agent] use",
                remedy=f"pip install hermes-plugin-{name}, or choose another agent",
            )

    def get(self, name: str, tables: Mapping[str, Settings]) -> Agent[Settings] | None:
        """The agent with its settings out of `tables`; with other settings it is another one.
        None when it cannot be had, and the log says why."""
        owned, settings = self._hooks.agents.get(name), tables.get(name)
        if owned is None or settings is None:
            return None
        built = self._built.get(name)
        if built is not None and built[0] == settings:
            return built[1]
        try:
            agent = owned.value.agent(settings, self._scope)
        except HermesError as error:
            log.error("the agent %s cannot be built: %s", name, error)
            return None
        except (Exception, SystemExit, KeyboardInterrupt):
            log.exception("the agent %s cannot be built", name)
            return None
        self._built[name] = (settings, agent)
        return agent
