"""From a home to what a gateway runs: plugins, and for each profile its settings, secrets, scope.

The environment of the process is cleared of secrets before any code of a plugin runs: every name
that a profile's file refers to, or that a `secrets.env` has, moves into the secrets of the default
profile. Names that plugins declare follow once they are loaded, before anything connects.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec

from hermes_core.config import (
    Declarations,
    Document,
    GatewaySettings,
    PluginSettings,
    ProfileSettings,
    check_profile,
    plugin_settings,
    read_document,
    user_config_ignored,
)
from hermes_core.config.document import MAX_SETTINGS_FILE
from hermes_core.errors import ConfigError, HermesError
from hermes_core.files import UnusableFile, read_bounded
from hermes_core.identity_locks import require_distinct
from hermes_core.plugins import Hooks, Owned, load_plugins
from hermes_core.profiles import (
    DEFAULT_PROFILE,
    ProfileScope,
    ProfileSecrets,
    create_uuid,
    existing_profiles,
    identify,
    no_profile,
    read_uuid,
    require_profile,
)
from hermes_core.redaction import Redactor
from hermes_core.secrets import read_secrets_file
from hermes_core.settings import SecretText, Settings, TableArray

if TYPE_CHECKING:
    from hermes_core.home import Home

log = logging.getLogger(__name__)

_REFERENCE = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_NAMED = re.compile(r"""secret_env["']?\s*=\s*["']([A-Za-z_][A-Za-z0-9_]*)""", re.ASCII)
"""A key that holds the bare name of a secret, as the outbound webhooks have it."""


@dataclass
class Guard:
    """Keeps secrets out of the environment of the process and out of its logs.

    `secrets` are those of the default profile, which owns the environment; `hidden` are the names
    that were taken out of it.
    """

    secrets: ProfileSecrets
    redactor: Redactor
    hidden: frozenset[str] = frozenset()

    def hide(self, names: Iterable[str]) -> None:
        """Move `names` out of the environment into the default profile's secrets."""
        wanted = frozenset(names)
        self.hidden |= wanted
        self.secrets.take_environment(wanted)
        self.redactor.add(self.secrets.values())


@dataclass
class Profiles:
    """Reads the profiles of one home: at the start, and again whenever their files change.

    `process` is what the default profile's file says about the gateway. Unless `makes`, it looks
    only: a profile that was never served has no identity.
    """

    home: Home
    hooks: Hooks
    guard: Guard
    process: GatewaySettings = field(default_factory=GatewaySettings)
    makes: bool = True

    def scope(self, name: str) -> ProfileScope:
        """The scope of a profile that is there. Makes its identity and its state directory when it
        has none yet. Raises ConfigError with every fault."""
        home = self.home
        if self.makes and name not in existing_profiles(home):
            raise no_profile(name)
        require_profile(home, name)
        settings, secrets = self.read(name)
        if not self.makes:
            uuid = read_uuid(home.state_dir(name)) or ""
        elif name == DEFAULT_PROFILE:
            uuid = create_uuid(home.state_dir())
        else:
            uuid = identify(home.config_dir(name), home.state_dir(name))
        return ProfileScope(
            name=name,
            uuid=uuid,
            config_dir=home.config_dir(name),
            state_dir=home.state_dir(name),
            settings=settings,
            secrets=secrets,
            hidden=self.guard.hidden,
            variables=self._variables(),
        )

    def read(
        self, name: str, disabled: Collection[str] | None = None
    ) -> tuple[ProfileSettings, ProfileSecrets]:
        """What the files of a profile say now. Raises ConfigError with every fault.

        `disabled` are the plugins that it does without, by default those that the file says. The
        process is the default profile's: `ProfileSettings.gateway` of every other one is its too.
        """
        if not (name == DEFAULT_PROFILE or self.home.config_dir(name).is_dir()):
            raise no_profile(name)
        self.guard.hide(_file_names(self.home))
        secrets = self._secrets(name)
        document = _document(self.home, name)
        if disabled is None:
            disabled = plugin_settings(document).disabled if document is not None else ()
        checked = check_profile(document, name, declared(self.hooks, disabled), secrets)
        self.guard.redactor.add(secrets.values())
        if checked.settings is None:
            raise ConfigError.of(checked.faults)
        if name == DEFAULT_PROFILE:
            self.process = checked.settings.gateway
        return replace(checked.settings, gateway=self.process), secrets

    def _secrets(self, name: str) -> ProfileSecrets:
        if name == DEFAULT_PROFILE:
            secrets = self.guard.secrets = self.guard.secrets.anew()
        else:
            secrets = ProfileSecrets.load(self.home.config_dir(name), name, None)
        self.guard.redactor.add(secrets.values())
        return secrets

    def _variables(self) -> dict[str, str]:
        """A child that works elsewhere must find the same home as this process."""
        return {"HERMES_HOME": str(self.home.state_root)} if os.environ.get("HERMES_HOME") else {}


@dataclass(frozen=True)
class Plan:
    """What is to be run: the hook runner and, for each profile to serve, its scope.

    `unserved` are the profiles that cannot be served now, each with the reason.
    """

    hooks: Hooks
    scopes: tuple[ProfileScope, ...]
    profiles: Profiles
    unserved: dict[str, str] = field(default_factory=dict)

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
    redactor: Redactor | None = None,
    only: str | None = None,
) -> Plan:
    """Read the settings, load the plugins, make the scopes. The default profile comes first.

    `extra` are plugins that are not installed (see `load_plugins`); without `installed` they are
    the only ones. `disabled` are more names of plugins not to load. `redactor` learns every secret.
    With `only`, no other profile is read than that one and the default one, and nothing is made.

    Raises ConfigError with every fault of the default profile, and when two accounts are the same
    bot. Another profile that is absent or has faults is left out, with the reason. The directories
    of `home` must exist.
    """
    document = _document(home, DEFAULT_PROFILE)
    secrets = ProfileSecrets.load(home.config_dir(), DEFAULT_PROFILE, os.environ)
    served = _served(document) if only is None else (DEFAULT_PROFILE, only)
    guard = Guard(secrets, redactor or Redactor())
    guard.hide(_file_names(home))
    choice = plugin_settings(document) if document is not None else PluginSettings()
    hooks = load_plugins(
        disabled=(*_disabled_everywhere(home, served, choice), *disabled),
        required=choice.required,
        extra=extra,
        path=None if installed else (),
    )
    guard.hide(_declared_names(hooks))
    return _plan(Profiles(home, hooks, guard, makes=only is None), served)


