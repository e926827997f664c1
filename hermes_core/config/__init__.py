"""Settings files: read, check, convert. `docs/settings.md` is the manual."""

from __future__ import annotations

from hermes_core.config.document import Document, parse_document, read_document
from hermes_core.config.load import (
    Checked,
    Declarations,
    SectionType,
    check_profile,
    load_profile,
    plugin_settings,
    user_config_ignored,
)
from hermes_core.config.sections import (
    AccountSettings,
    AgentSettings,
    AuthorizationSettings,
    GatewaySettings,
    PluginSettings,
    ProfileSettings,
    SessionSettings,
)

__all__ = [
    "AccountSettings",
    "AgentSettings",
    "AuthorizationSettings",
    "Checked",
    "Declarations",
    "Document",
    "GatewaySettings",
    "PluginSettings",
    "ProfileSettings",
    "SectionType",
    "SessionSettings",
    "check_profile",
    "load_profile",
    "parse_document",
    "plugin_settings",
    "read_document",
    "user_config_ignored",
]
