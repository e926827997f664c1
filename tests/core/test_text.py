"""Text from outside is made storable, and text going out is cut to what a platform takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import Message, Sender, encode, utf16_length
from hermes_core.messages import Address, Attachment, Inbound, decode_inbound
from hermes_core.text import REPLACEMENT, clean, cleaned, encode_clean, split

anything = st.text(
    st.one_of(st.characters(), st.characters(categories=["Cs"]), st.just("\x00")), max_size=40
)
"""Text as Python can hold it: lone surrogates and NUL included."""
printed = st.text(st.sampled_from("ab \n\U0001f600\u0301é"), max_size=300)


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
    stored = decode_inbound(encode_clean(event))
    assert stored == an_event(clean(text))
    assert cleaned(event) == stored


@given(st.text(max_size=40).filter(is_storable))
def test_an_event_without_fault_is_stored_as_it_is(text: str) -> None:
    event: Inbound = an_event(text)
    assert encode_clean(event) == encode(event)


@given(printed, st.integers(1, 40), st.sampled_from([len, utf16_length]))
@pytest.mark.case("DL-01")
def test_the_parts_are_the_text_again_and_each_fits(
    text: str, limit: int, length: Callable[[str], int]
) -> None:
    parts = split(text, limit, length)
    assert "".join(parts) == text
    assert all(parts)
    for part in parts:
        assert length(part) <= limit or len(part) == 1
        part.encode()
    # No more parts than it takes: each but the last is at least half full.
    assert all(len(part) >= min(limit // 4, len(part)) for part in parts[:-1])


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("one two three", 8, ["one two ", "three"]),
        ("one\ntwo three", 8, ["one\ntwo ", "three"]),
        ("aa bb\ncc dd", 9, ["aa bb\n", "cc dd"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("exact", 5, ["exact"]),
        ("", 5, []),
    ],
)
def test_cuts_after_a_line_else_after_a_word_else_anywhere(
    text: str, limit: int, expected: list[str]
) -> None:
    assert split(text, limit) == expected


@pytest.mark.case("DL-01")
def test_utf16_units_are_what_is_counted() -> None:
    parts = split("\U0001f600" * 5000, 4096, utf16_length)
    assert [utf16_length(part) for part in parts] == [4096, 4096, 1808]
    assert split("a" + "\U0001f642" * 2048, 4096, utf16_length) == [
        "a" + "\U0001f642" * 2047,
        "\U0001f642",
    ]


def test_a_character_beyond_the_limit_is_a_part_of_its_own() -> None:
    assert split("a\U0001f600b", 1, utf16_length) == ["a", "\U0001f600", "b"]


def test_a_long_text_is_measured_in_linear_time() -> None:
    measured = 0

    def length(text: str) -> int:
        nonlocal measured
        measured += len(text)
        return len(text)

    text = "word " * 40_000
    split(text, 100, length)
    # Each part by halving, so about seven times its own length.
    assert measured < 10 * len(text)