def _plan(profiles: Profiles, served: Sequence[str]) -> Plan:
    scopes = [profiles.scope(DEFAULT_PROFILE)]
    unserved: dict[str, str] = {}
    for name in served:
        if name != DEFAULT_PROFILE:
            try:
                scopes.append(profiles.scope(name))
            except HermesError as error:
                unserved[name] = str(error)
                log.error("the profile is not served: %s", error, extra={"profile": name})
    require_distinct(scopes)
    return Plan(profiles.hooks, tuple(scopes), profiles, unserved)


def declared(hooks: Hooks, disabled: Collection[str] = ()) -> Declarations:
    """What the loaded plugins declare about settings, without those that a profile disables."""

    def enabled(owned: Owned[object]) -> bool:
        return not owned.plugin.named_in(disabled)

    return Declarations(
        platforms={name: item.value for name, item in hooks.platforms.items() if enabled(item)},
        agents={name: item.value for name, item in hooks.agents.items() if enabled(item)},
        sections={name: item.value.type for name, item in hooks.sections.items() if enabled(item)},
    )


def _document(home: Home, profile: str) -> Document | None:
    """The settings file as it is, before anybody knows what plugins declare; None without one."""
    if user_config_ignored():
        return None
    path = home.config_file(profile)
    return read_document(path) if os.path.lexists(path) else None


def _served(document: Document | None) -> tuple[str, ...]:
    """``[gateway] profiles``, needed before the rest can be checked; its faults are told with the
    rest."""
    names = document.at(("gateway", "profiles")) if document is not None else None
    if not isinstance(names, list):
        return (DEFAULT_PROFILE,)
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))


def _disabled_everywhere(
    home: Home, served: Sequence[str], default: PluginSettings
) -> frozenset[str]:
    """The plugins that no profile wants: they are not loaded at all."""
    common = frozenset(default.disabled)
    for name in served:
        if common and name != DEFAULT_PROFILE:
            try:
                document = _document(home, name)
                common &= frozenset(plugin_settings(document).disabled if document else ())
            except ConfigError:
                continue  # it is not served, so it wants nothing
    return common


def _file_names(home: Home) -> frozenset[str]:
    """The names of secrets in the files of every profile that is there, served or not.

    Looks at the text, so that a file that is not valid TOML at present hides its names too.
    """
    found: set[str] = set()
    for profile in existing_profiles(home):
        # What is wrong with a file is told when its profile is read.
        with contextlib.suppress(OSError, UnusableFile):
            content = read_bounded(home.config_file(profile), limit=MAX_SETTINGS_FILE)
            text = content.decode("utf-8", "replace")
            found.update(_REFERENCE.findall(text), _NAMED.findall(text))
        with contextlib.suppress(ConfigError):
            found.update(read_secrets_file(home.secrets_file(profile)))
    return frozenset(found)


def _declared_names(hooks: Hooks) -> frozenset[str]:
    """The names that plugins declare by defaults of their settings: ``SecretText("env:NAME")``."""
    types: list[type[msgspec.Struct]] = []
    everything = declared(hooks)
    types += [platform.settings for platform in everything.platforms.values()]
    types += [agent.settings for agent in everything.agents.values()]
    for section in everything.sections.values():
        types.append(section.item if isinstance(section, TableArray) else section)
    return frozenset(name for kind in types for name in _default_names(kind))


def _default_names(kind: type[msgspec.Struct]) -> Iterable[str]:
    for item in msgspec.structs.fields(kind):
        default = item.default
        if isinstance(default, SecretText):
            yield from _REFERENCE.findall(default.reveal())
        elif isinstance(default, Settings):
            yield from _default_names(type(default))
