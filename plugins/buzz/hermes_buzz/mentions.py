"""Who is meant: names and keys in a text, and never in its code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from hermes_buzz import nip19

MAX_MENTIONS = 50
"""p-tags that the relay takes in one event."""

_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})(?P<rest>.*)")
_SPAN = re.compile(r"(?<!`)(?P<mark>`+)(?!`).+?(?<!`)(?P=mark)(?!`)", re.DOTALL)
_KEY = re.compile(r"(?<![0-9A-Za-z])(?:nostr:)?@?(?P<npub>npub1[02-9ac-hj-np-z]{58})(?![0-9a-z])")
_AT = re.compile(r"(?<![\w@/.])@(?=\w)")


def without_code(text: str) -> str:
    """`text` with code blocks and code spans blanked out, everything else in its place."""
    return _SPAN.sub(lambda match: _blank(match[0]), "\n".join(_without_blocks(text)))


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


def _without_blocks(text: str) -> Iterator[str]:
    """The lines of a text, those of its code blocks blank. An open block ends with the text."""
    fence = ""
    for line in text.split("\n"):
        match = _FENCE.fullmatch(line)
        inside = bool(fence)
        if fence and match and match["mark"].startswith(fence) and not match["rest"].strip():
            fence = ""
        elif not fence and match and (match["mark"][0] == "~" or "`" not in match["rest"]):
            fence = match["mark"]
        yield _blank(line) if inside or fence else line


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)
