"""``[platforms.X]``: the accounts of a profile.

The table of a platform mixes the core's keys with those of the plugin. It is the account
``default`` itself and the base of every account under ``[platforms.X.accounts.NAME]``: an account
takes over each key that it does not write, except secrets. A table that has accounts and none of
the keys that the plugin requires is a base only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hermes_core.config.access import check_effect, check_entries
from hermes_core.config.convert import Converter, FieldInfo, fields_of, holds_secret
from hermes_core.config.positions import KeyPath
from hermes_core.config.sections import ACCESS_KEYS, AccountKeys, AccountSettings
from hermes_core.errors import PluginError
from hermes_core.names import account_name_problem, did_you_mean, near_miss

if TYPE_CHECKING:
    from hermes_core.platforms import Platform

RESERVED_KEYS = frozenset({"accounts", *AccountKeys.__struct_fields__})
"""Keys of ``[platforms.X]`` that a plugin's own section cannot have."""


def plugin_fields(platform: Platform) -> dict[str, FieldInfo]:
    """The keys that the platform's plugin reads. Raises PluginError for one that is the core's."""
    fields = fields_of(platform.settings)
    if taken := sorted(RESERVED_KEYS.intersection(fields)):
        raise PluginError(
            f"the settings of the platform {platform.name} have a key of the core: {taken[0]}",
            where=platform.settings.__module__,
            remedy="rename the field",
        )
    return fields


@dataclass
class AccountReader:
    """Reads the accounts of one document."""

    converter: Converter
    platforms: Mapping[str, Platform]

    def read(self, agents: tuple[str, ...]) -> tuple[AccountSettings, ...]:
        """Every account that is switched on, in the order of the file, implicit ones last."""
        tables = self.converter.document.data.get("platforms", {})
        if not isinstance(tables, dict):
            self.converter.fault(("platforms",), problem="expected tables: [platforms.NAME]")
            return ()
        found: list[AccountSettings] = []
        for name, table in tables.items():
            if name in self.platforms:
                found += self._accounts_of(self.platforms[name], table)
            else:
                self._absent(name, table)
        for name, platform in self.platforms.items():
            if platform.implicit and name not in tables:
                found += self._accounts_of(platform, {})
        for account in found:
            self._check_agent(account, agents)
        return tuple(found)

    def _accounts_of(self, platform: Platform, table: object) -> Iterator[AccountSettings]:
        path: KeyPath = ("platforms", platform.name)
        if not isinstance(table, dict):
            self.converter.fault(path, problem=f"expected a table: [platforms.{platform.name}]")
            return
        fields = plugin_fields(platform)
        own = {key: value for key, value in table.items() if key != "accounts"}
        accounts = self._sub_accounts(table, path)
        if _is_account(own, table, fields, implicit=platform.implicit):
            if "default" in accounts:
                self.converter.fault(
                    (*path, "accounts", "default"),
                    problem=f"the table [platforms.{platform.name}] is the account default already",
                )
            yield from self._account(platform, "default", own, {}, path)
        else:
            self.converter.unknown_keys(own, [*RESERVED_KEYS, *fields], path)
        base = {
            key: value
            for key, value in own.items()
            if key not in fields or not holds_secret(fields[key].type)
        }
        for name, written in accounts.items():
            yield from self._account(platform, name, written, base, (*path, "accounts", name))

    def _sub_accounts(self, table: Mapping[str, Any], path: KeyPath) -> dict[str, dict[str, Any]]:
        accounts = table.get("accounts", {})
        if not isinstance(accounts, dict):
            self.converter.fault((*path, "accounts"), problem="expected tables: [….accounts.NAME]")
            return {}
        found: dict[str, dict[str, Any]] = {}
        for name, account in accounts.items():
            problem = account_name_problem(name)
            if not isinstance(account, dict):
                problem = problem or "expected a table"
            if problem:
                self.converter.fault((*path, "accounts", name), problem=problem)
            else:
                found[name] = account
        return found

    def _account(
        self,
        platform: Platform,
        account: str,
        written: Mapping[str, Any],
        base: Mapping[str, Any],
        path: KeyPath,
    ) -> Iterator[AccountSettings]:
        """One account or, when it is switched off or has faults, none."""
        fields = plugin_fields(platform)
        values = {**base, **written}
        if values.get("enabled") is False:
            return
        self.converter.unknown_keys(written, [*RESERVED_KEYS - {"accounts"}, *fields], path)
        core = {key: value for key, value in values.items() if key in RESERVED_KEYS}
        plugin = {key: value for key, value in values.items() if key in fields}
        keys = self.converter.section(AccountKeys, core, path)
        settings = self.converter.section(platform.settings, plugin, path)
        check_entries(self.converter, written, path, platform)
        if keys is None or settings is None:
            return
        check_effect(self.converter, keys, values, path, platform)
        core_values = {name: getattr(keys, name) for name in AccountKeys.__struct_fields__}
        yield AccountSettings(
            platform=platform.name, account=account, settings=settings, **core_values
        )

    def _check_agent(self, account: AccountSettings, agents: tuple[str, ...]) -> None:
        if account.agent is not None and account.agent not in agents:
            path: KeyPath = ("platforms", account.platform)
            if account.account != "default":
                path = (*path, "accounts", account.account)
            self.converter.fault(
                (*path, "agent"),
                problem=f'no plugin that is loaded brings the agent "{account.agent}"',
                hint=did_you_mean(account.agent, agents),
            )

    def _absent(self, name: str, table: object) -> None:
        problem = f'no plugin that is loaded brings the platform "{name}"'
        hint = did_you_mean(name, self.platforms)
        says_access = isinstance(table, dict) and any(key in table for key in ACCESS_KEYS)
        # A list under a mistyped name would close one platform and leave another one as it was.
        mistyped = says_access and near_miss(name, self.platforms, 0.75) != ""
        report = self.converter.fault if mistyped else self.converter.warn
        report(("platforms", name), problem=problem, hint=hint)


def _is_account(
    own: Mapping[str, Any],
    table: Mapping[str, Any],
    fields: Mapping[str, FieldInfo],
    *,
    implicit: bool,
) -> bool:
    if not table.get("accounts") or implicit:
        return True
    return any(key in own for key, field in fields.items() if field.required)
