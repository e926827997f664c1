"""From a home to what a gateway runs: settings, plugins, scopes. Reads; makes nothing but the
scopes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_core.config import Document, ProfileSettings, load_profile, read_document
from hermes_core.errors import ConfigError
from hermes_core.plugins import Hooks, load_plugins
from hermes_core.profiles import DEFAULT_PROFILE, ProfileScope, ProfileSecrets, create_uuid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_core.home import Home


@dataclass(frozen=True)
class Plan:
    """What is to be run: the hook runner and, for each profile to serve, its scope."""

    hooks: Hooks
    scopes: tuple[ProfileScope, ...]

    @property
    def settings(self) -> ProfileSettings:
        """The settings of the default profile, which are the gateway's too."""
        return self.scopes[0].settings


def prepare(
    home: Home,
    *,
    extra: Sequence[object] = (),
    installed: bool = True,
    disabled: Sequence[str] = (),
) -> Plan:
    """Read the settings, load the plugins, make the scopes.

    `extra` are plugins that are not installed (see `load_plugins`); without `installed` they are
    the only ones. `disabled` are more names of plugins not to load. Raises ConfigError with every
    fault. The directories of `home` must exist.
    """
    document = _document(home)
    named = _plugin_names(document)
    hooks = load_plugins(
        disabled=(*named.get("disabled", ()), *disabled),
        required=named.get("required", ()),
        extra=extra,
        path=None if installed else (),
    )
    secrets = ProfileSecrets.load(home.config_dir(), DEFAULT_PROFILE, os.environ)
    settings = load_profile(
        document,
        DEFAULT_PROFILE,
        platforms={name: owned.value for name, owned in hooks.platforms.items()},
        agents={name: owned.value for name, owned in hooks.agents.items()},
        sections={name: owned.value.type for name, owned in hooks.sections.items()},
        secrets=secrets,
    )
    scope = ProfileScope(
        name=DEFAULT_PROFILE,
        uuid=create_uuid(home.state_dir()),
        config_dir=home.config_dir(),
        state_dir=home.state_dir(),
        settings=settings,
        secrets=secrets,
        hidden=secrets.names(),
        variables=_variables(),
    )
    return Plan(hooks, (scope,))


def _document(home: Home) -> Document | None:
    """The settings file as it is, before anybody knows what plugins declare; None without one."""
    if os.environ.get("HERMES_IGNORE_USER_CONFIG") == "1":
        return None
    path = home.config_file()
    return read_document(path) if os.path.lexists(path) else None


def _plugin_names(document: Document | None) -> dict[str, tuple[str, ...]]:
    """``[plugins]``, needed before the rest can be checked. Its types are checked with the rest."""
    table: Any = document.data.get("plugins", {}) if document is not None else {}
    if not isinstance(table, dict):
        raise ConfigError("expected a table", where="[plugins]")
    return {
        key: tuple(name for name in value if isinstance(name, str))
        for key, value in table.items()
        if isinstance(value, list)
    }


def _variables() -> dict[str, str]:
    home = os.environ.get("HERMES_HOME")
    return {"HERMES_HOME": home} if home else {}
