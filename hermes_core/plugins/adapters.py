"""Call the hooks of one adapter, from a table of its bound methods."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from hermes_core.errors import PluginError, SendFailed
from hermes_core.hookkinds import AdapterHook
from hermes_core.platforms import Platform
from hermes_core.plugins.caller import Call, Caller, Site
from hermes_core.plugins.inspection import inspect_adapter
from hermes_core.plugins.model import Plugin, contained

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)


class AdapterCalls:
    """The hooks of one adapter instance, checked once and then called by name."""

    def __init__(
        self,
        adapter: object,
        *,
        plugin: Plugin | None = None,
        caller: Caller | None = None,
        where: str = "",
    ) -> None:
        """Check `adapter`. Raises `PluginError` naming each of its faults.

        `plugin` and `caller` are whose and by whom the calls are accounted; without them nobody
        looks. `where` names the account in errors, as in ``line/ops@default``.
        """
        self._caller = caller or Caller()
        self._where = where or type(adapter).__qualname__
        findings = inspect_adapter(adapter)
        if findings.faults:
            raise PluginError("; ".join(findings.faults), where=self._where)
        for doubt in findings.doubts:
            _log.warning("%s: %s", self._where, doubt)
        owner = plugin or Plugin(type(adapter).__qualname__, "", "")
        self._sites = {
            name: Site(owner, hook, self._caller.ledger) for name, hook in findings.hooks.items()
        }
        self._calls = {name: Call(hook.spec) for name, hook in findings.hooks.items()}

    def has(self, spec: AdapterHook[..., object]) -> bool:
        """Whether the adapter implements `spec`."""
        return spec.name in self._sites

    async def call(self, spec: AdapterHook[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the hook and give what it returns, within the time limit of its spec.

        Raises what the adapter raises; TimeoutError when it is not done in time, and then what it
        was doing is cancelled but may have happened; `SendFailed`, without having called it, while
        several late calls of the hook linger; `PluginError` when the hook is not implemented and in
        place of errors that are no Exception. Each call runs in a task of its own if the spec has a
        limit.
        """
        site = self._sites.get(spec.name)
        if site is None:
            raise PluginError(f"does not implement {spec.name}", where=self._where)
        if site.is_clogged:
            site.tally.skipped += 1
            raise SendFailed(f"earlier calls of {spec.name} do not end", where=self._where)
        values = self._calls[spec.name].values(args, kwargs)
        return cast("R", await self._caller.call(site, values))


def normalizer(platform: Platform) -> Callable[[str], str]:
    """The function that gives the canonical form of a user id on `platform`.

    It raises ValueError for what can never be an id there, and `PluginError` when the adapter's
    ``normalize_user_id`` fails otherwise or returns no text. Without one, ids stay as they are.
    """
    hook = inspect_adapter(platform.adapter).hooks.get("normalize_user_id")
    if hook is None:
        return str
    function = hook.function

    def normalize(user_id: str) -> str:
        where = f"normalize_user_id of {platform.name}"
        try:
            result = function(user_id=user_id)
        except ValueError:
            raise
        except BaseException as error:
            problem = contained(error)
            raise PluginError(problem.what, where=where) from error
        if not isinstance(result, str):
            raise PluginError(f"returned {result!r}, not a text", where=where)
        return result

    return normalize
