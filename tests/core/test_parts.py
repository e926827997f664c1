"""Text going out is cut to what a platform takes."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import utf16_length
from hermes_core.parts import split

printed = st.text(st.sampled_from("ab \n\U0001f600\u0301é"), max_size=300)


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


# ── code blocks ──────────────────────────────────────────────────────────────────────────────────

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
lines = st.one_of(
    st.text("ab `~", max_size=30),
    st.sampled_from(["```", "~~~", "````", "```python", "~~~ text", "  ```", "", "x" * 150]),
)


def open_block(text: str) -> str | None:
    """The marker of the code block in which `text` ends, read as a person reads it."""
    marker: str | None = None
    for line in text.split("\n"):
        found = FENCE.match(line)
        if found is None or (found[1][0] == "`" and "`" in found[2]):
            continue
        if marker is None:
            marker = found[1]
        elif found[1].startswith(marker) and not found[2].strip():
            marker = None
    return marker


@pytest.mark.case("DL-03")
@pytest.mark.parametrize("tag", ["python", "x" * 3000], ids=["a tag", "a very long tag"])
def test_a_code_block_that_is_cut_stays_a_code_block(tag: str) -> None:
    code = [f"line {number}: {'=' * (number % 40)}" for number in range(300)]
    text = "\n".join(["Before.", f"```{tag}", *code, "```", "After."])
    parts = split(text, 2000)
    assert len(parts) > 3
    assert all(len(part) <= 2000 and open_block(part) is None for part in parts)
    assert all(part.startswith(f"```{tag[:40]}\n") for part in parts[1:-1])
    shown = [line for part in parts for line in part.split("\n") if not FENCE.match(line)]
    assert [line for line in shown if line] == ["Before.", *code, "After."]


@given(st.lists(lines, max_size=40).map("\n".join), st.integers(200, 400))
@pytest.mark.case("DL-03")
def test_every_part_is_whole_and_nothing_is_left_out(text: str, limit: int) -> None:
    parts = split(text, limit)
    assert all(0 < len(part) <= limit for part in parts)
    for part in parts[:-1]:
        assert open_block(part) is None
    shown = "".join(line for part in parts for line in part.split("\n") if not FENCE.match(line))
    assert shown == "".join(line for line in text.split("\n") if not FENCE.match(line))
