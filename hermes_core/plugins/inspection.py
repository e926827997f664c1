"""Which hooks an object implements, and whether each implementation keeps to its spec.

pluggy checks less than authors need: it lets keyword-only arguments, ``**kwargs``, a marked class
and an override that lost its marker pass, and the hook is then never called or called in vain.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import msgspec

from hermes_core.hookkinds import AdapterHook, Spec
from hermes_core.hookspecs import ALL, HOOK_API
from hermes_core.platforms import Adapter

_MARK = "hermes_impl"
"""Where `hookimpl` leaves its options, as pluggy names it."""

_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType)

MODULE_KINDS = frozenset({"collect", "decide", "notify"})
"""The kinds of hook that a plugin's module implements; the rest are for adapters."""
ADAPTER_KINDS = frozenset({AdapterHook.kind})
REQUIRED_OF_ADAPTERS = ("connect", "send")


class Implementation(msgspec.Struct, frozen=True):
    """One sound hook implementation. `arguments` are those it is to be called with, by name.

    `options` is what the author gave to `hookimpl`.
    """

    spec: Spec[..., object]
    function: Callable[..., object]
    arguments: tuple[str, ...]
    options: Mapping[str, object]


class Findings(msgspec.Struct):
    """What was found in one object: hooks by name, faults that forbid its use, and mere doubts."""

    hooks: dict[str, Implementation] = {}
    faults: list[str] = []
    doubts: list[str] = []


class _Member(msgspec.Struct, frozen=True):
    """An attribute: `raw` as it is stored, `bound` as it is called, and the class that stores
    it."""

    name: str
    raw: object
    bound: object
    owner: type | None = None

    @property
    def mark(self) -> dict[str, object] | None:
        raw: Any = self.raw
        mark = _own_dict(raw).get(_MARK)
        if mark is None and _is_a(raw, staticmethod, classmethod, MethodType):
            mark = _own_dict(raw.__func__).get(_MARK)
        return mark if isinstance(mark, dict) else None


def inspect_plugin(plugin: object) -> Findings:
    """The hooks of a plugin's module or instance."""
    members = _of_module(plugin) if isinstance(plugin, ModuleType) else _of_instance(plugin)
    findings, plain = _examine(members, MODULE_KINDS)
    findings.doubts += [_doubt(name) for name in plain if _is_hook(name, MODULE_KINDS)]
    if not findings.hooks and not findings.faults:
        findings.faults.append(_nothing_in(plugin))
    return findings


def inspect_adapter(adapter: object) -> Findings:
    """The hooks of an adapter's class, or of an instance, whose methods are then bound to it."""
    findings, plain = _examine(_of_instance(adapter), ADAPTER_KINDS)
    for name in REQUIRED_OF_ADAPTERS:
        if name not in findings.hooks and not any(name in fault for fault in findings.faults):
            hint = " (there is one without @hookimpl)" if name in plain else ""
            findings.faults.append(f"{name} is missing{hint}")
    findings.doubts += [
        _doubt(name)
        for name, member in plain.items()
        if _is_hook(name, ADAPTER_KINDS) and name not in findings.hooks and _is_authors(member)
    ]
    return findings


def _examine(
    members: Iterable[_Member], kinds: Collection[str]
) -> tuple[Findings, dict[str, _Member]]:
    """Judge what is marked. Also gives the functions that are not, without those they hide."""
    findings = Findings()
    seen: set[str] = set()
    plain: dict[str, _Member] = {}
    for member in members:
        if member.mark is None:
            if member.name not in seen and _is_a(member.bound, *_FUNCTIONS):
                plain[member.name] = member
        elif member.name in plain:
            findings.faults.append(
                f"{member.name} is not marked @hookimpl and hides the one of {_owner(member)}"
            )
        elif member.name not in seen:
            _judge(findings, member, kinds)
        seen.add(member.name)
    return findings, plain


def nearest(name: str, known: Collection[str]) -> str:
    """`` (did you mean X?)``, or nothing when no name of `known` is near."""
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _of_module(module: ModuleType) -> Iterator[_Member]:
    for name, value in list(vars(module).items()):
        imported = _is_a(value, FunctionType) and value.__module__ != module.__name__
        member = _Member(name, value, value)
        if not imported or member.mark is not None:
            yield member


