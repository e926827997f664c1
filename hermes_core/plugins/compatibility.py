"""Does a plugin fit this core? Decided from its metadata, before any of its code runs."""

from __future__ import annotations

import re

from hermes_core.errors import PluginError
from hermes_core.hookspecs import HOOK_API
from hermes_core.plugins.discovery import CORE, Distribution, normalized
from hermes_core.version import VERSION

_REQUIREMENT = re.compile(
    r"\s*(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[(?P<extras>[^\]]*)\])?"
    r"(?P<version>[^;]*)(?:;(?P<marker>.*))?"
)
_REMEDY = f"install releases of the plugin and of {CORE} that fit each other"
_HOOKS = re.compile(r"hooks-(?P<major>[0-9]+)")


def require_fit(plugin: Distribution) -> None:
    """Raise `PluginError` unless `plugin` was written for this hook API and this release.

    A plugin says so by requiring ``hermes-gateway[hooks-N]``, where N is the first number of the
    hook API, with the releases that it works with.
    """
    if plugin.fault:
        raise PluginError(plugin.fault)
    wanted: set[str] = set()
    for text in plugin.requires:
        match = _REQUIREMENT.fullmatch(text)
        if match is None or normalized(match["name"]) != CORE:
            continue
        if not _applies(match["marker"], text):
            continue
        extras = (normalized(extra.strip()) for extra in (match["extras"] or "").split(","))
        wanted.update(found["major"] for extra in extras if (found := _HOOKS.fullmatch(extra)))
        _require_release(match["version"].strip(" ()"), text)
    _require_api(wanted)


def _require_api(wanted: set[str]) -> None:
    offered = HOOK_API.partition(".")[0]
    if not wanted:
        raise PluginError(
            "does not say which hook API it was written for",
            remedy=f"its author has to require {CORE}[hooks-{offered}]",
        )
    if wanted != {offered}:
        raise PluginError(
            f"needs hook API {', '.join(sorted(wanted))}, this is {HOOK_API}", remedy=_REMEDY
        )


def _require_release(versions: str, text: str) -> None:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        fits = SpecifierSet(versions).contains(VERSION, prereleases=True)
    except InvalidSpecifier:
        raise PluginError(f"has a requirement that cannot be read: {text!r}") from None
    if not fits:
        raise PluginError(f"needs {CORE} {versions}, this is {VERSION}", remedy=_REMEDY)


def _applies(marker: str | None, text: str) -> bool:
    """Whether a requirement is meant for this machine, and not for an extra of the plugin."""
    if marker is None:
        return True
    from packaging.markers import InvalidMarker, Marker

    try:
        return Marker(marker.strip()).evaluate({"extra": ""})
    except InvalidMarker:
        raise PluginError(f"has a requirement that cannot be read: {text!r}") from None
