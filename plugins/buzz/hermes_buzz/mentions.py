"""Who is meant: names and keys in a text, and never in its code."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hermes_buzz import nip19

MAX_MENTIONS = 50
"""p-tags that the relay takes in one event."""

_FENCE = re.compile(r"^ {0,3}(?P<mark>`{3,}|~{3,})[^\n]*\n?(?:.*?\n)?? {0,3}(?:(?P=mark)[`~]*[ \t]*$|\Z)", re.M | re.S)
_SPAN = re.compile(r"(?<!`)(?P<mark>`+)(?!`).+?(?<!`)(?P=mark)(?!`)", re.S)
_KEY = re.compile(r"(?<![0-9A-Za-z])(?:nostr:)?@?(?P<npub>npub1[02-9ac-hj-np-z]{58})(?![0-9a-z])")
_AT = re.compile(r"(?<![\w@/.])@(?=\w)")


def without_code(text: str) -> str:
    """`text` with code blocks and code spans blanked out, everything else in its place."""
    for pattern in (_FENCE, _SPAN):
        text = pattern.sub(lambda match: " " * len(match[0]), text)
    return text


def mentioned(text: str, names: Mapping[str, str]) -> list[str]:
    """The public keys that `text` mentions outside code, in order, at most `MAX_MENTIONS`.

    A mention is an npub or ``@name``; `names` maps folded names to keys. Of several names that fit,
    the longest counts.
    """
    prose = without_code(text)
    found: list[tuple[int, str]] = []
    for match in _KEY.finditer(prose):
        try:
            found.append((match.start(), nip19.public_key(match["npub"])))
        except ValueError:
            continue
    if names:
        found += _by_name(prose, names)
    return list(dict.fromkeys(key for _, key in sorted(found)))[:MAX_MENTIONS]


def _by_name(prose: str, names: Mapping[str, str]) -> list[tuple[int, str]]:
    ordered = sorted(names, key=len, reverse=True)
    found = []
    for match in _AT.finditer(prose):
        rest = prose[match.end() : match.end() + 200].casefold()
        for name in ordered:
            if rest.startswith(name) and not _continues(rest[len(name) : len(name) + 1]):
                found.append((match.start(), names[name]))
                break
    return found


def _continues(character: str) -> bool:
    return character.isalnum() or character in ("_", "-") if character else False
