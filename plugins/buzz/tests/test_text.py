"""Threads and mentions: what tags and text mean."""

from __future__ import annotations

import pytest

from hermes_buzz import nip19
from hermes_buzz.events import Event
from hermes_buzz.mentions import MAX_MENTIONS, mentioned, without_code
from hermes_buzz.threads import Place, place_of, reply_tags

A, B, C = "a" * 64, "b" * 64, "c" * 64
NPUB_A = nip19.npub(A)


def event(*tags: tuple[str, ...], kind: int = 9) -> Event:
    return Event(id=C, pubkey=C, created_at=1, kind=kind, tags=tags, content="", sig="0" * 128)


@pytest.mark.parametrize(
    ("tags", "place"),
    [
        ([], Place()),
        ([("e", A, "", "reply")], Place(A, A)),
        ([("e", A, "", "root"), ("e", B, "", "reply")], Place(A, B)),
        ([("e", B, "", "reply"), ("e", A, "", "root")], Place(A, B)),
        ([("e", A, "", "root")], Place()),
        ([("e", A, "", "mention")], Place()),
        ([("e", C, "", "mention"), ("e", A, "", "reply")], Place(A, A)),
        ([("e", A), ("e", B)], Place(A, B)),
        ([("e", A)], Place(A, A)),
        ([("e", "short", "", "reply")], Place()),
        ([("e", "x" * 64, "", "reply")], Place()),
        ([("e", A.upper(), "", "reply")], Place()),
        ([("e",)], Place()),
        ([("p", A), ("h", "c")], Place()),
    ],
)
def test_where_a_message_stands(tags: list[tuple[str, ...]], place: Place) -> None:
    assert place_of(event(*tags)) == place


def test_only_messages_stand_in_threads() -> None:
    assert place_of(event(("e", A, "", "reply"), kind=7)) == Place()


@pytest.mark.parametrize(("root", "parent"), [(A, A), (A, B)])
def test_a_reply_is_read_as_it_was_written(root: str, parent: str) -> None:
    assert place_of(event(*reply_tags(root, parent))) == Place(root, parent)


NAMES = {"alice": A, "alice b": B, "zoë": C}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("nothing here", []),
        ("@alice", [A]),
        ("hi @Alice, hello", [A]),
        ("hi @ALICE B!", [B]),
        ("@alicea @alice_x @alice-x", []),
        ("mail alice@alice.example and https://x.example/@alice", []),
        ("@Zoë and @alice", [C, A]),
        ("@bob", []),
        (f"nostr:{NPUB_A}", [A]),
        (f"see {NPUB_A}.", [A]),
        (f"@{NPUB_A} @alice", [A]),
        (f"x{NPUB_A}", []),
        (NPUB_A[:-1] + "q", []),
        ("`@alice`", []),
        ("`` ` @alice ``", []),
        ("`@alice", [A]),
        ("```\n@alice\n```\n@zoë", [C]),
        ("```py\n@alice", []),
        ("~~~\n@alice\n~~~", []),
        ("    code? @alice", [A]),
    ],
)
def test_who_is_mentioned(text: str, keys: list[str]) -> None:
    assert mentioned(text, NAMES) == keys


def test_mentions_are_bounded() -> None:
    keys = [f"{number:064x}" for number in range(MAX_MENTIONS + 10)]
    assert mentioned(" ".join(map(nip19.npub, keys)), {}) == keys[:MAX_MENTIONS]


def test_blanking_code_keeps_every_place() -> None:
    text = "a `b` c\n```\nd\n```\ne"
    assert without_code(text) == "a     c\n   \n \n   \ne"
