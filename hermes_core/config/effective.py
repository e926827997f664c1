"""The settings of a profile in effect, defaults included, as plain tables that TOML can write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hermes_core.config.document import Document
from hermes_core.config.positions import KeyPath
from hermes_core.config.sections import ProfileSettings
from hermes_core.redaction import MASK
from hermes_core.settings import Duration, Secret, SecretText


def effective(settings: ProfileSettings, document: Document) -> dict[str, Any]:
    """Every table with every key that has a value. Secrets show as the references of `document`."""
    plain = _Plain(document)
    tables: dict[str, Any] = {
        name: plain(getattr(settings, name), (name,))
        for name in ("gateway", "sessions", "retention", "authorization", "plugins")
    }
    agent = settings.agent
    tables["agent"] = {"use": agent.use, "send_files_from": list(agent.send_files_from)} | {
        name: plain(table, ("agent", name)) for name, table in agent.tables.items()
    }
    platforms: dict[str, Any] = {}
    for account in settings.accounts:
        table = platforms.setdefault(account.platform, {})
        path: KeyPath = ("platforms", account.platform)
        if account.account != "default":
            path = (*path, "accounts", account.account)
            table = table.setdefault("accounts", {}).setdefault(account.account, {})
        keys = plain(account, path)
        table.update(keys.pop("settings"), **keys)
        del table["platform"], table["account"]
    tables["platforms"] = platforms
    for name, section in settings.sections.items():
        _place(tables, name.split("."), plain(section, tuple(name.split("."))))
    return tables


def _place(tables: dict[str, Any], path: list[str], value: object) -> None:
    for part in path[:-1]:
        tables = tables.setdefault(part, {})
    tables[path[-1]] = value


class _Plain:
    def __init__(self, document: Document) -> None:
        self._document = document

    def __call__(self, value: Any, path: KeyPath) -> Any:
        if isinstance(value, Secret):
            written = self._document.at(path)
            return written if isinstance(written, str) else MASK
        if isinstance(value, SecretText):
            return value.reveal() if value.is_reference else MASK
        if isinstance(value, Duration):
            return Duration.text(value)
        if isinstance(value, msgspec.Struct):
            value = self._fields(value)
        if isinstance(value, Mapping):
            return {key: self(inner, (*path, key)) for key, inner in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return [self(inner, (*path, place)) for place, inner in enumerate(value)]
        if isinstance(value, float) and value.is_integer():
            return int(value)  # written so, whether it was 60 or 60.0 in the file or the default
        return value

    def _fields(self, struct: msgspec.Struct) -> dict[str, Any]:
        """The fields as the file calls them; TOML has no word for what is not set."""
        names = zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
        values = ((encoded, getattr(struct, name)) for name, encoded in names)
        return {name: value for name, value in values if value is not None}
