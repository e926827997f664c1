"""What plugins declare at load, checked: platforms, agents, tables, services, and to whom each name
belongs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec

from hermes_core.agents import Agent, AgentType
from hermes_core.chat_commands import RESERVED, ChatCommand
from hermes_core.errors import PluginError
from hermes_core.names import CORE_TABLES
from hermes_core.platforms import Adapter, Platform
from hermes_core.plugins.inspection import inspect_adapter
from hermes_core.plugins.measure import require_measuring
from hermes_core.services import Schema, Section, Service
from hermes_core.settings import Settings, TableArray


class _Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", Platform, AgentType, Section, Schema, Service, ChatCommand)

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
"""No dot, colon or percent sign: session keys and setting names are made of these names."""
_SECTION_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}(\.[A-Za-z][A-Za-z0-9_-]{0,63})?")
_SCHEMA_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_CORE_SCHEMAS = frozenset(
    ("generation", "session", "message", "turn", "inbox", "outbox", "denied")
) | {"kv", "event", "pairing", "pause", "schema", "sqlite"}
"""What the names of the core's own tables begin with."""


def platforms(value: object) -> list[Platform]:
    """Check what a `platforms` hook returned. Raises `PluginError` naming the first fault."""
    declared = _list(value, Platform, "platforms")
    for platform in declared:
        _check_platform(platform)
    return declared


def agents(value: object) -> list[AgentType]:
    """Check what an `agents` hook returned. Raises `PluginError` naming the first fault."""
    declared = _list(value, AgentType, "agents")
    for agent in declared:
        where = f"the agent {agent.name!r}"
        _check_class(agent.agent, Agent, f"agent of {where}")
        _check_class(agent.settings, Settings, f"settings of {where}")
    return declared


def sections(value: object) -> list[Section]:
    """Check what a `settings` hook returned. Raises `PluginError` naming the first fault."""
    declared = _list(value, Section, "settings", _SECTION_NAME, "one or two names joined by a dot")
    for section in declared:
        where = f"the table {section.name!r}"
        if section.name.partition(".")[0] in CORE_TABLES:
            raise PluginError(f"{where} is one of the core")
        item = section.type.item if isinstance(section.type, TableArray) else section.type
        _check_class(item, Settings, f"type of {where}")
    return declared


def schemas(value: object) -> list[Schema]:
    """Check what a `models` hook returned. Raises `PluginError` naming the first fault."""
    declared = _list(value, Schema, "models", _SCHEMA_NAME, "letters, digits and '_'")
    for schema in declared:
        if schema.name.casefold() in _CORE_SCHEMAS:
            raise PluginError(f"the schema name {schema.name!r} is one of the core")
    return declared


def services(value: object) -> list[Service]:
    """Check what a `services` hook returned. Raises `PluginError` naming the first fault."""
    declared = _list(value, Service, "services")
    for service in declared:
        if not callable(service.factory):
            raise PluginError(f"the factory of the service {service.name!r} cannot be called")
    return declared


def commands(value: object) -> list[ChatCommand]:
    """Check what a `commands` hook returned. Raises `PluginError` naming the first fault."""
    declared = _list(value, ChatCommand, "commands")
    for command in declared:
        if command.name.casefold() in RESERVED:
            raise PluginError(f"the command /{command.name} is one of the core")
        if not callable(command.run):
            raise PluginError(f"run of the command /{command.name} cannot be called")
    return declared


class Declared(msgspec.Struct, frozen=True):
    """All that one plugin declares."""

    platforms: list[Platform] = []
    agents: list[AgentType] = []
    sections: list[Section] = []
    schemas: list[Schema] = []
    services: list[Service] = []
    commands: list[ChatCommand] = []

    def names(self) -> list[tuple[str, str]]:
        """What the plugin lays claim to, as pairs of kind and name."""
        kinds: dict[str, Sequence[_Named]] = {
            "platform": self.platforms,
            "agent": self.agents,
            "settings table": self.sections,
            "schema": self.schemas,
            "service": self.services,
            "command": self.commands,
        }
        return [(kind, item.name) for kind, items in kinds.items() for item in items]


class Claims:
    """Who has which name. Names that differ in case only are one name."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], tuple[str, str]] = {}

    def claim(self, owner: str, names: Iterable[tuple[str, str]]) -> None:
        """Give `owner` all of `names`, pairs of kind and name, or none.

        Raises `PluginError` naming both claimants when one is taken.
        """
        wanted = {(kind, name.casefold()): (owner, name) for kind, name in names}
        for key, (_, name) in wanted.items():
            if key in self._owners:
                holder, held = self._owners[key]
                raise PluginError(
                    f"the {key[0]} name {name!r} is taken by {holder}"
                    + (f", which calls it {held!r}" if held != name else ""),
                    remedy="uninstall or disable one of the two",
                )
        self._owners |= wanted


def _list(
    value: object,
    kind: type[T],
    hook: str,
    form: re.Pattern[str] = _NAME,
    words: str = "a letter followed by letters, digits, '_' and '-'",
) -> list[T]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise PluginError(f"{hook} returned {value!r}, not a list of {kind.__name__}")
    for item in value:
        if not isinstance(item, kind):
            raise PluginError(f"{hook} returned a list with {item!r}, which is no {kind.__name__}")
    for name in (item.name for item in value):
        if not isinstance(name, str) or not form.fullmatch(name):
            raise PluginError(f"{hook} declared the name {name!r}; a name is {words}")
    if len({item.name.casefold() for item in value}) < len(value):
        raise PluginError(f"{hook} declared a name twice")
    return list(value)


def _check_platform(platform: Platform) -> None:
    where = f"the platform {platform.name!r}"
    _check_class(platform.adapter, Adapter, f"adapter of {where}")
    _check_class(platform.settings, Settings, f"settings of {where}")
    wrong = [name for name, sound in _PLATFORM_FACTS.items() if not sound(platform)]
    if wrong:
        raise PluginError(f"{where} has an impossible {' and '.join(wrong)}")
    try:
        require_measuring(platform)
    except PluginError as error:
        raise PluginError(f"{where} cannot measure texts: {error.what}") from error
    findings = inspect_adapter(platform.adapter)
    if platform.edit and "edit" not in findings.hooks:
        findings.faults.append("edit is missing, and the platform declares edit=True")
    if platform.drafts and not (platform.edit and "draft" in findings.hooks):
        findings.faults.append("drafts need the hook draft, and edit=True where they fail")
    if findings.faults:
        raise PluginError("; ".join(findings.faults), where=platform.adapter.__qualname__)


def _check_class(value: object, base: type, what: str) -> None:
    if not (isinstance(value, type) and issubclass(value, base)):
        raise PluginError(f"the {what} is {value!r}, not a subclass of {base.__name__}")


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


_PLATFORM_FACTS: dict[str, Callable[[Platform], bool]] = {
    "max_length": lambda platform: _is_positive(platform.max_length),
    "length": lambda platform: callable(platform.length),
    "edit_interval": lambda platform: _is_positive(platform.edit_interval),
    "group_edit_interval": lambda platform: (
        platform.group_edit_interval is None or _is_positive(platform.group_edit_interval)
    ),
    "rate": lambda platform: platform.rate is None or _is_positive(platform.rate),
    "chat_rate": lambda platform: platform.chat_rate is None or _is_positive(platform.chat_rate),
}
