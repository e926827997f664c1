"""What bytes on stdout mean."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_command.events import Said
from hermes_command.output import OutputReader
from hermes_command.settings import Output
from hermes_core import (
    AgentError,
    Attach,
    Commentary,
    Final,
    Text,
    ToolEnd,
    ToolStart,
    Usage,
)

CWD = Path("/there")


def read(*chunks: bytes, output: Output = "auto") -> list[Said]:
    reader = OutputReader(output, CWD, {"turn": "t_1"})
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    return [*events, *reader.end()]


def text(*chunks: bytes, output: Output = "auto") -> str:
    events = read(*chunks, output=output)
    assert all(isinstance(event, Text) for event in events)
    return "".join(event.text for event in events if isinstance(event, Text))


class TestPlainText:
    def test_each_piece_is_passed_on_at_once(self) -> None:
        reader = OutputReader("auto", CWD, {})
        assert list(reader.feed(b"one ")) == [Text("one")]
        assert list(reader.feed(b"two")) == [Text(" two")]

    def test_empty_lines_before_and_space_after_are_no_part_of_it(self) -> None:
        assert text(b"\n\n", b"\n  a\n", b"\n\nb \n\n", b"\n") == "  a\n\n\nb"

    def test_nothing_is_nothing(self) -> None:
        assert read() == read(b"\n", b" \n") == []

    def test_a_character_may_come_in_two_pieces(self) -> None:
        euro = "€".encode()
        assert text(euro[:1], euro[1:2], euro[2:]) == "€"

    def test_a_mark_of_the_byte_order_is_no_part_of_it(self) -> None:
        assert text("\ufeffhi".encode()) == "hi"

    def test_what_is_not_utf_8_is_marked(self) -> None:
        assert text(b"a\xffb", b"\xe2\x82") == "a�b�"

    @pytest.mark.parametrize("line", ["{", '{"a": 1}', "{not json}\n", '{"type": 1}\n', "[1]\n"])
    def test_braces_alone_make_no_events(self, line: str) -> None:
        assert text(line.encode()) == line.strip()

    def test_events_are_text_where_only_text_is_expected(self) -> None:
        line = '{"type": "text", "text": "x"}'
        assert text(line.encode(), output="text") == line


class TestEvents:
    def test_every_kind(self) -> None:
        lines = [
            {"type": "commentary", "text": "hm"},
            {"type": "tool_start", "call_id": "1", "name": "ls", "input": {"path": "/"}},
            {"type": "tool_end", "call_id": "1", "name": "ls", "output": "etc", "error": "no"},
            {"type": "text", "text": "a\n"},
            {"type": "attach", "path": "out/plot.png"},
            {"type": "attach", "path": "/x", "name": "y", "media_type": "text/x"},
            {"type": "usage", "input_tokens": 3, "output_tokens": 4, "model": "m"},
            {"type": "final", "text": "b"},
        ]
        assert read(*[json.dumps(line).encode() + b"\n" for line in lines]) == [
            Commentary("hm"),
            ToolStart(call_id="1", name="ls", input={"path": "/"}),
            ToolEnd(call_id="1", name="ls", output="etc", error="no"),
            Text("a\n"),
            Attach(path="/there/out/plot.png", name="plot.png", media_type="image/png"),
            Attach(path="/x", name="y", media_type="text/x"),
            Usage(input_tokens=3, output_tokens=4, model="m"),
            Final("b"),
        ]

    def test_the_last_line_needs_no_end(self) -> None:
        assert read(b'\n\n{"type": "final", "text": "x"}') == [Final("x")]

    def test_unknown_fields_are_ignored(self) -> None:
        assert read(b'{"type": "text", "text": "x", "mood": "good"}') == [Text("x")]

    @pytest.mark.parametrize(
        "line",
        [
            '{"type": "song", "text": "la"}',
            '{"type": "text"}',
            '{"type": "text", "text": 1}',
            '{"type": "attach", "path": ""}',
            '{"type": "usage", "input_tokens": -1}',
            "not json",
            "[" * 50_000,
            '"type"',
            "1" * 10_000,
        ],
    )
    def test_what_is_no_event_is_skipped_and_logged(
        self, line: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        good = b'{"type": "text", "text": "x"}\n'
        assert read(good, line.encode(), b"\n", good) == [Text("x"), Text("x")]
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert "skipped" in record.getMessage()
        assert len(record.getMessage()) < 200
        assert vars(record)["turn"] == "t_1"

    def test_a_flood_of_nonsense_does_not_flood_the_log(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        read(b'{"type": "text", "text": "x"}\n', b"?\n" * 1000)
        assert len(caplog.records) < 50

    @pytest.mark.parametrize("output", ["auto", "jsonl"])
    def test_nothing_but_nonsense_is_an_error(self, output: Output) -> None:
        with pytest.raises(AgentError, match="understood"):
            read(b'{"type": "system", "subtype": "init"}\n', output=output)

    def test_halves_of_characters_are_replaced(self) -> None:
        line = rb'{"type": "text", "text": "\ud83d\ude00 \ud83d"}'
        assert read(line) == [Text("😀 �")]

    def test_names_are_whole_too(self) -> None:
        lines = [
            {"type": "tool_start", "call_id": "1", "name": "\ud83d"},
            {"type": "tool_end", "call_id": "1", "name": "\ud83d"},
            {"type": "attach", "path": "a", "name": "\ud83d", "media_type": "\ud83d"},
            {"type": "usage", "model": "\ud83d"},
        ]
        assert read("\n".join(map(json.dumps, lines)).encode()) == [
            ToolStart(call_id="1", name="�"),
            ToolEnd(call_id="1", name="�"),
            Attach(path="/there/a", name="�", media_type="�"),
            Usage(model="�"),
        ]

    def test_a_mark_of_the_byte_order_does_not_hide_them(self) -> None:
        line = "\ufeff" + json.dumps({"type": "text", "text": "x"})
        assert read(line.encode()) == [Text("x")]

    @pytest.mark.parametrize("limit", ["0.01", "NaN", "1e9"])
    def test_a_question_is_up_for_a_second_at_least(self, limit: str) -> None:
        line = f'{{"type": "ask", "text": "?", "choices": ["a"], "limit": {limit}}}\n'
        assert read(line.encode(), b'{"type": "text", "text": "x"}') == [Text("x")]

    def test_lines_only_where_lines_are_expected(self) -> None:
        with pytest.raises(AgentError):
            read(b"plain text\n", output="jsonl")


@given(st.text(), st.lists(st.integers(0, 200)))
def test_the_pieces_that_text_comes_in_do_not_matter(text_: str, cuts: list[int]) -> None:
    data = text_.encode("utf-8", "replace")
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(places)]
    assert text(*pieces, output="text") == text(data, output="text")


@given(st.lists(st.text()), st.integers(1, 9))
def test_the_pieces_that_events_come_in_do_not_matter(texts: list[str], size: int) -> None:
    texts = ["", *texts]
    lines = [json.dumps({"type": "text", "text": text}) + "\n" for text in texts]
    data = "".join(lines).encode()
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    assert read(*pieces) == [Text(text) for text in texts]
