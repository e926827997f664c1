"""From a settings file to a `ProfileSettings`: the core's sections, the accounts, the plugins'
sections."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from hermes_core.config.accounts import AccountReader
from hermes_core.config.convert import Converter, fields_of, mentions_access
from hermes_core.config.document import Document, dotted, read_document
from hermes_core.config.sections import (
    AgentChoice,
    AgentSettings,
    AuthorizationSettings,
    GatewaySettings,
    PluginSettings,
    ProfileSettings,
    RetentionSettings,
    SessionSettings,
)
from hermes_core.errors import ConfigError, Fault
from hermes_core.names import (
    CORE_TABLES,
    DEFAULT_PROFILE,
    did_you_mean,
    near_miss,
    profile_name_problem,
)
from hermes_core.secrets import ProfileSecrets, SecretSource
from hermes_core.settings import Settings, TableArray

if TYPE_CHECKING:
    from hermes_core.agents import AgentType
    from hermes_core.platforms import Platform

SettingsT = TypeVar("SettingsT", bound=Settings)
SectionType: TypeAlias = type[Settings] | TableArray

IGNORE_VARIABLE = "HERMES_IGNORE_USER_CONFIG"


def user_config_ignored() -> bool:
    """Whether the environment asks to leave every settings file unread and to run on defaults."""
    return os.environ.get(IGNORE_VARIABLE) == "1"


def plugin_settings(document: Document) -> PluginSettings:
    """``[plugins]`` alone, needed before plugins say what the rest means. Raises ConfigError."""
    converter = Converter(document, ProfileSecrets())
    table = document.data.get("plugins", {})
    settings = converter.section(PluginSettings, table, ("plugins",))
    if settings is None:
        raise ConfigError.of(converter.faults)
    return settings


@dataclass(frozen=True)
class Declarations:
    """What the loaded plugins declare about settings.

    `sections` maps the dotted name of a table, such as ``memory_trim`` or ``hooks.outbound``, to
    its type.
    """

    platforms: Mapping[str, Platform]
    agents: Mapping[str, AgentType]
    sections: Mapping[str, SectionType]


@dataclass(frozen=True)
class Checked:
    """The outcome of reading one profile's file: `settings` is None when there are faults."""

    settings: ProfileSettings | None
    faults: tuple[Fault, ...]
    warnings: tuple[Fault, ...]


def load_profile(
    source: Path | Document | None,
    profile: str,
    *,
    platforms: Mapping[str, Platform],
    agents: Mapping[str, AgentType],
    sections: Mapping[str, SectionType],
    secrets: SecretSource,
) -> ProfileSettings:
    """Read the settings of one profile.

    `source` is the path of its `config.toml` (one that does not exist is empty), a document that
    was read before, or None for the defaults alone. Raises ConfigError with every fault of the
    file.
    """
    checked = check_profile(source, profile, Declarations(platforms, agents, sections), secrets)
    if checked.settings is None:
        raise ConfigError.of(checked.faults)
    return checked.settings


def check_profile(
    source: Path | Document | None,
    profile: str,
    declared: Declarations,
    secrets: SecretSource,
) -> Checked:
    """Like `load_profile`, but gives faults and warnings as values."""
    try:
        document = read_document(source) if isinstance(source, Path) else source
    except ConfigError as error:
        return Checked(None, error.faults, ())
    converter = Converter(document or Document(None, {}), secrets)
    settings = _Reader(converter, profile, declared).read()
    faults, warnings = _by_line(converter.faults), _by_line(converter.warnings)
    if faults:
        return Checked(None, faults, warnings)
    return Checked(
        replace(settings, warnings=tuple(str(warning) for warning in warnings)), (), warnings
    )


