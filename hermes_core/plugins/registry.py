"""The one place that touches pluggy: who implements which hook, and in which order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import cast

import pluggy

from hermes_core.errors import PluginError
from hermes_core.hookspecs import ALL
from hermes_core.plugins.inspection import MODULE_KINDS, Implementation

_marker = pluggy.HookspecMarker("hermes")


class _Table(ModuleType):
    """The hooks of one plugin and nothing else, in the form that pluggy looks through."""

    def __init__(self, plugin: str, hooks: Mapping[str, Implementation]) -> None:
        super().__init__(plugin)
        self.hooks = hooks
        for name, hook in hooks.items():
            setattr(self, name, hook.function)


class _Manager(pluggy.PluginManager):
    """pluggy, asked to believe the table."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        if not isinstance(plugin, _Table) or name not in plugin.hooks:
            return None
        return cast("pluggy.HookimplOpts", dict(plugin.hooks[name].options))


class Registry:
    """The hooks of plugins by name. Calls nothing.

    `hooks` names those that a plugin's module may implement, in the order of the specs.
    """

    def __init__(self) -> None:
        self._manager = _Manager("hermes")
        self._tables: dict[str, _Table] = {}
        self.hooks = tuple(name for name, spec in ALL.items() if spec.kind in MODULE_KINDS)
        specs = ModuleType("hermes_hookspecs")
        for spec in ALL.values():
            if spec.name in self.hooks:
                setattr(specs, spec.name, _marker(spec.function))
        self._manager.add_hookspecs(specs)

    def add(self, plugin: str, hooks: Mapping[str, Implementation]) -> None:
        """Register the hooks of `plugin`. Raises `PluginError` when pluggy refuses them.

        pluggy gets a table of the hooks alone: to look through a large module takes it ten times
        longer.
        """
        table = _Table(plugin, hooks)
        try:
            self._manager.register(table, plugin)
        except (pluggy.PluginValidationError, ValueError) as error:
            raise PluginError(str(error)) from error
        self._tables[plugin] = table

    def remove(self, plugin: str) -> None:
        """Forget the hooks of `plugin`; nothing happens when there are none."""
        self._manager.unregister(name=plugin)
        self._tables.pop(plugin, None)

    def implementations(self, hook: str, order: Iterable[str]) -> list[tuple[str, Implementation]]:
        """Plugins that implement `hook`: first those that say ``tryfirst``, last ``trylast``.

        Within each group the plugins are in the given `order`.
        """
        places = {name: place for place, name in enumerate(order)}
        found = getattr(self._manager.hook, hook).get_hookimpls()
        ranked = sorted(
            (impl.trylast - impl.tryfirst, places[impl.plugin_name], impl.plugin_name)
            for impl in found
            if impl.plugin_name in places
        )
        return [(name, self._tables[name].hooks[hook]) for _, _, name in ranked]