def _of_instance(owner: object) -> Iterator[_Member]:
    """The attributes of an instance or a class, most derived first, hidden ones included."""
    if isinstance(owner, type):
        cls, instance = owner, object()
    else:
        cls, instance = type(owner), owner
        yield from (_Member(name, raw, raw) for name, raw in list(_own_dict(owner).items()))
    for base in cls.__mro__:
        for name, raw in list(vars(base).items()):
            if _is_a(raw, FunctionType, staticmethod, classmethod):
                yield _Member(name, raw, raw.__get__(instance, cls), base)
            else:
                yield _Member(name, raw, raw, base)


def _is_a(thing: Any, *kinds: type) -> bool:
    """As `isinstance`, which may run code of the thing's class."""
    return issubclass(type(thing), kinds)


def _own_dict(owner: object) -> Mapping[str, object]:
    """What is stored in `owner` itself. Runs no code of its class, which may be a lazy proxy."""
    try:
        found = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, Mapping) else {}


def _judge(findings: Findings, member: _Member, kinds: Collection[str]) -> None:
    """Add a marked member to the hooks or to the faults."""
    mark = member.mark or {}
    hook = str(mark.get("specname") or member.name)
    spec = ALL.get(hook)
    if not _is_a(member.bound, *_FUNCTIONS):
        findings.faults.append(f"{member.name} is marked @hookimpl and is not a function")
    elif mark.get("wrapper") or mark.get("hookwrapper"):
        findings.faults.append(f"{member.name} is a wrapper; hooks of Hermes have no wrappers")
    elif spec is None:
        if not mark.get("optionalhook"):
            near = nearest(hook, [name for name in ALL if _is_hook(name, kinds)])
            findings.faults.append(
                f"{member.name} implements the hook {hook}, which hook API {HOOK_API} "
                f"does not have{near}"
            )
    elif spec.kind not in kinds:
        place = "a method of an adapter" if spec.kind == "adapter" else "a function of the module"
        findings.faults.append(f"{member.name} is in the wrong place: {hook} is {place}")
    elif faults := list(_faults(member, spec)):
        findings.faults += faults
    else:
        known = parameters(spec.function)
        arguments = tuple(name for name in parameters(member.bound) if name in known)
        function: Any = member.bound
        findings.hooks[hook] = Implementation(spec, function, arguments, mark)


def _faults(member: _Member, spec: Spec[..., object]) -> Iterator[str]:
    """Why an implementation cannot be called as its spec says."""
    function = member.bound
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        yield f"{member.name} is a generator"
    if inspect.iscoroutinefunction(function) and _must_be_plain(spec):
        yield f"{member.name} is async; {spec.name} is called as a plain function"
    if spec.name == "normalize_user_id" and not isinstance(member.raw, staticmethod):
        yield f"{member.name} is not a @staticmethod; it is called without an instance"
    known = parameters(spec.function)
    for name, parameter in parameters(function).items():
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            yield f"{member.name} takes {parameter}; arguments are passed as plain names"
        elif name not in known and parameter.default is parameter.empty:
            yield (
                f"{member.name} takes {name!r}, which {spec.name}({', '.join(known)}) "
                f"does not have{nearest(name, known)}"
            )


def _must_be_plain(spec: Spec[..., object]) -> bool:
    return spec.kind == "collect" or spec.name == "normalize_user_id"


def parameters(function: object) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name, in order."""
    assert callable(function)
    return dict(inspect.signature(function).parameters)


def _is_hook(name: str, kinds: Collection[str]) -> bool:
    return name in ALL and ALL[name].kind in kinds


def _doubt(name: str) -> str:
    return f"{name} is not marked @hookimpl and is not called"


def _is_authors(member: _Member) -> bool:
    return member.owner is not None and issubclass(member.owner, Adapter)


def _owner(member: _Member) -> str:
    return member.owner.__qualname__ if member.owner is not None else "the instance"


def _nothing_in(plugin: object) -> str:
    if isinstance(plugin, type):
        return "is a class; the entry point has to lead to a module or to an instance"
    if isinstance(plugin, ModuleType):
        return "has no function that is marked @hookimpl"
    return f"is {_a(type(plugin).__name__)} with no method that is marked @hookimpl"


def _a(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"
