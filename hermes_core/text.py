"""Text from outside, made safe to store, and text going out, cut to what a platform takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from hermes_core.messages import Inbound, decode_inbound, encode

T = TypeVar("T")
REPLACEMENT = "\ufffd"


def clean(text: str) -> str:
    """`text` without NUL and lone surrogates, which databases refuse; each becomes U+FFFD."""
    text = text.replace("\x00", REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def encode_clean(event: Inbound) -> bytes:
    """`event` as stored JSON, with every text in it cleaned."""
    try:
        payload = encode(event)
    except UnicodeEncodeError:
        payload = b"\\u0000"
    if b"\\u0000" not in payload:
        return payload
    return encode(_cleaned(msgspec.to_builtins(event)))


def cleaned(event: Inbound) -> Inbound:
    """`event` as it reads once it was stored."""
    return decode_inbound(encode_clean(event))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {key: _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value


def split(text: str, limit: int, length: Callable[[str], int] = len) -> list[str]:
    """Cut `text` into parts of at most `limit`, as `length` measures; joined they are `text` again.

    Cuts after a line break where the part would still be half full, else after a space, else
    anywhere between two code points, each of which counts at least one. One that counts more than
    `limit` is a part of its own.
    """
    parts: list[str] = []
    start = 0
    while start < len(text):
        # No more than could fit is looked at: a long text is cut in linear time.
        part = _first(text[start : start + limit + 1], limit, length)
        parts.append(part)
        start += len(part)
    return parts


def _first(text: str, limit: int, length: Callable[[str], int]) -> str:
    """The first part of `text`."""
    if length(text) <= limit:
        return text
    end = _longest(text, limit, length)
    for mark in ("\n", " "):
        at = text.rfind(mark, end // 2, end)
        if at >= 0:
            return text[: at + 1]
    return text[:end]


def _longest(text: str, limit: int, length: Callable[[str], int]) -> int:
    """The longest prefix within `limit`, at least one code point."""
    low, high = 1, min(len(text), limit)
    while low < high:
        middle = (low + high + 1) // 2
        if length(text[:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return low
