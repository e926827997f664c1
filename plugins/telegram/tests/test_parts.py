from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_core import utf16_length
from hermes_telegram.parts import Part, split

LINES = st.lists(
    st.one_of(
        st.sampled_from(["```", "```python", "~~~", "````", "", "> ```"]),
        st.text(alphabet="ab `~😀", max_size=90),
    ),
    max_size=60,
).map("\n".join)


def balanced(part: Part) -> bool:
    """A fence counter of its own: a fence is closed by one of its kind, at least as long."""
    fence = ""
    for line in part.text.split("\n"):
        bare = line.lstrip("> \t")
        run = len(bare) - len(bare.lstrip(bare[:1])) if bare[:1] in {"`", "~"} else 0
        if run < 3 or "`" in bare[run:]:
            continue
        if not fence:
            fence = bare[:run]
        elif bare[0] == fence[0] and run >= len(fence) and not bare[run:].strip():
            fence = ""
    return not fence


@given(LINES, st.integers(min_value=1, max_value=600))
@example("```\n" + "x\n" * 300 + "```", 200)
def test_parts_keep_the_limit_and_join_to_the_text(text: str, limit: int) -> None:
    limit = max(limit, 2)  # one character outside the basic plane
    parts = split(text, limit, utf16_length)
    assert "".join(part.body for part in parts) == text
    assert all(utf16_length(part.text) <= limit for part in parts)


@given(LINES, st.integers(min_value=200, max_value=600))
def test_every_part_but_a_full_last_one_has_balanced_fences(text: str, limit: int) -> None:
    *parts, last = split(text, limit, utf16_length) or [Part("")]
    assert all(balanced(part) for part in parts)
    assert balanced(last) or utf16_length(last.text) > limit - 17


@pytest.mark.case("DL-03")
def test_a_code_block_that_is_cut_stays_one_in_each_part() -> None:
    code = [f"line_{number} = {number}" for number in range(300)]
    text = "\n".join(["Here it is:", "", "```python", *code, "```", "", "That was it."])
    parts = split(text, 2000, utf16_length)
    assert len(parts) > 2
    assert all(balanced(part) and utf16_length(part.text) <= 2000 for part in parts)
    assert all(part.text.startswith("```python\n") for part in parts[1:])
    inside = [line for part in parts for line in part.text.split("\n") if line.startswith("line_")]
    assert inside == code


@pytest.mark.case("DL-03")
def test_a_language_of_three_thousand_characters_fills_no_part() -> None:
    text = "```" + "x" * 3000 + "\n" + "code\n" * 600 + "```"
    parts = split(text, 2000, utf16_length)
    assert all(utf16_length(part.text) <= 2000 and balanced(part) for part in parts)
    assert "".join(part.body for part in parts) == text


@pytest.mark.case("DL-01")
@pytest.mark.parametrize("text", ["😀" * 5000, "a" + "🙂" * 2048])
def test_lengths_are_utf16_units(text: str) -> None:
    parts = split(text, 4096, utf16_length)
    assert "".join(part.text.encode().decode() for part in parts) == text
    assert max(utf16_length(part.text) for part in parts) <= 4096
