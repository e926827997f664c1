from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import utf16_length
from hermes_core.parts import split
from hermes_telegram.render import Rendered, render

MARKDOWN = st.text(
    alphabet=st.sampled_from("ab \n*_~`#>-+1.)[](!|\\&:/htps😀é\t\u00a0\ud800<"), max_size=120
)


def shown(rendered: Rendered) -> list[tuple[str, str]]:
    """Each span and the text it covers."""
    units = rendered.text.encode("utf-16-le", "surrogatepass")
    return [
        (
            span.kind,
            units[2 * span.offset : 2 * (span.offset + span.length)].decode("utf-16-le"),
        )
        for span in rendered.spans
    ]


@pytest.mark.parametrize(
    ("markdown", "text", "spans"),
    [
        ("plain", "plain", []),
        ("a **b** c", "a b c", [("bold", "b")]),
        ("*a* _b_ ~~c~~", "a b c", [("italic", "a"), ("italic", "b"), ("strikethrough", "c")]),
        ("**a *b* c**", "a b c", [("bold", "a b c"), ("italic", "b")]),
        ("`x*y*`", "x*y*", [("code", "x*y*")]),
        ("**a `b` c**", "a b c", [("bold", "a "), ("code", "b"), ("bold", " c")]),
        ("# Head\ntext", "Head\ntext", [("bold", "Head")]),
        ("# **Head**", "Head", [("bold", "Head")]),
        ("```py\nx = 1\n```", "x = 1", [("pre", "x = 1")]),
        ("```\nnever closed", "never closed", [("pre", "never closed")]),
        ("- a\n- b", "• a\n• b", []),
        ("1. a\n2. b\n   - c", "1. a\n2. b\n  • c", []),
        ("> a\n> b", "a\nb", [("blockquote", "a\nb")]),
        ("text\n---\nmore", "text\n———\nmore", []),
        ("[x](https://e.org/)", "x", [("text_link", "x")]),
        ("[x](notes.md)", "x (notes.md)", []),
        ("[x](javascript:alert(1))", "[x](javascript:alert(1))", []),
        ("![cat](https://e.org/c.png)", "cat", [("text_link", "cat")]),
        ("| a |\n|---|\n| 1 |", "| a |\n|---|\n| 1 |", [("pre", "| a |\n|---|\n| 1 |")]),
        (
            "snake_case_name and 2*3*4 and a * b",
            "snake_case_name and 234 and a * b",
            [("italic", "3")],
        ),
        ("<b>no</b>", "<b>no</b>", []),
        ("😀 **b**", "😀 b", [("bold", "b")]),
        ("a\nb", "a\nb", []),
        ("one\n\ntwo", "one\n\ntwo", []),
        ("\\*kept\\*", "*kept*", []),
    ],
)
def test_markdown_is_shown(markdown: str, text: str, spans: list[tuple[str, str]]) -> None:
    rendered = render(markdown)
    assert rendered.text == text
    assert shown(rendered) == spans


def test_a_code_block_keeps_its_language() -> None:
    (span,) = render("```python title=x\npass\n```").spans
    assert span.language == "python"


def test_the_offsets_count_utf16_units() -> None:
    (span,) = render("😀😀 `é`").spans
    assert (span.offset, span.length) == (5, 1)


@given(MARKDOWN)
def test_no_text_breaks_it(markdown: str) -> None:
    rendered = render(markdown)
    end = utf16_length(rendered.text)
    assert end <= utf16_length(markdown)
    assert bool(rendered.text.strip()) == bool(markdown.strip())
    for span in rendered.spans:
        assert span.offset >= 0
        assert span.length > 0
        assert span.offset + span.length <= end
    for one, next_one in pairwise(rendered.spans):
        apart = next_one.offset >= one.offset + one.length
        inside = next_one.offset + next_one.length <= one.offset + one.length
        assert apart or inside


@given(MARKDOWN)
def test_code_is_neither_inside_anything_nor_around_it(markdown: str) -> None:
    spans = render(markdown).spans
    for code in (span for span in spans if span.kind in {"code", "pre"}):
        for other in spans:
            apart = (
                other.offset >= code.offset + code.length
                or code.offset >= other.offset + other.length
            )
            assert other is code or apart


@given(st.text(alphabet="abc xyz😀é", max_size=80))
def test_words_stay_as_they_are(text: str) -> None:
    assert render(text).text.split() == text.split()


def test_deep_nesting_is_text_and_no_error() -> None:
    assert render("> " * 5000 + "x").text.endswith("x")
    assert "x" in render("*" * 5000 + "x" + "*" * 5000).text
    assert "x" in render("[" * 5000 + "x" + "](y)" * 100).text


@given(
    st.lists(st.one_of(MARKDOWN, st.sampled_from(["```", "```py", "x = 1"])), max_size=40).map(
        "\n".join
    )
)
def test_every_part_of_a_long_text_fits_when_it_is_shown(text: str) -> None:
    for part in split(text, 200, utf16_length):
        assert utf16_length(render(part).text) <= 200


@pytest.mark.case("DL-03")
def test_code_that_is_cut_is_code_in_every_part_and_complete() -> None:
    code = [f"line_{number} = {number}" for number in range(300)]
    text = "\n".join(["Here it is:", "", "```python", *code, "```", "", "That was it."])
    parts = [render(part) for part in split(text, 2000, utf16_length)]
    blocks = [covered for part in parts for kind, covered in shown(part) if kind == "pre"]
    assert len(blocks) == len(parts)
    assert "\n".join(blocks).split("\n") == code
    assert {span.language for part in parts for span in part.spans} == {"python"}
    assert not any("```" in part.text for part in parts)


@pytest.mark.case("DL-01")
@pytest.mark.parametrize("text", ["😀" * 5000, "a" + "🙂" * 2048])
def test_parts_are_measured_in_utf16_units_and_lose_nothing(text: str) -> None:
    parts = [render(part).text for part in split(text, 4096, utf16_length)]
    assert "".join(parts) == text
    assert max(map(utf16_length, parts)) <= 4096
