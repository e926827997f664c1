"""Cutting a long Markdown text into parts, so that a code block that is cut stays one in each."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

_FENCE = re.compile(r"[ \t>]*(?P<marker>`{3,16}|~{3,16})(?P<info>[^`\n]*)")
_MAX_LANGUAGE = 40
"""A longer language is not repeated: it would fill the part."""
_SMALLEST = 200
"""Below this limit fences are not repaired: the repairs would leave no room for text."""


class Part(msgspec.Struct, frozen=True):
    """A piece of a text. The bodies joined are the text; the other two are repairs."""

    body: str
    opening: str = ""
    closing: str = ""

    @property
    def text(self) -> str:
        return f"{self.opening}{self.body}{self.closing}"


class _Fence(msgspec.Struct, frozen=True):
    marker: str
    language: str

    @property
    def opening(self) -> str:
        return f"{self.marker}{self.language}\n"


def split(text: str, limit: int, length: Callable[[str], int] = len) -> list[Part]:
    """Cut `text` into parts whose `text` is at most `limit`, as `length` measures.

    Cuts after a line break where the part would still be half full, else after a space, else
    anywhere between two code points. A code block that is open at a cut is closed there and opened
    again in the next part.
    """
    parts: list[Part] = []
    fence: _Fence | None = None
    while text:
        opening = fence.opening if fence else ""
        # A closing repair is a line break and a marker; the marker is 16 characters at most.
        reserve = length(opening) + 17 if limit >= _SMALLEST else 0
        if length(opening) + length(text) <= limit:
            parts.append(Part(text, opening, _closing(text, _after(text, fence))))
            if length(parts[-1].text) > limit:
                parts[-1] = Part(text, opening)
            break
        end = _cut(text, max(1, limit - reserve), length)
        body, text = text[:end], text[end:]
        fence = _after(body, fence) if limit >= _SMALLEST else None
        parts.append(Part(body, opening, _closing(body, fence)))
    return parts


def _closing(body: str, fence: _Fence | None) -> str:
    if fence is None:
        return ""
    return fence.marker if body.endswith("\n") else f"\n{fence.marker}"


def _after(body: str, fence: _Fence | None) -> _Fence | None:
    """The code block that is open at the end of `body`, if `fence` was at its beginning."""
    for line in body.split("\n"):
        match = _FENCE.match(line)
        if match is None:
            continue
        marker, info = match["marker"], match["info"].strip()
        if fence is None:
            words = info.split()
            language = words[0] if words and len(words[0]) <= _MAX_LANGUAGE else ""
            fence = _Fence(marker, language)
        elif marker[0] == fence.marker[0] and len(marker) >= len(fence.marker) and not info:
            fence = None
    return fence


def _cut(text: str, room: int, length: Callable[[str], int]) -> int:
    """Where to end a part that may be `room` long."""
    low, high = 1, min(len(text), room)
    while low < high:
        middle = (low + high + 1) // 2
        if length(text[:middle]) <= room:
            low = middle
        else:
            high = middle - 1
    for mark in ("\n", " "):
        at = text.rfind(mark, low // 2, low)
        if at >= 0:
            return at + 1
    return low
