"""The JSON document of an event: one shape for all. `event.schema.json` is its schema."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from hermes_core import jsonable

REDACTED = "[redacted]"


def facts_of(values: Mapping[str, object]) -> tuple[dict[str, object], bool]:
    """The arguments of a hook as plain JSON values, and whether they had to be cut."""
    found, cut = jsonable({name: value for name, value in values.items() if name != "scope"})
    assert isinstance(found, dict)
    return found, cut


def tool_of(values: Mapping[str, object]) -> str | None:
    """The name of the tool that an event is about, None when it is about none."""
    call = values.get("call")
    name = call.get("name") if isinstance(call, dict) else getattr(call, "name", None)
    return name if isinstance(name, str) else None


def document(
    facts: Mapping[str, object],
    *,
    event: str,
    profile: str,
    delivery_id: str,
    created_at: float,
    cut: bool,
    redact: Collection[str],
    mask: Callable[[str], str],
) -> bytes:
    """The body of a delivery. `redact` names keys whose values are left out, wherever they are;
    `mask` takes known secrets out of texts. Strict JSON in UTF-8."""
    hidden = frozenset(key.casefold() for key in redact)
    facts = dict(facts)
    encode = partial(
        _encode,
        hidden=hidden,
        event=event,
        profile=profile,
        delivery_id=delivery_id,
        created_at=created_at,
        cut=cut,
    )
    if not hidden:
        body = encode(facts)
        text = body.decode()
        if mask(text) == text:  # the usual case: there is nothing to take out
            return body
    return encode(_clean(facts, hidden, mask))


def _encode(
    facts: dict[str, Any],
    *,
    hidden: frozenset[str],
    event: str,
    profile: str,
    delivery_id: str,
    created_at: float,
    cut: bool,
) -> bytes:
    call, extra = facts.get("call"), _flat(facts)
    about = call if isinstance(call, dict) else {}
    tool_input = about.get("input") if isinstance(about.get("input"), dict) else None
    if tool_input is not None and "tool_input" in hidden:
        tool_input = dict.fromkeys(tool_input, REDACTED)
    if about:
        extra.pop("input", None)
        extra.pop("name", None)
    if cut:
        extra["truncated"] = True
    when = datetime.fromtimestamp(created_at, UTC).isoformat(timespec="milliseconds")
    return msgspec.json.encode(
        {
            "hook_event_name": event,
            "profile": profile,
            "session_id": _id(facts, "session_id"),
            "turn_id": _id(facts, "turn_id"),
            "tool_name": about.get("name"),
            "tool_input": tool_input,
            "cwd": _cwd(),
            "extra": extra,
            "delivery_id": delivery_id,
            "timestamp": when.removesuffix("+00:00") + "Z",
        }
    )


def _flat(clean: dict[str, Any]) -> dict[str, Any]:
    """The facts of a hook's one argument by themselves: ``turn.outcome`` becomes ``outcome``."""
    extra: dict[str, Any] = {}
    for name, value in clean.items():
        if isinstance(value, dict) and len(clean) == 1:
            extra.update(value)
        else:
            extra[name] = value
    return extra


def _id(clean: Mapping[str, Any], key: str) -> str | None:
    """The id of that name, at the top of an argument or in the turn within it."""
    for value in clean.values():
        if isinstance(value, dict):
            found = value.get(key) or _id({"": value.get("turn")}, key)
            if isinstance(found, str):
                return found
    return None


def _clean(value: Any, hidden: frozenset[str], mask: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {
            mask(key): REDACTED if key.casefold() in hidden else _clean(inner, hidden, mask)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_clean(inner, hidden, mask) for inner in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        shown = mask(str(value))  # a secret of digits alone is a number to JSON
        return value if shown == str(value) else shown
    return value


def _cwd() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - a text is wanted, for every event
    except OSError:  # the directory was removed under the process
        return ""
