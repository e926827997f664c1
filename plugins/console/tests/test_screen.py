from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from hermes_console.protocol import Write
from hermes_console.screen import Screen


def shown(*texts: Write) -> str:
    out = io.StringIO()
    screen = Screen(out)
    for text in texts:
        screen.written(text)
    return out.getvalue()


def preview(text: str, *, first: bool = False) -> Write:
    return Write(id="p", text=text, kind="preview", replaces="" if first else "p")


def final(text: str, replaces: str = "p") -> Write:
    return Write(id="f", text=text, kind="final", replaces=replaces)


def notice(text: str, id_: str = "n") -> Write:
    return Write(id=id_, text=text, kind="notice")


def test_a_growing_text_is_continued_and_ended() -> None:
    texts = [preview("one", first=True), preview("one two"), final("one two three")]
    assert shown(*texts) == "one two three\n"


def test_a_final_that_is_already_there_only_ends_its_line() -> None:
    assert shown(preview("one", first=True), final("one")) == "one\n"


def test_a_corrected_text_is_written_anew() -> None:
    assert shown(preview("one two", first=True), final("one, two")) == "one two\none, two\n"


def test_the_same_message_again_is_not_shown_again() -> None:
    assert shown(final("one", ""), final("one", ""), notice("x")) == "one\nx\n"


def test_a_notice_in_the_middle_has_its_own_line() -> None:
    texts = [preview("one", first=True), notice("note"), preview("one two"), final("one two")]
    assert shown(*texts) == "one\nnote\none two\n"


def test_a_preview_that_was_never_seen_is_completed_whole() -> None:
    assert shown(final("one two", "unknown")) == "one two\n"


def test_a_text_cannot_control_the_terminal() -> None:
    assert shown(notice("a\x1b[2Jb\x07\x9bc\td\r\ne")) == "a�[2Jb��c\td\ne\n"


@given(st.lists(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)), min_size=1))
def test_pieces_add_up(pieces: list[str]) -> None:
    texts = ["".join(pieces[: n + 1]) for n in range(len(pieces))]
    writes = [preview(text, first=n == 0) for n, text in enumerate(texts)]
    assert shown(*writes, final(texts[-1])) == f"{texts[-1]}\n"
