"""Lists that decide who may speak: what an entry may look like, and what is said in vain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hermes_core.config.convert import Converter, describe_value
from hermes_core.config.positions import KeyPath
from hermes_core.config.sections import ACCESS_KEYS, AccountKeys
from hermes_core.files import shown
from hermes_core.names import is_user_name

if TYPE_CHECKING:
    from hermes_core.platforms import Platform

_SEPARATORS = ",;\"'`"


def normalizer_of(platform: Platform) -> Callable[[str], str] | None:
    """The platform's own form of a user id, None when ids are taken as they are."""
    found = getattr(platform.adapter, "normalize_user_id", None)
    return found if callable(found) else None


def check_entries(
    converter: Converter, table: Mapping[str, object], path: KeyPath, platform: Platform
) -> None:
    """Report entries of the lists in `table` that can match nobody."""
    checker = _Checker(converter, platform)
    for name in ("allowed_users", "admins"):
        checker.users(table.get(name), (*path, name))
    checker.groups(table.get("allowed_groups"), (*path, "allowed_groups"))
    checker.commands(table.get("commands"), (*path, "commands"))
    groups = table.get("groups")
    for chat_id, own in groups.items() if isinstance(groups, dict) else ():
        place = (*path, "groups", chat_id)
        checker.groups([chat_id], place[:-1], named=True)
        if isinstance(own, dict):
            checker.users(own.get("allowed_users"), (*place, "allowed_users"))
            checker.commands(own.get("commands"), (*place, "commands"))


@dataclass
class _Checker:
    converter: Converter
    platform: Platform

    def users(self, entries: object, path: KeyPath) -> None:
        normalize = normalizer_of(self.platform)
        resolves = hasattr(self.platform.adapter, "resolve_user_ids")
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if not isinstance(entry, str):
                continue  # reported with its type
            problem = _entry_problem(entry)
            if not problem and normalize is not None and not (resolves and is_user_name(entry)):
                problem = _normalized_problem(entry, normalize, self.platform.name)
            if problem:
                self.converter.fault((*path, index), problem=problem)

    def groups(self, entries: object, path: KeyPath, *, named: bool = False) -> None:
        for index, entry in enumerate(entries if isinstance(entries, list) else ()):
            if isinstance(entry, str) and (problem := _entry_problem(entry)):
                self.converter.fault((*path, entry if named else index), problem=problem)

    def commands(self, table: object, path: KeyPath) -> None:
        for name, entries in table.items() if isinstance(table, dict) else ():
            self.users(entries, (*path, name))


def check_effect(
    converter: Converter,
    keys: AccountKeys,
    table: Mapping[str, object],
    path: KeyPath,
    platform: Platform,
) -> None:
    """Warn when an account opens or closes in a way that its author may not have meant."""
    listed = bool(keys.allowed_users or keys.allowed_groups)
    somebody = listed or keys.pairing or any(own.allowed_users for own in keys.groups.values())
    if keys.allow_all and listed:
        converter.warn(
            (*path, "allow_all"), problem="everybody may speak: the lists beside it have no effect"
        )
    elif not (keys.allow_all or somebody or keys.admins or platform.implicit):
        written = next((name for name in ACCESS_KEYS if name in table), None)
        where = path if written is None else (*path, written)
        converter.warn(
            where,
            problem="nobody is on a list: only a plugin's authorize hook can let anyone speak",
            hint='list ids in allowed_users = ["..."], or open it to all with allow_all = true',
        )


def _entry_problem(entry: str) -> str:
    if not entry.strip():
        return "an empty entry"
    if entry == "*":
        return '"*" is an ordinary text here: to let everybody speak, write allow_all = true'
    if entry != entry.strip():
        return f"white space around {describe_value(entry.strip())}"
    if not entry.isprintable():
        return f'a character that cannot be seen in "{shown(entry)}"'
    if any(separator in entry for separator in _SEPARATORS) or " #" in entry:
        return f"expected one id, found {describe_value(entry)}: write each id as its own text"
    return ""


def _normalized_problem(entry: str, normalize: Callable[[str], str], platform: str) -> str:
    try:
        normal: object = normalize(entry)
    except ValueError as error:
        reason = shown(str(error)) or "it is refused"
        return f"{describe_value(entry)} can never be a user id on {platform}: {reason}"
    except Exception as error:  # a plugin's fault: the entry cannot be used either way
        kind = type(error).__name__
        return f"{describe_value(entry)}: normalize_user_id of {platform} failed with {kind}"
    if not (isinstance(normal, str) and normal):
        return f"{describe_value(entry)}: normalize_user_id of {platform} gave no id"
    return ""
