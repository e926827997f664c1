"""What the plugin host knows: plugins that run, plugins that do not, and what they said."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Generic, TypeVar

import msgspec

from hermes_core.errors import PluginError
from hermes_core.plugins.discovery import normalized
from hermes_core.profiles import ProfileScope

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Plugin(msgspec.Struct, frozen=True, eq=False):
    """A plugin that runs.

    `name` is the name of its entry point and unique. `order` counts from 0 and is the order in
    which decide hooks ask. `tracker` is the address for bug reports, or empty. `object` is what the
    entry point leads to. `seconds` is how long its import took.
    """

    name: str
    distribution: str
    version: str
    order: int = 0
    tracker: str = ""
    object: Any = None
    platforms: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def label(self) -> str:
        """The plugin as it is named to people: ``line (hermes-plugin-line 1.2.0)``."""
        return label(self.name, self.distribution, self.version)

    def serves(self, scope: object) -> bool:
        """Whether its hooks are called for `scope`: not where ``[plugins] disabled`` of the profile
        names it. What is no scope of a profile concerns every plugin."""
        disabled = scope.settings.plugins.disabled if isinstance(scope, ProfileScope) else ()
        return not disabled or not self.named_in(disabled)

    def named_in(self, names: Collection[str]) -> bool:
        """Whether an operator who says `names` means it: by its own name or its distribution's."""
        return self.name in names or normalized(self.distribution) in names


class Quarantined(msgspec.Struct, frozen=True):
    """A plugin that was found and cannot run. None of its hooks is called.

    `details` is a traceback when code of the plugin raised, else empty.
    """

    name: str
    distribution: str
    version: str
    reason: str
    tracker: str = ""
    details: str = ""

    @property
    def label(self) -> str:
        """As `Plugin.label`."""
        return label(self.name, self.distribution, self.version)


class LeftOut(msgspec.Struct, frozen=True):
    """A plugin that is installed and was not loaded, because a person said so."""

    name: str
    distribution: str
    version: str
    reason: str


class Foreign(msgspec.Struct, frozen=True):
    """A distribution that bears our prefix and offers no plugin: it belongs to another host."""

    distribution: str
    version: str


class Owned(msgspec.Struct, Generic[T_co], frozen=True):
    """A value with the plugin that produced it."""

    plugin: Plugin
    value: T_co


class Answer(msgspec.Struct, Generic[T], frozen=True):
    """What one plugin answered to a decide hook. Exactly one of `value` and `error` counts.

    `error` is set when the plugin failed, was too late, or was skipped after repeated failures, and
    then means a refusal. `value` may be None without an error: the plugin abstains.
    """

    plugin: Plugin
    value: T | None = None
    error: Exception | None = None


class Abandoned(msgspec.Struct, frozen=True):
    """A call that was cancelled for being late and has not ended. `seconds` is its age."""

    plugin: str
    hook: str
    seconds: float


class Running(msgspec.Struct, frozen=True):
    """Plugin code that holds the event loop at this moment, and for how long, in seconds."""

    plugin: str
    hook: str
    seconds: float


def label(name: str, distribution: str, version: str) -> str:
    """A plugin as it is named to people."""
    if not distribution:
        return name
    return f"{name} ({distribution} {version})" if version else f"{name} ({distribution})"


def contained(error: BaseException) -> PluginError:
    """An error in place of one that would end the process or a task if it were let through."""
    text = str(error)
    return PluginError(f"raised {type(error).__name__}{f': {text}' if text else ''}")


async def containing(function: Callable[[], Awaitable[T]]) -> T:
    """Call code of a plugin and await it. What it raises to end the process becomes a
    `PluginError`."""
    try:
        return await function()
    except (SystemExit, KeyboardInterrupt) as error:
        raise contained(error) from error
