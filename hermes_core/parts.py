"""Text going out, cut to what a platform takes."""

from __future__ import annotations

import re
from collections.abc import Callable

MAX_TAG = 40
"""Characters of a code block's language tag that are kept when a text is cut."""
MAX_CLOSING = 21
"""Room for a line that closes a code block: a line break and a marker of up to 20 characters."""
SMALLEST_FENCED = 200
"""Below this limit code blocks are cut like any text: there is no room for repairs."""
_FENCE = re.compile(r" {0,3}(`{3,20}(?=[^`]*$)|~{3,20}(?!~))(.*)")
"""CommonMark 4.5: what follows the backticks that open a block has none itself."""
_LONG_TAG = re.compile(
    rf"^( {{0,3}}(?:`{{3,20}}|~{{3,20}})[^`~\n]{{{MAX_TAG}}})[^`\n]+$", re.MULTILINE
)


def split(text: str, limit: int, length: Callable[[str], int] = len) -> list[str]:
    """Cut `text` into parts of at most `limit`, as `length` measures.

    Cuts after a line break where the part would still be half full, else after a space, else
    anywhere between two code points, each of which counts at least one. One that counts more than
    `limit` is a part of its own.

    A code block that is cut is closed at the end of the part and opened again, with its language,
    at the beginning of the next. Without those repairs the parts joined are `text` again; only what
    follows the first `MAX_TAG` characters of a language tag is left out, in a text that is cut.
    """
    if len(text) <= limit and length(text) <= limit:
        return [text] if text else []
    fenced = limit >= SMALLEST_FENCED and ("```" in text or "~~~" in text)
    if fenced:
        text = _LONG_TAG.sub(r"\1", text)
    parts: list[str] = []
    start = 0
    fence: str | None = None
    while start < len(text):
        opening = f"{fence}\n" if fence else ""
        room = limit - length(opening) - (MAX_CLOSING if fenced else 0)
        # No more than could fit is looked at: a long text is cut in linear time.
        part = _first(text[start : start + room + 1], room, length)
        start += len(part)
        fence = _open_fence(part, fence) if fenced else None
        parts.append(opening + part + _closing(part, fence))
    return parts


def _open_fence(part: str, fence: str | None) -> str | None:
    """The line that opened the code block in which `part` ends, None outside of any.

    `fence` is the one in which it began.
    """
    for line in part.splitlines():
        found = _FENCE.match(line)
        if found is None:
            continue
        if fence is None:
            fence = line[: MAX_TAG + MAX_CLOSING].rstrip()
        elif found[1].startswith(_marker(fence)) and not found[2].strip():
            fence = None
    return fence


def _closing(part: str, fence: str | None) -> str:
    if fence is None:
        return ""
    return ("" if part.endswith("\n") else "\n") + _marker(fence)


def _marker(fence: str) -> str:
    found = _FENCE.match(fence)
    assert found is not None
    return found[1]


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
