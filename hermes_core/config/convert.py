"""From the values of a TOML table to a typed section, reporting every fault and not only the
first."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from hermes_core.config.document import Document
from hermes_core.config.positions import KeyPath
from hermes_core.config.sections import MISPLACED_KEYS
from hermes_core.errors import Fault, PluginError
from hermes_core.files import shown
from hermes_core.names import did_you_mean
from hermes_core.secrets import REFERENCE_FORMS, SecretSource, UnresolvedSecret
from hermes_core.settings import DURATION_FORM, Bounds, Duration, Secret, SecretText, decode_hook

StructT = TypeVar("StructT", bound=msgspec.Struct)

SECURITY_TABLES = ("authorization", "platforms")
"""The tables that decide who may speak: what they say in vain is an error, not a warning."""

_SHOWN_LENGTH = 60


class FieldInfo(msgspec.Struct, frozen=True):
    """One field of a section: its type, and whether the file has to say it."""

    name: str
    type: Any
    required: bool


def fields_of(section: type[msgspec.Struct]) -> dict[str, FieldInfo]:
    """The fields of a section by the name they have in the file. Raises PluginError."""
    try:
        return {
            item.encode_name: FieldInfo(item.name, item.type, item.required)
            for item in msgspec.structs.fields(section)
        }
    except (NameError, TypeError) as error:
        raise PluginError(
            f"the types of {section.__qualname__} cannot be read: {error}",
            where=section.__module__,
            remedy="import the names of its annotations at run time, not under TYPE_CHECKING",
        ) from error


def holds_secret(kind: Any) -> bool:
    """Whether a value of this type is, or contains, a `Secret`."""
    return kind is Secret or any(holds_secret(inner) for inner in get_args(kind))


def mentions_access(value: object) -> bool:
    """Whether a key in `value`, however deep, can only mean to decide who may speak."""
    if isinstance(value, dict):
        return any(key in MISPLACED_KEYS or mentions_access(inner) for key, inner in value.items())
    return isinstance(value, list) and any(mentions_access(inner) for inner in value)


@dataclass
class Converter:
    """Converts the tables of one document and collects what is wrong with them."""

    document: Document
    secrets: SecretSource
    faults: list[Fault] = field(default_factory=list)
    warnings: list[Fault] = field(default_factory=list)

    def section(self, section: type[StructT], table: object, path: KeyPath) -> StructT | None:
        """The typed section, or None when there was a fault."""
        if not isinstance(table, Mapping):
            self._expected(path, "a table", table)
            return None
        known = fields_of(section)
        self.unknown_keys(table, known, path)
        before = len(self.faults)
        values: dict[str, Any] = {}
        for key, info in known.items():
            if key in table:
                values[info.name] = self.value(info.type, table[key], (*path, key))
            elif info.required:
                self._missing(info.type, (*path, key))
        if len(self.faults) > before:
            return None
        try:
            return section(**values)
        except (ValueError, TypeError) as error:  # raised by __post_init__
            self.fault(path, problem=shown(str(error)))
            return None

    def value(self, kind: Any, found: object, path: KeyPath) -> Any:
        """`found` as a value of type `kind`. After a fault the result has no meaning."""
        convert = _converter_of(_strip_optional(kind))
        return convert(self, _strip_optional(kind), found, path)

    def fault(self, path: KeyPath, *, problem: str, hint: str = "") -> None:
        self.faults.append(self.document.fault(path, problem=problem, hint=hint))

    def warn(self, path: KeyPath, *, problem: str, hint: str = "") -> None:
        self.warnings.append(self.document.fault(path, problem=problem, hint=hint))

    def unknown_keys(
        self, table: Mapping[str, object], known: Iterable[str], path: KeyPath
    ) -> None:
        """Report the keys of `table` that mean nothing: faults where it decides who may speak."""
        names = list(known)
        for key, value in table.items():
            if key not in names:
                strict = path[0] in SECURITY_TABLES or mentions_access({key: value})
                report = self.fault if strict else self.warn
                report((*path, key), problem="unknown key", hint=did_you_mean(key, names))

    def _expected(self, path: KeyPath, expected: str, found: object, hint: str = "") -> None:
        self.faults.append(
            self.document.fault(path, expected=expected, found=describe_value(found), hint=hint)
        )

    def _missing(self, kind: Any, path: KeyPath) -> None:
        expected = describe_type(kind)
        self.faults.append(
            self.document.fault(
                path, expected=expected, found="nothing", problem=f"missing: expected {expected}"
            )
        )

    # How each kind of type is converted; `_converter_of` chooses.

    def _struct(self, kind: type[msgspec.Struct], found: object, path: KeyPath) -> object:
        return self.section(kind, found, path)

    def _list(self, kind: Any, found: object, path: KeyPath) -> object:
        if not isinstance(found, list):
            self._expected(path, describe_type(kind), found)
            return None
        inner, make = get_args(kind)[0], get_origin(kind)
        return make(self.value(inner, item, (*path, index)) for index, item in enumerate(found))

    def _mapping(self, kind: Any, found: object, path: KeyPath) -> object:
        if not isinstance(found, dict):
            self._expected(path, describe_type(kind), found)
            return None
        inner = get_args(kind)[1]
        return {key: self.value(inner, item, (*path, key)) for key, item in found.items()}

    def _secret(self, kind: Any, found: object, path: KeyPath) -> object:
        if not isinstance(found, str):
            self.faults.append(
                self.document.fault(path, expected=describe_type(kind), found=kind_of_value(found))
            )
            return None
        try:
            return Secret(self.secrets.resolve(found))
        except UnresolvedSecret as error:
            self.fault(path, problem=shown(str(error)))
        except ValueError:
            self.faults.append(
                self.document.fault(
                    path,
                    expected=describe_type(kind),
                    found="a plain text",
                    hint="keep the secret in secrets.env and refer to it",
                )
            )
        return None

    def _duration(self, kind: Any, found: object, path: KeyPath) -> object:
        limits = next((item for item in get_args(kind) if isinstance(item, Bounds)), Bounds())
        try:
            duration = Duration.parse(found)
        except ValueError:
            self._expected(path, describe_type(kind), found)
            return None
        if not limits.minimum <= duration <= limits.maximum:
            self._expected(path, describe_type(kind), found)
            return None
        return duration

    def _other(self, kind: Any, found: object, path: KeyPath) -> object:
        try:
            return msgspec.convert(found, kind, dec_hook=self._decode_hook)
        except msgspec.ValidationError as error:
            known = len(self.faults)
            if get_origin(kind) is Annotated and isinstance(found, list):
                self.value(get_args(kind)[0], found, path)  # the items that are wrong
            if len(self.faults) > known:
                return None
            hint = ""
            if get_origin(kind) is Literal and isinstance(found, str):
                hint = did_you_mean(found, [str(choice) for choice in get_args(kind)])
                hint = hint if hint.startswith("did") else ""
            if isinstance(found, (dict, list)) and " - at `" in str(error):
                self.fault(path, problem=shown(str(error)))
            else:
                self._expected(path, describe_type(kind), found, hint)
            return None

    def _decode_hook(self, expected: type[Any], found: object) -> object:
        if expected is Secret and isinstance(found, str):
            try:
                return Secret(self.secrets.resolve(found))
            except UnresolvedSecret as error:
                raise ValueError(str(error)) from None
        return decode_hook(expected, found)


def _strip_optional(kind: Any) -> Any:
    """``X`` for ``X | None``: TOML has no null, so the key is either there or not."""
    if get_origin(kind) in (Union, types.UnionType):
        inner = [item for item in get_args(kind) if item is not type(None)]
        return inner[0] if len(inner) == 1 else kind
    return kind


def _converter_of(kind: Any) -> Callable[[Converter, Any, object, KeyPath], Any]:
    plain = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if plain is Secret:
        return Converter._secret
    if plain is Duration:
        return Converter._duration
    if _is_plain_struct(plain):
        return Converter._struct
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (list, frozenset, set) or (origin is tuple and arguments[1:] == (...,)):
        return Converter._list
    if origin is dict and arguments[0] is str:
        return Converter._mapping
    return Converter._other


def _is_plain_struct(kind: Any) -> bool:
    """A table with fields of its own; a tagged one is a choice that msgspec has to make."""
    return (
        isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and kind.__struct_config__.tag is None
    )


def kind_of_value(value: object) -> str:
    """What a TOML value is, without the value."""
    kinds: tuple[tuple[Any, str], ...] = (
        (bool, "true or false"),
        (str, "a text"),
        ((int, float), "a number"),
        ((list, tuple), "a list"),
        (Mapping, "a table"),
        ((datetime, date, time), "a date or time"),
    )
    return next((name for kind, name in kinds if isinstance(value, kind)), "something else")


def describe_value(value: object) -> str:
    """A TOML value for a message: short ones as they are written, others by kind."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"the number {value!r}"
    if isinstance(value, str):
        cut = value if len(value) <= _SHOWN_LENGTH else value[:_SHOWN_LENGTH] + "…"
        return f'"{shown(cut)}"'
    if value == []:
        return "an empty list"
    return kind_of_value(value)


