"""The typed hook runner: the only way in which the core calls hooks of plugins."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Generic, ParamSpec, TypeVar, cast

import msgspec

from hermes_core.agents import AgentType
from hermes_core.chat_commands import ChatCommand
from hermes_core.errors import PluginError
from hermes_core.hookkinds import Collect, Decide, Notify, Spec
from hermes_core.hookspecs import ALL
from hermes_core.platforms import Platform
from hermes_core.plugins.adapters import AdapterCalls
from hermes_core.plugins.caller import Call, Caller, Late, Site
from hermes_core.plugins.interrupts import Interrupts
from hermes_core.plugins.ledger import PAUSE, Tally
from hermes_core.plugins.loading import Loaded, load, missing
from hermes_core.plugins.measure import measured_safely
from hermes_core.plugins.model import Abandoned, Answer, Owned, Plugin, Quarantined, Running
from hermes_core.plugins.workers import QUEUE, Worker
from hermes_core.services import Schema, Section, Service

P = ParamSpec("P")
R = TypeVar("R")

Ask = Callable[[Plugin], bool]
"""Chooses the plugins that a decide hook asks."""

_log = logging.getLogger(__name__)


def load_plugins(
    *,
    disabled: Sequence[str] = (),
    required: Sequence[str] = (),
    extra: Sequence[object] = (),
    safe_mode: bool | None = None,
    path: Sequence[str] | None = None,
) -> Hooks:
    """Load the plugins and give the runner of their hooks. The arguments are those of `load`.

    Logs one warning for each plugin that is quarantined.
    """
    loaded = load(disabled=disabled, required=required, extra=extra, safe_mode=safe_mode, path=path)
    for plugin in loaded.quarantined:
        _log.warning("plugin %s is quarantined: %s", plugin.label, plugin.reason)
    return Hooks(loaded, trace=os.environ.get("HERMES_TRACE_HOOKS") == "1")


class Hooks:
    """Calls the hooks of the loaded plugins, each as its kind demands.

    Belongs to one event loop and its thread. `start` it before, `stop` it after the work; in
    between each plugin with notify hooks has one task.
    """

    def __init__(self, loaded: Loaded, *, trace: bool = False, queue_size: int = QUEUE) -> None:
        self._loaded = loaded
        self._plugins = {plugin.name: plugin for plugin in loaded.plugins}
        self._quarantined = list(loaded.quarantined)
        self._agents = dict(loaded.agents)
        self._sections = dict(loaded.sections)
        self._schemas = dict(loaded.schemas)
        self._services = dict(loaded.services)
        self._commands = dict(loaded.commands)
        self._calls = {name: Call(spec) for name, spec in ALL.items()}
        self._workers = {
            plugin.name: Worker(plugin, self._tell, size=queue_size) for plugin in loaded.plugins
        }
        self.caller = Caller(trace=trace)
        self._platforms = {
            name: measured_safely(owned, self.caller.ledger)
            for name, owned in loaded.platforms.items()
        }
        self._sites = self._all_sites()

    @property
    def plugins(self) -> tuple[Plugin, ...]:
        """The plugins that run, in order."""
        return tuple(self._plugins.values())

    @property
    def quarantined(self) -> tuple[Quarantined, ...]:
        """The plugins that do not run, with reasons."""
        return tuple(self._quarantined)

    @property
    def missing_required(self) -> tuple[str, ...]:
        """Names the operator marked ``required`` that do not run. Unless empty, take nothing in."""
        return missing(self._loaded.required, self._plugins.values())

    @property
    def platforms(self) -> Mapping[str, Owned[Platform]]:
        return self._platforms

    @property
    def agents(self) -> Mapping[str, Owned[AgentType]]:
        return self._agents

    @property
    def sections(self) -> Mapping[str, Owned[Section]]:
        return self._sections

    @property
    def schemas(self) -> Mapping[str, Owned[Schema]]:
        return self._schemas

    @property
    def commands(self) -> Mapping[str, Owned[ChatCommand]]:
        return self._commands

    @property
    def services(self) -> Mapping[str, Owned[Service]]:
        return self._services

    @property
    def stats(self) -> Mapping[tuple[str, str], Tally]:
        """The account of each hook of each plugin, by the names of both. See `Tally`."""
        return self.caller.ledger.tallies

    def report(self) -> dict[str, object]:
        """The accounts and the late calls as plain values, for ``hermes plugins stats``."""
        return {
            "hooks": self.caller.ledger.rows(),
            "abandoned": [msgspec.structs.asdict(call) for call in self.abandoned],
        }

    @property
    def abandoned(self) -> tuple[Abandoned, ...]:
        """Late calls that were cancelled and have not ended."""
        return self.caller.abandoned

    @property
    def running(self) -> Running | None:
        """The plugin code that holds the event loop now. May be asked from another thread."""
        return self.caller.running

    def has(self, spec: Spec[..., object]) -> bool:
        """Whether any plugin implements `spec`."""
        return spec.name in self._sites

    def collect(self, spec: Collect[P, R], /, *args: P.args, **kwargs: P.kwargs) -> list[Owned[R]]:
        """Ask every plugin, in order. One that fails is quarantined and gives nothing."""
        results: list[Owned[R]] = []
        values = self._calls[spec.name].values(args, kwargs)
        with Interrupts() as interrupts:
            for site in self._chosen(spec, values):
                try:
                    value = interrupts.contain(
                        partial(self.caller.call_plain, site, values), f"{spec.name} raised "
                    )
                except PluginError as error:
                    self._quarantine(site.plugin, error)
                else:
                    results.append(Owned(site.plugin, cast("R", value)))
        return results

    def deciders(self, spec: Decide[P, R], ask: Ask | None = None, /) -> list[Decider[P, R]]:
        """The plugins to ask, in order, for a caller that stops early or feeds answers on.

        `ask` chooses among the plugins, None asks all.
        """
        call = self._calls[spec.name]
        return [
            Decider(site, call, self._attempt)
            for site in self._chosen(spec)
            if ask is None or ask(site.plugin)
        ]

    async def decide(
        self, spec: Decide[P, R], ask: Ask | None, /, *args: P.args, **kwargs: P.kwargs
    ) -> list[Answer[R]]:
        """Ask the chosen plugins one by one, in order, each within the limit of the spec.

        An answer with an error is a refusal: the spec is closed and the plugin failed. Failures of
        an open spec are logged, counted and left out.
        """
        answers = []
        for decider in self.deciders(spec, ask):
            answer = await decider(*args, **kwargs)
            if answer is not None:
                answers.append(answer)
        return answers

    def notify(self, spec: Notify[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
        """Queue a call for every plugin that implements `spec`. Never raises, never waits."""
        sites = self._sites.get(spec.name)
        if sites is None:
            return
        values = self._calls[spec.name].values(args, kwargs)
        for site in sites:
            if site.plugin.serves(values.get("scope")):
                self._workers[site.plugin.name].put(site, values)

    def adapter_calls(self, plugin: Plugin, adapter: object, *, where: str = "") -> AdapterCalls:
        """The table of hooks of one adapter instance of `plugin`, accounted with the others.

        `where` names the account in errors. Raises `PluginError` when the adapter breaks the
        contract.
        """
        return AdapterCalls(adapter, plugin=plugin, caller=self.caller, where=where)

    async def start(self) -> None:
        """Begin to make the notify calls that are queued."""
        told = {
            site.plugin.name
            for sites in self._sites.values()
            for site in sites
            if isinstance(site.spec, Notify)
        }
        for name in sorted(told):
            self._workers[name].start()

    async def stop(self, grace: float) -> None:
        """Take no more notify calls and let those that wait be made, for at most `grace` seconds.

        What is not done by then is dropped, counted and logged, and so are calls that linger.
        """
        tasks = {task for worker in self._workers.values() if (task := worker.close())}
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        for worker in self._workers.values():
            if dropped := worker.abandon():
                _log.warning("plugin %s: %d calls were dropped", worker.plugin.label, dropped)
        for call in self.abandoned:
            _log.warning("%s.%s lingers since %.0f s", call.plugin, call.hook, call.seconds)

    def _all_sites(self) -> dict[str, tuple[Site, ...]]:
        """The implementations of every hook that has any, in order."""
        sites = {}
        for name in self._loaded.registry.hooks:
            found = self._loaded.registry.implementations(name, self._plugins)
            sites[name] = tuple(
                Site(self._plugins[plugin], hook, self.caller.ledger) for plugin, hook in found
            )
        return {name: found for name, found in sites.items() if found}

    def _chosen(
        self, spec: Spec[..., object], values: Mapping[str, object] | None = None
    ) -> list[Site]:
        """The implementations of `spec` that a call with `values` reaches."""
        scope = (values or {}).get("scope")
        return [site for site in self._sites.get(spec.name, ()) if site.plugin.serves(scope)]

    async def _tell(self, site: Site, values: Mapping[str, object]) -> None:
        await self._attempt(site, values)

    async def _attempt(
        self, site: Site, values: Mapping[str, object]
    ) -> tuple[object, Exception | None]:
        """Make a call unless the plugin is left out at present. Gives its result or its failure."""
        loop = asyncio.get_running_loop()
        if site.is_clogged or not site.breaker.allows(loop.time()):
            site.tally.skipped += 1
            return None, PluginError("left out after repeated failures", where=site.plugin.label)
        try:
            result = await self.caller.call(site, values)
        except Exception as error:
            self._report(site, error, suspended=site.breaker.failed(loop.time()))
            return None, error
        site.breaker.succeeded()
        return result, None

    def _report(self, site: Site, error: Exception, *, suspended: bool) -> None:
        """Log a failure: the first of its type loudly and with a traceback."""
        hint = f" (report it at {site.plugin.tracker})" if site.plugin.tracker else ""
        if isinstance(error, ImportError):
            hint = " (removed or upgraded since the start? then restart the gateway)"
        known = type(error) in site.reported
        site.reported.add(type(error))
        _log.log(
            logging.DEBUG if known else logging.WARNING,
            "plugin %s failed in %s: %s%s",
            site.plugin.label,
            site.spec.name,
            f"{type(error).__name__}: {error}",
            hint,
            exc_info=None if isinstance(error, Late) else error,
        )
        if suspended:
            _log.warning(
                "plugin %s: %s failed too often and is left out for %g s",
                site.plugin.label,
                site.spec.name,
                PAUSE,
            )

    def _quarantine(self, plugin: Plugin, error: PluginError) -> None:
        """Take every hook of a plugin out of use."""
        _log.warning("plugin %s is quarantined: %s", plugin.label, error, exc_info=error)
        self._quarantined.append(
            Quarantined(
                plugin.name, plugin.distribution, plugin.version, str(error), plugin.tracker
            )
        )
        del self._plugins[plugin.name]
        self._loaded.registry.remove(plugin.name)
        for name in plugin.platforms:
            del self._platforms[name]
        for name in plugin.agents:
            del self._agents[name]
        self._sections = _without(self._sections, plugin)
        self._schemas = _without(self._schemas, plugin)
        self._services = _without(self._services, plugin)
        self._commands = _without(self._commands, plugin)
        self._sites = {
            name: kept
            for name, sites in self._sites.items()
            if (kept := tuple(site for site in sites if site.plugin is not plugin))
        }


def _without(declared: dict[str, Owned[R]], plugin: Plugin) -> dict[str, Owned[R]]:
    return {name: owned for name, owned in declared.items() if owned.plugin is not plugin}


class Decider(Generic[P, R]):
    """One plugin that a decide hook asks."""

    def __init__(
        self,
        site: Site,
        call: Call,
        attempt: Callable[[Site, Mapping[str, object]], Awaitable[tuple[object, Exception | None]]],
    ) -> None:
        self._site = site
        self._call = call
        self._attempt = attempt

    @property
    def plugin(self) -> Plugin:
        return self._site.plugin

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Answer[R] | None:
        """Ask it. None when there is no answer: it is disabled for the profile that the call is
        about, or it failed and the spec is open."""
        values = self._call.values(args, kwargs)
        if not self.plugin.serves(values.get("scope")):
            return None
        result, error = await self._attempt(self._site, values)
        if error is None:
            return Answer(self.plugin, cast("R", result))
        return Answer(self.plugin, error=error) if self._site.spec.closed else None
