"""Text from outside is made storable."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import Message, Sender, encode
from hermes_core.messages import Address, Attachment, Inbound, decode_inbound
from hermes_core.text import REPLACEMENT, clean, encode_clean

anything = st.text(
    st.one_of(st.characters(), st.characters(categories=["Cs"]), st.just("\x00")), max_size=40
)
"""Text as Python can hold it: lone surrogates and NUL included."""


def is_storable(text: str) -> bool:
    return "\x00" not in text and not any("\ud800" <= ch <= "\udfff" for ch in text)


@given(anything)
def test_clean_text_can_be_stored_anywhere(text: str) -> None:
    assert is_storable(clean(text))
    assert clean(clean(text)) == clean(text)


@given(st.text())
def test_text_without_fault_stays_as_it_is(text: str) -> None:
    assert clean(text) == text.replace("\x00", REPLACEMENT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\x00b", "a\ufffdb"),
        ("\ud83d", "\ufffd"),
        ("a\ud83db", "a\ufffdb"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83d\ude00", "\U0001f600"),
        ("\ufeffa", "\ufeffa"),
        ("", ""),
    ],
)
@pytest.mark.case("DB-13")
def test_each_fault_becomes_one_mark_and_a_whole_pair_its_character(
    text: str, expected: str
) -> None:
    assert clean(text) == expected


def an_event(text: str) -> Message:
    return Message(
        address=Address(platform="line", chat_id="c", thread_id=text),
        sender=Sender(id="u", name=text),
        event_id="e",
        text=text,
        quoted=text,
        attachments=(Attachment(ref=text, name=text),),
    )


@given(anything)
def test_every_text_of_a_stored_event_is_clean(text: str) -> None:
    event = an_event(text)
    assert decode_inbound(encode_clean(event)) == an_event(clean(text))


@given(st.text(max_size=40).filter(is_storable))
def test_an_event_without_fault_is_stored_as_it_is(text: str) -> None:
    event: Inbound = an_event(text)
    assert encode_clean(event) == encode(event)
