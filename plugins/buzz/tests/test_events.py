"""Events as another implementation of NIP-01 reads and writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_buzz.events import Draft, read_event
from hermes_buzz.keys import LocalSigner
from hermes_buzz.testing import Person
from hermes_buzz.testing.people import is_authentic

NASTY = [
    "",
    "plain",
    '"\\/\b\f\n\r\t',
    "".join(map(chr, range(1, 32))),
    "\x7f\x80\x9f",
    "\u2028\u2029\ufeff",
    "é e\u0301 \U0001f600",
    "</script>&<>'",
    "x" * 60_000,
]


@pytest.mark.parametrize("text", NASTY)
def test_our_events_are_authentic_to_others_and_theirs_to_us(text: str) -> None:
    signer = LocalSigner("5".zfill(64))
    draft = Draft(kind=9, created_at=1_700_000_000, tags=(("h", text), ("x",)), content=text)
    event = draft.signed(signer)
    assert is_authentic(json.loads(event.as_json()))
    assert draft.id_for(signer.public_key) == event.id

    theirs = Person("p").event(9, text, [["h", text], ["x"]], at=1_700_000_000)
    read = read_event(json.dumps(theirs))
    assert read is not None
    assert read.content == text


@given(st.text(st.characters(exclude_categories=["Cs"])), st.lists(st.text('ab"\\\n', max_size=5)))
def test_an_event_survives_the_wire(text: str, values: list[str]) -> None:
    draft = Draft(kind=1, created_at=1, tags=(("t", *values),), content=text)
    event = draft.signed(LocalSigner("5".zfill(64)))
    assert read_event(event.as_json()) == event


def test_signing_again_gives_the_same_id() -> None:
    signer = LocalSigner("5".zfill(64))
    draft = Draft(kind=9, created_at=7, content="once")
    assert draft.signed(signer).id == draft.signed(signer).id


def changed(**fields: Any) -> str:
    event = Person("p").event(9, "hello", [["h", "c"]], at=1_700_000_000)
    return json.dumps(event | fields)


OTHER = Person("q").event(9, "hello", [["h", "c"]], at=1_700_000_000)


@pytest.mark.parametrize(
    "data",
    [
        changed(content="hallo"),
        changed(created_at=1_700_000_001),
        changed(kind=1),
        changed(tags=[["h", "d"]]),
        changed(pubkey=OTHER["pubkey"]),
        changed(sig=OTHER["sig"]),
        changed(id="0" * 64),
        changed(id=OTHER["id"].upper()),
        changed(kind=70_000),
        changed(created_at=-1),
        changed(created_at=1.5),
        changed(tags=[[1]]),
        changed(tags={}),
        changed(content=None),
        "{}",
        "[]",
        "null",
        "",
        "{",
        '{"content":"\\ud800"}',
        '{"x":' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_what_is_forged_or_malformed_is_no_event(data: str) -> None:
    assert read_event(data) is None