def describe_type(kind: Any) -> str:
    """What a field of this type takes, in words."""
    kind = _strip_optional(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _describe_annotated(arguments)
    if origin is Literal:
        return "one of " + ", ".join(_describe_choice(choice) for choice in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(describe_type(item) for item in arguments)
    if origin in (list, tuple, set, frozenset):
        return f"a list of {_plural(describe_type(arguments[0]))}"
    return _describe_plain(kind)


def _describe_choice(choice: object) -> str:
    return f'"{choice}"' if isinstance(choice, str) else str(choice)


def _describe_plain(kind: Any) -> str:
    names: dict[Any, str] = {
        str: "a text",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        Duration: DURATION_FORM,
        Secret: f"a reference to a secret: {REFERENCE_FORMS}",
        SecretText: f"a reference to a secret: {REFERENCE_FORMS}",
    }
    if kind in names:
        return names[kind]
    is_table = get_origin(kind) is dict or (
        isinstance(kind, type) and issubclass(kind, (msgspec.Struct, dict))
    )
    return "a table" if is_table else getattr(kind, "__name__", "another kind of value")


def _describe_annotated(arguments: tuple[Any, ...]) -> str:
    text = describe_type(arguments[0])
    limits: list[str] = []
    for item in arguments[1:]:
        if isinstance(item, Bounds):
            default = Bounds()
            if item.minimum != default.minimum:
                limits.append(f"at least {Duration.text(item.minimum)}")
            if item.maximum != default.maximum:
                limits.append(f"at most {Duration.text(item.maximum)}")
        elif isinstance(item, msgspec.Meta):
            limits += _describe_meta(item)
    return ", ".join([text, *limits])


def _describe_meta(meta: msgspec.Meta) -> list[str]:
    words = {
        "ge": "at least {}",
        "gt": "more than {}",
        "le": "at most {}",
        "lt": "less than {}",
        "min_length": "at least {} long",
        "max_length": "at most {} long",
        "pattern": "of the form {}",
    }
    return [
        text.format(limit)
        for name, text in words.items()
        if (limit := getattr(meta, name)) is not None
    ]


def _plural(words: str) -> str:
    article, _, rest = words.partition(" ")
    return f"{rest}s" if article in ("a", "an") and " " not in rest else f"({words})"