def _by_line(faults: list[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted(faults, key=lambda fault: fault.line or 0))


@dataclass
class _Reader:
    converter: Converter
    profile: str
    declared: Declarations

    def read(self) -> ProfileSettings:
        self._unknown_tables()
        return ProfileSettings(
            name=self.profile,
            gateway=self._gateway(),
            agent=self._agent(),
            sessions=self._core(SessionSettings, "sessions"),
            retention=self._core(RetentionSettings, "retention"),
            authorization=self._core(AuthorizationSettings, "authorization"),
            plugins=self._core(PluginSettings, "plugins"),
            accounts=AccountReader(self.converter, self.declared.platforms).read(
                tuple(self.declared.agents)
            ),
            sections=dict(self._sections()),
        )

    @property
    def _data(self) -> dict[str, Any]:
        return self.converter.document.data

    def _core(self, kind: type[SettingsT], name: str) -> SettingsT:
        """A section whose fields all have defaults; they stand in where the file has faults."""
        section = self.converter.section(kind, self._data.get(name, {}), (name,))
        return section if section is not None else kind()

    def _gateway(self) -> GatewaySettings:
        if self.profile != DEFAULT_PROFILE and "gateway" in self._data:
            self.converter.warn(
                ("gateway",), problem="only the file of the default profile has this table"
            )
            return GatewaySettings()
        gateway = self._core(GatewaySettings, "gateway")
        written = self.converter.document.at(("gateway", "profiles"))
        seen: set[str] = set()
        for index, name in enumerate(written if isinstance(written, list) else ()):
            if not isinstance(name, str):
                continue  # reported with its type
            problem = profile_name_problem(name)
            if name in seen:
                problem = f'the profile "{name}" is listed twice'
            seen.add(name)
            if problem:
                self.converter.fault(("gateway", "profiles", index), problem=problem)
        return gateway

    def _agent(self) -> AgentSettings:
        table = self._data.get("agent", {})
        if not isinstance(table, dict):
            self.converter.section(AgentChoice, table, ("agent",))
            return AgentSettings()
        tables = {key: value for key, value in table.items() if isinstance(value, dict)}
        own = {key: value for key, value in table.items() if key not in tables}
        choice = self.converter.section(AgentChoice, own, ("agent",)) or AgentChoice()
        self._absent_agents(tables)
        return AgentSettings(
            use=choice.use,
            send_files_from=choice.send_files_from,
            tables=dict(self._agent_tables(tables, choice.use)),
        )

    def _agent_tables(
        self, tables: Mapping[str, object], used: str
    ) -> Iterator[tuple[str, Settings]]:
        if used not in self.declared.agents:
            self.converter.fault(
                ("agent", "use"),
                problem=f'no plugin that is loaded brings the agent "{used}"',
                hint=did_you_mean(used, self.declared.agents)
                or f"pip install hermes-plugin-{used}",
            )
        for name, agent in self.declared.agents.items():
            required = any(field.required for field in fields_of(agent.settings).values())
            if name in tables or name == used or not required:
                section = self.converter.section(
                    agent.settings, tables.get(name, {}), ("agent", name)
                )
                if section is not None:
                    yield name, section

    def _absent_agents(self, tables: Mapping[str, object]) -> None:
        for name in tables:
            if name not in self.declared.agents:
                self.converter.warn(
                    ("agent", name),
                    problem=f'no plugin that is loaded brings the agent "{name}"',
                    hint=did_you_mean(name, self.declared.agents),
                )

    def _sections(self) -> Iterator[tuple[str, Settings | tuple[Settings, ...]]]:
        for name, kind in self.declared.sections.items():
            path = tuple(name.split("."))
            found = self.converter.document.at(path)
            if isinstance(kind, TableArray):
                yield name, self._table_array(kind, found, path)
            elif found is not None or not any(field.required for field in fields_of(kind).values()):
                section = self.converter.section(kind, {} if found is None else found, path)
                if section is not None:
                    yield name, section

    def _table_array(
        self, kind: TableArray, found: object, path: tuple[str, ...]
    ) -> tuple[Settings, ...]:
        if found is None:
            return ()
        if not isinstance(found, list):
            self.converter.fault(path, problem=f"expected [[{dotted(path)}]]: an array of tables")
            return ()
        items = tuple(
            self.converter.section(kind.item, table, (*path, index))
            for index, table in enumerate(found)
        )
        self._unique(kind, found, path)
        return tuple(item for item in items if item is not None)

    def _unique(self, kind: TableArray, found: list[object], path: tuple[str, ...]) -> None:
        first: dict[str, int] = {}
        for index, table in enumerate(found):
            value = table.get(kind.unique) if isinstance(table, dict) and kind.unique else None
            if not isinstance(value, str):
                continue
            if value in first:
                line = self.converter.document.line((*path, first[value], kind.unique or ""))
                self.converter.fault(
                    (*path, index, kind.unique or ""),
                    problem=f'the name "{value}" is used twice, first on line {line}',
                )
            first.setdefault(value, index)

    def _unknown_tables(self) -> None:
        """Top-level keys that belong to nobody, and tables below a plugin's prefix that do not."""
        known = {*CORE_TABLES, *(name.split(".")[0] for name in self.declared.sections)}
        for name, value in self._data.items():
            if name not in known:
                self._unknown_table((name,), value, known)
            elif name not in CORE_TABLES and name not in self.declared.sections:
                siblings = {
                    section.split(".")[1]
                    for section in self.declared.sections
                    if section.startswith(f"{name}.")
                }
                for key, inner in value.items() if isinstance(value, dict) else ():
                    if key not in siblings:
                        self._unknown_table((name, key), inner, siblings)

    def _unknown_table(self, path: tuple[str, ...], value: object, known: set[str]) -> None:
        name = path[-1]
        hint = did_you_mean("authorization" if name.startswith("auth") else name, known)
        about_access = len(path) == 1 and (
            name.startswith("auth") or near_miss(name, ("authorization", "platforms"), 0.85) != ""
        )
        if about_access or mentions_access({name: value}):
            self.converter.fault(
                path, problem="unknown table: what it says about access has no effect", hint=hint
            )
        elif isinstance(value, (dict, list)):
            problem = "unknown table: no plugin that is loaded reads it"
            self.converter.warn(path, problem=problem, hint=hint)
        else:
            self.converter.warn(path, problem="unknown key", hint=hint)
