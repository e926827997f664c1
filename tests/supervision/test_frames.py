from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.errors import ConfigError, ControlError, HermesError
from hermes_core.supervision.control.frames import (
    MAX_FRAME,
    decode,
    encode,
    failure,
    raise_failure,
)

texts = st.text(st.characters(exclude_categories=()))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=20,
)


@settings(max_examples=50)
@given(st.dictionaries(texts, values))
def test_every_object_comes_back_as_it_was(frame: dict[str, object]) -> None:
    line = encode(frame)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert decode(line) == frame


@given(st.binary())
def test_any_bytes_are_an_object_or_an_error(line: bytes) -> None:
    with suppress(ControlError):
        assert isinstance(decode(line), dict)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"1",
        b'"text"',
        b"null",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1',
        b"\xff\xfe{}",
        b'{"a": "\xff"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(ControlError):
        decode(line)


def test_what_json_cannot_hold_is_refused() -> None:
    circle: dict[str, object] = {}
    circle["self"] = circle
    for frame in ({"a": object()}, {"a": float("nan")}, {"a": b""}, circle):
        with pytest.raises(ControlError):
            encode(frame)


def test_a_frame_has_a_limit() -> None:
    overhead = len(encode({"a": ""}))
    assert len(encode({"a": "x" * (MAX_FRAME - overhead)})) == MAX_FRAME
    with pytest.raises(ControlError, match="longer than"):
        encode({"a": "x" * (MAX_FRAME - overhead + 1)})


@given(texts, texts, texts)
def test_an_error_arrives_with_all_it_says(what: str, where: str, remedy: str) -> None:
    sent = ConfigError(what, where=where, remedy=remedy)
    with pytest.raises(ControlError) as received:
        raise_failure(decode(encode(failure(sent))))
    error = received.value
    assert (error.what, error.where, error.remedy) == (what, where, remedy)
    assert error.exit_code == ConfigError.exit_code


def test_an_error_always_fits() -> None:
    huge = "\ud800" * MAX_FRAME
    encode(failure(HermesError(huge, where=huge, remedy=huge)))


def test_a_strange_exit_code_becomes_a_plain_failure() -> None:
    for code in (None, "3", True, 1.5):
        with pytest.raises(ControlError) as error:
            raise_failure({"error": "no", "code": code})
        assert error.value.exit_code == 1
    raise_failure({"fine": True})
