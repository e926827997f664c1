"""Plugins as their authors declare them, and the shapes of the fixtures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta

from hermes_core import Adapter, Agent, AgentType, Duration, Platform, Secret, Settings, hookimpl
from hermes_core.config import AccountSettings, Checked, Declarations, ProfileSettings
from hermes_core.errors import ConfigError
from hermes_core.settings import Bounds, TableArray

Check = Callable[[str | bytes], Checked]
Load = Callable[[str | bytes], ProfileSettings]
Refused = Callable[[str | bytes], ConfigError]


class LineSettings(Settings):
    token: Secret
    mode: str = "poll"
    port: Annotated[int, Meta(ge=1, le=65535)] = 443
    pause: Annotated[Duration, Bounds(1, 60)] = Duration(5)


def line_settings(account: AccountSettings) -> LineSettings:
    """The plugin's own settings of an account on the platform `line`."""
    assert isinstance(account.settings, LineSettings)
    return account.settings


class LineAdapter(Adapter[LineSettings]):
    @staticmethod
    @hookimpl
    def normalize_user_id(user_id: str) -> str:
        if not user_id.isascii() or not user_id.isdigit():
            raise ValueError("a user id has digits only")
        return user_id


class NoSettings(Settings):
    pass


class LocalAdapter(Adapter[NoSettings]):
    pass


class CommandSettings(Settings):
    argv: Annotated[tuple[str, ...], Meta(min_length=1)]
    timeout: Duration = Duration(60)


class CommandAgent(Agent[CommandSettings]):
    pass


class EchoAgent(Agent[NoSettings]):
    pass


class TargetSettings(Settings):
    name: str
    url: str
    events: tuple[str, ...] = ()
    secret: Secret | None = None


class TrimSettings(Settings):
    enabled: bool = True
    cooldown_seconds: int = 60


def declare() -> Declarations:
    """What a few installed plugins declare."""
    platforms = [
        Platform("line", LineAdapter, LineSettings, max_length=2000),
        Platform("telegram", LineAdapter, LineSettings, max_length=4096),
        Platform("local", LocalAdapter, NoSettings, max_length=2000, implicit=True),
    ]
    agents = [
        AgentType("command", CommandAgent, CommandSettings),
        AgentType("echo", EchoAgent, NoSettings),
        AgentType("llm", EchoAgent, NoSettings),
    ]
    return Declarations(
        platforms={platform.name: platform for platform in platforms},
        agents={agent.name: agent for agent in agents},
        sections={"memory_trim": TrimSettings, "hooks.outbound": TableArray(TargetSettings)},
    )
