"""The plugins as a command sees them: found and loaded by the gateway's own routine."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

from hermes_core.errors import HermesError
from hermes_core.plugins.loading import load

if TYPE_CHECKING:
    from hermes_core.cli.invocation import Invocation
    from hermes_core.config import Checked, Declarations, Document
    from hermes_core.plugins.loading import Loaded
    from hermes_core.profiles import ProfileSecrets


def load_installed(invocation: Invocation, *, quiet: bool = False) -> Loaded:
    """Load the plugins as the gateway would with the present settings.

    Unless `quiet`, what is wrong with the settings is told on the standard error: a list of plugins
    is what a person needs then.
    """
    named: dict[str, tuple[str, ...]] = {}
    try:
        named = _named(invocation)
    except HermesError as error:
        from hermes_core.cli.streams import complain

        if not quiet:
            complain(f"{error}\nAll installed plugins are loaded, as if [plugins] were empty.")
    # What a plugin prints while it is imported is not the answer to the command.
    with contextlib.redirect_stdout(sys.stderr):
        return load(disabled=named.get("disabled", ()), required=named.get("required", ()))


def declarations(document: Document | None) -> Declarations:
    """What the installed plugins that `document` does not switch off declare about settings."""
    from hermes_core.config import plugin_settings

    disabled = plugin_settings(document).disabled if document is not None else ()
    with contextlib.redirect_stdout(sys.stderr):
        return declared_by(load(disabled=disabled))


def declared_by(loaded: Loaded) -> Declarations:
    """What these plugins declare about settings."""
    from hermes_core.config import Declarations

    return Declarations(
        platforms={name: owned.value for name, owned in loaded.platforms.items()},
        agents={name: owned.value for name, owned in loaded.agents.items()},
        sections={name: owned.value.type for name, owned in loaded.sections.items()},
    )


def secrets_of(invocation: Invocation) -> ProfileSecrets:
    """The secrets of the profile in question. Raises ConfigError when its file cannot be used."""
    from hermes_core.profiles import DEFAULT_PROFILE, ProfileSecrets

    profile = invocation.profile
    environment = os.environ if profile == DEFAULT_PROFILE else None
    return ProfileSecrets.load(invocation.home.config_dir(profile), profile, environment)


def check_document(
    invocation: Invocation, document: Document | None, declared: Declarations
) -> Checked:
    """What is wrong with a settings file of the profile in question, and what it says."""
    from hermes_core.config import check_profile

    return check_profile(document, invocation.profile, declared, secrets_of(invocation))


def _named(invocation: Invocation) -> dict[str, tuple[str, ...]]:
    """The names under ``[plugins]`` in the settings of the default profile."""
    path = invocation.home.config_file()
    if os.environ.get("HERMES_IGNORE_USER_CONFIG") == "1" or not os.path.lexists(path):
        return {}
    from hermes_core.config.document import read_document

    table: Any = read_document(path).data.get("plugins")
    if not isinstance(table, dict):
        return {}
    return {
        key: tuple(name for name in value if isinstance(name, str))
        for key, value in table.items()
        if isinstance(value, list)
    }
