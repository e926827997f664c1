"""Settings files: read, check, convert. `docs/settings.md` is the manual.

A name is loaded when it is first asked for: a command that lists plugins reads no settings.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_core.config.document import (
        Document as Document,
    )
    from hermes_core.config.document import (
        parse_document as parse_document,
    )
    from hermes_core.config.document import (
        read_document as read_document,
    )
    from hermes_core.config.load import (
        Checked as Checked,
    )
    from hermes_core.config.load import (
        Declarations as Declarations,
    )
    from hermes_core.config.load import (
        SectionType as SectionType,
    )
    from hermes_core.config.load import (
        check_profile as check_profile,
    )
    from hermes_core.config.load import (
        load_profile as load_profile,
    )
    from hermes_core.config.load import (
        plugin_settings as plugin_settings,
    )
    from hermes_core.config.load import (
        user_config_ignored as user_config_ignored,
    )
    from hermes_core.config.sections import (
        AccountSettings as AccountSettings,
    )
    from hermes_core.config.sections import (
        AgentSettings as AgentSettings,
    )
    from hermes_core.config.sections import (
        AuthorizationSettings as AuthorizationSettings,
    )
    from hermes_core.config.sections import (
        GatewaySettings as GatewaySettings,
    )
    from hermes_core.config.sections import (
        PluginSettings as PluginSettings,
    )
    from hermes_core.config.sections import (
        ProfileSettings as ProfileSettings,
    )
    from hermes_core.config.sections import (
        RetentionSettings as RetentionSettings,
    )
    from hermes_core.config.sections import (
        SessionSettings as SessionSettings,
    )

_HOMES = {
    "document": "Document parse_document read_document",
    "load": "Checked Declarations SectionType check_profile load_profile plugin_settings"
    " user_config_ignored",
    "sections": "AccountSettings AgentSettings AuthorizationSettings GatewaySettings"
    " PluginSettings ProfileSettings RetentionSettings SessionSettings",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
