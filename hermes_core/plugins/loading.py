"""Find, check, import and register the plugins: one routine for gateway and commands."""

from __future__ import annotations

import importlib
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import TypeVar

import msgspec

from hermes_core.agents import AgentType
from hermes_core.chat_commands import ChatCommand
from hermes_core.errors import PluginError
from hermes_core.platforms import Platform
from hermes_core.plugins import declarations
from hermes_core.plugins.compatibility import require_fit
from hermes_core.plugins.discovery import Candidate, Scan, normalized, scan
from hermes_core.plugins.inspection import Implementation, inspect_plugin
from hermes_core.plugins.interrupts import Interrupts
from hermes_core.plugins.model import Foreign, LeftOut, Owned, Plugin, Quarantined, label
from hermes_core.plugins.registry import Registry
from hermes_core.services import Schema, Section, Service

T = TypeVar("T")

FIRST_PARTY = frozenset({"hermes-plugin-console", "hermes-plugin-echo"})
"""What is loaded in safe mode."""
SLOW_IMPORT = 1.0
"""Seconds after which an import is reported when it has ended."""
PATIENCE = 5.0
"""Seconds after which an import is reported while it lasts."""

_log = logging.getLogger(__name__)


class Loaded(msgspec.Struct, frozen=True):
    """The outcome of one load. `required` are the names that the operator relies on."""

    plugins: tuple[Plugin, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    required: tuple[str, ...] = ()
    platforms: Mapping[str, Owned[Platform]] = {}
    agents: Mapping[str, Owned[AgentType]] = {}
    sections: Mapping[str, Owned[Section]] = {}
    schemas: Mapping[str, Owned[Schema]] = {}
    services: Mapping[str, Owned[Service]] = {}
    commands: Mapping[str, Owned[ChatCommand]] = {}
    registry: Registry = msgspec.field(default_factory=Registry)

    @property
    def missing_required(self) -> tuple[str, ...]:
        """The required names that no plugin in `plugins` answers to."""
        return missing(self.required, self.plugins)


class _Source(msgspec.Struct, frozen=True):
    """Something that may become a plugin, where it comes from, and how to get hold of it."""

    name: str
    distribution: str
    version: str
    tracker: str
    origin: str
    obtain: Callable[[], object]

    @property
    def names(self) -> set[str]:
        """What an operator may call it in ``disabled`` and ``required``."""
        return {self.name, normalized(self.distribution)}

    @property
    def label(self) -> str:
        return label(self.name, self.distribution, self.version)


def load(
    *,
    disabled: Sequence[str] = (),
    required: Sequence[str] = (),
    extra: Sequence[object] = (),
    safe_mode: bool | None = None,
    path: Sequence[str] | None = None,
    patience: float = PATIENCE,
) -> Loaded:
    """Load every plugin that can be loaded, and say what became of the others.

    `disabled` and `required` name plugins or their distributions. `extra` are objects that are
    plugins without being installed, each plain or as a pair of name and object; they come first.
    `safe_mode` loads the first-party plugins only, None asks the variable HERMES_SAFE_MODE.
    Installed plugins are looked for in `path`, by default ``sys.path``. An import that lasts is
    reported after `patience` seconds. Raises nothing but the KeyboardInterrupt of a person.
    """
    if safe_mode is None:
        safe_mode = os.environ.get("HERMES_SAFE_MODE") == "1"
    found = scan(path)
    with Interrupts() as interrupts:
        loader = _Loader(interrupts, patience)
        for number, thing in enumerate(extra):
            loader.add(_embedded(thing, number))
        for candidate in found.candidates:
            source = _installed(candidate)
            reason = _why_not(source, disabled, safe_mode=safe_mode)
            if reason:
                loader.leave_out(source, reason)
            else:
                loader.add(source)
    _warn_of_strangers(disabled, found)
    return loader.loaded(found, required)


def missing(required: Iterable[str], plugins: Iterable[Plugin]) -> tuple[str, ...]:
    """The names in `required`, of plugins or of their distributions, that no plugin answers to."""
    running = set[str]()
    for plugin in plugins:
        running |= {plugin.name, normalized(plugin.distribution)}
    return tuple(name for name in required if name not in running)


class _Loader:
    """Takes sources one by one. What fails is quarantined whole: none of it stays registered."""

    def __init__(self, interrupts: Interrupts, patience: float) -> None:
        self._interrupts = interrupts
        self._patience = patience
        self._registry = Registry()
        self._claims = declarations.Claims()
        self._plugins: dict[str, Plugin] = {}
        self._quarantined: list[Quarantined] = []
        self._left_out: list[LeftOut] = []
        self._platforms: dict[str, Owned[Platform]] = {}
        self._agents: dict[str, Owned[AgentType]] = {}
        self._sections: dict[str, Owned[Section]] = {}
        self._schemas: dict[str, Owned[Schema]] = {}
        self._services: dict[str, Owned[Service]] = {}
        self._commands: dict[str, Owned[ChatCommand]] = {}

    def add(self, source: _Source) -> None:
        try:
            self._add(source)
        except PluginError as error:
            self._quarantined.append(_quarantined(source, error))

    def leave_out(self, source: _Source, reason: str) -> None:
        self._left_out.append(LeftOut(source.name, source.distribution, source.version, reason))

    def loaded(self, found: Scan, required: Sequence[str]) -> Loaded:
        return Loaded(
            plugins=tuple(self._plugins.values()),
            quarantined=tuple(self._quarantined),
            left_out=tuple(self._left_out),
            foreign=tuple(Foreign(other.name, other.version) for other in found.foreign),
            required=tuple(required),
            platforms=self._platforms,
            agents=self._agents,
            sections=self._sections,
            schemas=self._schemas,
            services=self._services,
            commands=self._commands,
            registry=self._registry,
        )

    def _add(self, source: _Source) -> None:
        if source.name in self._plugins:
            holder = self._plugins[source.name].label
            raise PluginError(f"the plugin name {source.name!r} is taken by {holder}")
        thing, seconds = self._obtain(source)
        findings = self._contain(inspect_plugin, thing, "cannot be looked into: ")
        if findings.faults:
            raise PluginError("; ".join(findings.faults))
        declared = self._all_declared(findings.hooks)
        self._registry.add(source.name, findings.hooks)
        try:
            self._claims.claim(source.label, declared.names())
        except PluginError:
            self._registry.remove(source.name)
            raise
        plugin = Plugin(
            source.name,
            source.distribution,
            source.version,
            order=len(self._plugins),
            tracker=source.tracker,
            object=thing,
            platforms=tuple(platform.name for platform in declared.platforms),
            agents=tuple(agent.name for agent in declared.agents),
            seconds=seconds,
        )
        self._plugins[plugin.name] = plugin
        self._keep(plugin, declared)
        for doubt in findings.doubts:
            _log.warning("plugin %s: %s", plugin.label, doubt)

    def _obtain(self, source: _Source) -> tuple[object, float]:
        began = time.perf_counter()
        with _reported(source, self._patience):
            thing = self._interrupts.contain(
                source.obtain, f"cannot be loaded from {source.origin}: "
            )
        seconds = time.perf_counter() - began
        if seconds > SLOW_IMPORT:
            _log.warning("plugin %s took %.1f s to import", source.label, seconds)
        return thing, seconds

    def _keep(self, plugin: Plugin, declared: declarations.Declared) -> None:
        self._platforms |= {value.name: Owned(plugin, value) for value in declared.platforms}
        self._agents |= {value.name: Owned(plugin, value) for value in declared.agents}
        self._sections |= {value.name: Owned(plugin, value) for value in declared.sections}
        self._schemas |= {value.name: Owned(plugin, value) for value in declared.schemas}
        self._services |= {value.name: Owned(plugin, value) for value in declared.services}
        self._commands |= {value.name: Owned(plugin, value) for value in declared.commands}

    def _all_declared(self, hooks: Mapping[str, Implementation]) -> declarations.Declared:
        return declarations.Declared(
            platforms=self._declared(declarations.platforms, hooks.get("platforms")),
            agents=self._declared(declarations.agents, hooks.get("agents")),
            sections=self._declared(declarations.sections, hooks.get("settings")),
            schemas=self._declared(declarations.schemas, hooks.get("models")),
            services=self._declared(declarations.services, hooks.get("services")),
            commands=self._declared(declarations.commands, hooks.get("commands")),
        )

    def _declared(self, check: Callable[[object], list[T]], hook: Implementation | None) -> list[T]:
        if hook is None:
            return []
        value = self._interrupts.contain(hook.function, f"{hook.spec.name} raised ")
        return self._contain(check, value, f"what {hook.spec.name} returned cannot be used: ")

    def _contain(self, check: Callable[[object], T], thing: object, what: str) -> T:
        """Check a thing of the plugin, whose own code may be called by that."""
        return self._interrupts.contain(lambda: check(thing), what)


def _installed(candidate: Candidate) -> _Source:
    distribution = candidate.distribution

    def obtain() -> object:
        require_fit(distribution)
        module, _, attribute = candidate.target.partition(":")
        steps = attribute.split(".") if attribute else []
        return reduce(getattr, steps, importlib.import_module(module))

    return _Source(
        candidate.name,
        distribution.name,
        distribution.version,
        distribution.tracker,
        candidate.target,
        obtain,
    )


def _embedded(thing: object, number: int) -> _Source:
    if isinstance(thing, tuple):
        name, thing = thing
    else:
        name = getattr(thing, "__name__", None) or f"{type(thing).__name__}-{number}"
    return _Source(str(name), str(name), "", "", "the program", lambda: thing)


def _why_not(source: _Source, disabled: Sequence[str], *, safe_mode: bool) -> str:
    if source.names & set(disabled):
        return "disabled"
    if safe_mode and normalized(source.distribution) not in FIRST_PARTY:
        return "safe mode"
    return ""


def _warn_of_strangers(disabled: Sequence[str], found: Scan) -> None:
    known = set[str]()
    for candidate in found.candidates:
        known |= {candidate.name, normalized(candidate.distribution.name)}
    for name in disabled:
        if name not in known:
            _log.warning("the disabled plugin %s is not installed", name)


def _quarantined(source: _Source, error: PluginError) -> Quarantined:
    cause = error.__cause__
    details = "".join(traceback.format_exception(cause)) if cause is not None else ""
    return Quarantined(
        source.name, source.distribution, source.version, str(error), source.tracker, details
    )


@contextmanager
def _reported(source: _Source, patience: float) -> Iterator[None]:
    """Name a plugin whose import lasts, while it lasts: everything waits for it."""
    timer = threading.Timer(
        patience,
        _log.warning,
        ["plugin %s is still being imported after %g s", source.label, patience],
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
