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
    from hermes_core.plugins.loading import Loaded


def load_installed(invocation: Invocation) -> Loaded:
    """Load the plugins as the gateway would with the present settings.

    What is wrong with the settings is told on the standard error: a list of plugins is what a
    person needs then.
    """
    named: dict[str, tuple[str, ...]] = {}
    try:
        named = _named(invocation)
    except HermesError as error:
        from hermes_core.cli.streams import complain

        complain(f"{error}\nAll installed plugins are shown as if [plugins] were empty.")
    # What a plugin prints while it is imported is not the answer to the command.
    with contextlib.redirect_stdout(sys.stderr):
        return load(disabled=named.get("disabled", ()), required=named.get("required", ()))


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
