"""NIP-OA: a tag in which an owner says that a key is their agent."""

from __future__ import annotations

import re
from hashlib import sha256

import msgspec

from hermes_buzz.keys import verify

_NUMBER = r"(?:0|[1-9][0-9]*)"
_CLAUSE = re.compile(rf"kind=(?P<kind>{_NUMBER})|created_at[<>](?P<date>{_NUMBER})", re.ASCII)
_KEY = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SIGNATURE = re.compile(r"[0-9a-f]{128}", re.ASCII)
_MAX_KIND = 65535
_MAX_DATE = 4294967295


class OwnerTag(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``["auth", owner, conditions, signature]``."""

    name: str
    owner: str
    conditions: str
    signature: str

    @property
    def tag(self) -> tuple[str, str, str, str]:
        return (self.name, self.owner, self.conditions, self.signature)

    def covers(self, kind: int, date: int) -> bool:
        """Whether the tag may be put on an event of that kind and date."""
        return all(_holds(clause, kind, date) for clause in _clauses(self.conditions))

    def holds_for(self, agent: str) -> bool:
        """Whether the owner really signed this for the agent with that public key."""
        text = f"nostr:agent-auth:{agent}:{self.conditions}"
        digest = sha256(text.encode()).digest()
        return self.owner != agent and verify(self.owner, digest, self.signature)


def parse(text: str) -> OwnerTag:
    """The tag written as JSON. Raises ValueError saying what is wrong with its form."""
    try:
        tag = msgspec.json.decode(text, type=OwnerTag)
    except msgspec.DecodeError:
        raise ValueError('expected ["auth", owner, conditions, signature] as JSON') from None
    if tag.name != "auth":
        raise ValueError('the tag does not begin with "auth"')
    if not _KEY.fullmatch(tag.owner) or not _SIGNATURE.fullmatch(tag.signature):
        raise ValueError("owner and signature are 64 and 128 lower-case hexadecimal digits")
    for clause in _clauses(tag.conditions):
        match = _CLAUSE.fullmatch(clause)
        if match is None or not _in_range(match["kind"], match["date"]):
            raise ValueError("a condition is not kind=N, created_at<T or created_at>T")
    return tag


def _clauses(conditions: str) -> list[str]:
    return conditions.split("&") if conditions else []


def _holds(clause: str, kind: int, date: int) -> bool:
    if clause.startswith("kind="):
        return int(clause.removeprefix("kind=")) == kind
    limit = int(clause[len("created_at<") :])
    return date < limit if clause.startswith("created_at<") else date > limit


def _in_range(kind: str | None, date: str | None) -> bool:
    return int(kind or 0) <= _MAX_KIND and int(date or 0) <= _MAX_DATE
