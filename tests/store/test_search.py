"""What was said is found, what is gone is not, and no query breaks anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import peewee as pw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_core.errors import HermesError
from hermes_core.store import Tx, erasing, open_read_only, search, sessions
from hermes_core.store.database import connection_of, empty_log, open_writer
from tests.cli.rows import KEY, Rows

SAID = (
    "The number is 42",
    "the café on the corner",
    "Die Nummer steht im Buch",
    "a number of things",
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture
def database(path: Path) -> Iterator[pw.SqliteDatabase]:
    with closing(open_writer(path)) as database:
        yield database


@pytest.fixture
def tx(database: pw.SqliteDatabase) -> Tx:
    return connection_of(database)


@pytest.fixture
def rows(tx: Tx) -> Rows:
    return Rows(tx)


def say(rows: Rows, *texts: str, event: str = "e", chat: str = "c1", at: float = 100.0) -> str:
    """A session whose transcript has these lines, one turn each. The id of the last turn."""
    turn = ""
    for number, text in enumerate(texts):
        rows.arrive("?", event=f"{event}{number}", chat=chat, at=at)
        taken = rows.take(chat, at=at)
        turn = taken.turn_id
        (part,) = rows.answer(taken, text, at=at)
        rows.settle(part, "delivered", at=at)
    return turn


def index(rows: Rows) -> None:
    while rows.write(search.index):
        pass


def found(path: Path, *words: str, limit: int = 10) -> list[str]:
    """The texts that another process finds."""
    with closing(open_read_only(path)) as database:
        return [hit.text for hit in search.search(database, words, limit)]


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (["number"], [SAID[3], SAID[0]]),
        (["NUMBER", "is"], [SAID[0]]),
        (["cafe"], [SAID[1]]),
        (["num*"], [SAID[3], SAID[2], SAID[0]]),
        (["number of"], [SAID[3]]),
        (["of number"], []),
        (["nobody"], []),
        (["42"], [SAID[0]]),
        (["num"], []),
        (["***"], []),
        ([""], []),
    ],
)
def test_the_latest_lines_with_all_words_come_first(
    rows: Rows, path: Path, indexed: bool, words: list[str], texts: list[str]
) -> None:
    say(rows, *SAID)
    if indexed:
        index(rows)
    assert found(path, *words) == texts


def test_lines_that_are_newer_than_the_index_come_before_those_in_it(
    rows: Rows, path: Path
) -> None:
    say(rows, "number one", event="a")
    index(rows)
    say(rows, "number two", event="b")
    assert found(path, "number") == ["number two", "number one"]
    assert found(path, "number", limit=1) == ["number two"]
    index(rows)
    assert found(path, "number") == ["number two", "number one"]


def test_a_hit_says_where_it_is(rows: Rows, path: Path) -> None:
    turn = say(rows, "word " * 50 + "the needle is here " + "word " * 50)
    with closing(open_read_only(path)) as database:
        (hit,) = search.search(database, ["needle"], 10)
    assert (hit.turn_id, hit.session_key, hit.role) == (turn, KEY.format(chat="c1"), "assistant")
    assert "the [needle] is here" in hit.snippet
    assert len(hit.snippet) < len(hit.text)


@pytest.mark.parametrize("indexed", [True, False])
def test_what_was_taken_back_is_not_found(rows: Rows, path: Path, tx: Tx, indexed: bool) -> None:
    turn = say(rows, "number one")
    if indexed:
        index(rows)
    (session,) = tx.execute("SELECT id FROM session").fetchone()
    rows.write(lambda tx: sessions.hide_turn(tx, session, turn))
    assert found(path, "number") == []


@pytest.mark.parametrize("indexed", [True, False])
def test_what_is_erased_is_not_found_and_others_are(
    rows: Rows, path: Path, tx: Tx, indexed: bool
) -> None:
    say(rows, "number one", "secretword", chat="old")
    say(rows, "number two", chat="live")
    if indexed:
        index(rows)
    rows.write(lambda tx: sessions.reset(tx, KEY.format(chat="old"), "/new", 200.0))
    rows.write(lambda tx: erasing.delete_sessions(tx, 1000.0))
    assert found(path, "number") == ["number two"]
    say(rows, "number three", chat="live", event="f")
    index(rows)
    assert found(path, "number") == ["number three", "number two"]
    tx.execute("INSERT INTO message_text (message_text, rank) VALUES ('integrity-check', 1)")


def test_a_purged_index_has_no_word_of_what_is_gone(rows: Rows, path: Path, tx: Tx) -> None:
    say(rows, *(f"number {number}" for number in range(50)), chat="live")
    index(rows)
    say(rows, "zyxwsecret", chat="old")
    index(rows)
    rows.write(lambda tx: sessions.reset(tx, KEY.format(chat="old"), "/new", 200.0))
    rows.write(lambda tx: erasing.delete_sessions(tx, 1000.0))
    rows.write(lambda tx: erasing.erase_outbox(tx, 1000.0))
    more = rows.write(lambda tx: search.purge(tx, begin=True))
    while more:
        more = rows.write(lambda tx: search.purge(tx, begin=False))
    empty_log(tx)
    assert b"yxwsecret" not in path.read_bytes()
    assert found(path, "number", "49") == ["number 49"]


def test_one_transaction_takes_so_many_lines(rows: Rows, tx: Tx) -> None:
    lines = [sessions.Line("user", "again")] * (search.BATCH + 3)
    rows.write(lambda tx: sessions.add_lines(tx, "s", "", lines, 100.0))
    assert [rows.write(search.index) for _ in range(3)] == [search.BATCH, 3, 0]


def test_too_many_words_are_refused(rows: Rows, path: Path) -> None:
    with pytest.raises(HermesError, match="too many words"):
        found(path, *["word"] * (search.MAX_WORDS + 1))
    assert found(path, *["word"] * search.MAX_WORDS) == []


_HOSTILE = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["AND", "OR", "NOT", "NEAR(a b, 2)", 'a"b', '"', "text:number", "-number", "^number", "*"]
    ),
    st.characters(categories=["Cs", "Cc"]),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(_HOSTILE, max_size=5))
def test_no_query_is_an_error(said: Path, words: list[str]) -> None:
    assert set(found(said, *words)) <= set(SAID)


@pytest.fixture
def said(path: Path, rows: Rows) -> Path:
    say(rows, *SAID[:2], event="a")
    index(rows)
    say(rows, *SAID[2:], event="b")
    return path
