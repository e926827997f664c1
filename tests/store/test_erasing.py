"""What goes with age, and what never does."""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hermes_core import repair
from hermes_core.messages import Address, Outbound, OutboundAttachment
from hermes_core.store import Tx, erasing, outbox, sessions, turns
from hermes_core.store.database import connection_of, empty_log, open_writer
from tests.cli.rows import KEY, Rows

CONTENT = (
    erasing.erase_inbox,
    erasing.erase_outbox,
    erasing.erase_turns,
    erasing.delete_hidden,
    erasing.delete_events,
)
KEYS = (
    erasing.delete_inbox,
    erasing.delete_outbox,
    erasing.delete_turns,
    erasing.delete_denials,
)
BY_INDEX = (*CONTENT, *KEYS[:3], erasing.delete_sessions)
"""All but one: there are at most ten thousand denials."""
NOW = 1000.0
"""Later than anything in these tests."""


@pytest.fixture
def tx(tmp_path: Path) -> Iterator[Tx]:
    with closing(open_writer(tmp_path / "state.db")) as database:
        yield connection_of(database)


@pytest.fixture
def rows(tx: Tx) -> Rows:
    return Rows(tx)


def erase(rows: Rows, *steps: erasing.Step, before: float = NOW) -> int:
    """Take each step until nothing is left. How many rows that were."""

    def take(step: erasing.Step) -> int:
        return rows.write(lambda tx: step(tx, before)).count

    return sum(sum(iter(lambda: take(step), 0)) for step in steps)  # noqa: B023 - called here


def exchange(rows: Rows, event: str, *, at: float = 100.0, chat: str = "c1") -> str:
    """A message that was answered and delivered. The id of its turn."""
    rows.arrive(f"said {event}", event=event, chat=chat, at=at)
    taken = rows.take(chat, at=at)
    (part,) = rows.answer(taken, f"answer {event}", at=at)
    rows.settle(part, "delivered", message=f"m-{event}", at=at)
    return taken.turn_id


def count(tx: Tx, table: str) -> int:
    (found,) = tx.execute(f"SELECT COUNT(*) FROM {table}").fetchone()  # noqa: S608 - our tables
    return int(found)


def test_content_goes_and_keys_stay(rows: Rows, tx: Tx) -> None:
    turn = exchange(rows, "e1")
    assert erase(rows, *CONTENT, before=100.0) == 0
    assert erase(rows, *CONTENT) == 2
    assert tx.execute("SELECT event_id, state, reason, turn_id, payload FROM inbox").fetchall() == [
        ("e1", "done", "answered", turn, b"")
    ]
    assert tx.execute("SELECT message_id, state, turn_id, payload FROM outbox").fetchall() == [
        ("m-e1", "delivered", turn, b"")
    ]
    assert count(tx, "turn") == 1
    assert [line[1] for line in sessions.history(tx, _session(tx), 1000)] == ["answer e1"]


def test_a_repeat_is_recognised_until_the_keys_go(rows: Rows, tx: Tx) -> None:
    exchange(rows, "e1")
    erase(rows, *CONTENT)
    assert rows.arrive("said e1", event="e1") == 1
    erase(rows, *KEYS)
    assert [count(tx, table) for table in ("inbox", "outbox", "turn")] == [0, 0, 0]
    assert rows.arrive("said e1", event="e1") > 1


def test_nothing_is_deleted_before_it_is_erased(rows: Rows, tx: Tx) -> None:
    exchange(rows, "e1")
    assert erase(rows, erasing.delete_inbox, erasing.delete_outbox) == 0
    assert count(tx, "inbox") == count(tx, "outbox") == 1


def test_what_waits_runs_or_is_to_be_sent_stays_whole_however_old_it_is(rows: Rows, tx: Tx) -> None:
    rows.arrive("waits", event="e1", chat="c1")
    rows.arrive("runs", event="e2", chat="c2")
    rows.take("c2")
    rows.arrive("was cut", event="e3", chat="c3")
    rows.take("c3")
    rows.write(lambda tx: turns.interrupt(tx, 110.0, "stopped", _turn_of(tx, "e3")))
    rows.arrive("to be sent", event="e4", chat="c4")
    rows.answer(rows.take("c4"), "pending")
    before = {table: _all(tx, table) for table in ("inbox", "outbox", "turn")}
    assert erase(rows, *CONTENT, *KEYS) == 2  # the event of c4: erased, then deleted
    assert _all(tx, "outbox") == before["outbox"]
    assert _all(tx, "turn") == before["turn"]
    assert _all(tx, "inbox") == [row for row in before["inbox"] if "e4" not in row]


@pytest.mark.parametrize("state", ["failed", "expired", "unknown"])
def test_what_was_not_delivered_can_be_replayed_until_its_content_goes(
    rows: Rows, state: outbox.Ended
) -> None:
    rows.arrive("hello", event="e1")
    (part,) = rows.answer(rows.take(), "lost")
    rows.settle(part, state, at=500.0)
    erase(rows, *CONTENT, before=500.0)
    replay = repair.Change("deliveries", "replay", (1,))
    done = rows.write(lambda tx: repair.apply(tx, replay, 600.0))
    rows.settle(part, state, at=700.0)
    erase(rows, *CONTENT)
    again = repair.Change("deliveries", "replay", done.rows)
    with pytest.raises(Exception, match="erased by age"):
        rows.write(lambda tx: repair.apply(tx, again, 800.0))


def test_files_of_a_message_that_is_erased_are_given_back(rows: Rows, tx: Tx) -> None:
    file = OutboundAttachment(path="/spool/f", name="a")
    message = msgspec.structs.replace(_message("with a file"), attachments=(file,))
    new = outbox.NewRow(message, KEY.format(chat="c1"), None, 200.0)
    rows.write(lambda tx: outbox.append(tx, [new], claim_first=False))
    rows.settle("o_1", "failed")
    assert outbox.files(tx) == [file]
    assert rows.write(lambda tx: erasing.erase_outbox(tx, NOW)).files == (file,)
    assert outbox.files(tx) == []


def test_what_a_cut_turn_had_shown_goes_unless_it_runs_again(rows: Rows, tx: Tx) -> None:
    shown = outbox.Shown("m1", _message("half an ans"))
    for chat in ("stopped", "waits"):
        rows.arrive("hello", event=chat, chat=chat)
        taken = rows.take(chat)
        rows.write(partial(turns.set_shown, turn_id=taken.turn_id, shown=shown))
    rows.write(lambda tx: turns.cancel(tx, KEY.format(chat="stopped"), "/stop", 110.0))
    rows.crash(at=110.0)
    assert erase(rows, erasing.erase_turns, before=110.0) == 0
    assert erase(rows, erasing.erase_turns) == 1
    assert rows.take("waits").shown == shown


def test_lines_that_were_taken_back_go_and_others_stay(rows: Rows, tx: Tx) -> None:
    first, second = exchange(rows, "e1"), exchange(rows, "e2")
    rows.write(lambda tx: sessions.hide_turn(tx, _session(tx), first))
    assert erase(rows, erasing.delete_hidden, before=100.0) == 0
    assert erase(rows, erasing.delete_hidden) == 1
    assert tx.execute("SELECT turn_id FROM message").fetchall() == [(second,)]


def test_a_transcript_goes_when_its_session_has_ended_for_long_and_never_before(
    rows: Rows, tx: Tx
) -> None:
    exchange(rows, "e1", chat="old")
    exchange(rows, "e2", chat="late")
    exchange(rows, "e3", chat="live")
    for chat, at in (("old", 200.0), ("late", 400.0)):
        key = KEY.format(chat=chat)
        rows.write(partial(sessions.reset, session_key=key, reason="/new", now=at))
    assert erase(rows, erasing.delete_sessions, before=300.0) == 2
    keys = [KEY.format(chat=chat) for chat in ("late", "live")]
    assert [key for (key,) in tx.execute("SELECT session_key FROM session")] == keys
    assert count(tx, "message") == 2
    assert sessions.generation(tx, KEY.format(chat="old")) == 1


def test_a_long_transcript_goes_little_by_little(rows: Rows, tx: Tx) -> None:
    exchange(rows, "e1")
    lines = [sessions.Line("user", "again")] * (2 * erasing.BATCH)
    rows.write(lambda tx: sessions.add_lines(tx, _session(tx), "", lines, 110.0))
    rows.write(lambda tx: sessions.reset(tx, KEY.format(chat="c1"), "/new", 200.0))
    counts = [rows.write(lambda tx: erasing.delete_sessions(tx, NOW)).count for _ in range(4)]
    assert counts == [erasing.BATCH, erasing.BATCH, 2, 0]
    assert count(tx, "message") == count(tx, "session") == 0


def test_durable_events_and_denials_go(rows: Rows, tx: Tx) -> None:
    for at in (100.0, 200.0):
        tx.execute("INSERT INTO event (hook, payload, created_at) VALUES ('on_x', '{}', ?)", (at,))
        tx.execute(
            "INSERT INTO denied (account, chat_id, sender_id, reason, first_at, last_at)"
            " VALUES ('demo', 'c', ?, 'no', 1, ?)",
            (f"u{at}", at),
        )
    assert erase(rows, erasing.delete_events, erasing.delete_denials, before=150.0) == 2
    assert tx.execute("SELECT created_at FROM event").fetchall() == [(200.0,)]
    assert tx.execute("SELECT last_at FROM denied").fetchall() == [(200.0,)]


@pytest.mark.parametrize("step", [*CONTENT, *KEYS])
def test_one_transaction_takes_so_many_rows(rows: Rows, tx: Tx, step: erasing.Step) -> None:
    many(tx, erasing.BATCH + 3)
    if step in KEYS:
        erase(rows, *CONTENT)
    counts = [rows.write(lambda tx: step(tx, NOW)).count for _ in range(3)]
    assert counts == [erasing.BATCH, 3, 0]


@pytest.mark.parametrize("step", BY_INDEX)
def test_to_find_that_nothing_is_to_do_costs_the_same_however_much_is_kept(
    rows: Rows, tx: Tx, step: erasing.Step
) -> None:
    def instructions(before: float) -> int:
        executed = itertools.count()
        tx.set_progress_handler(lambda: next(executed) < 0, 1)
        assert rows.write(lambda tx: step(tx, before)).count == 0
        tx.set_progress_handler(None, 0)
        return next(executed)

    many(tx, erasing.BATCH)
    few = instructions(50.0)
    many(tx, 5 * erasing.BATCH)
    assert instructions(50.0) <= 1.1 * few
    if step in CONTENT:
        erase(rows, step)
        assert instructions(NOW) <= 1.1 * few


def test_what_is_erased_is_in_no_file(tmp_path: Path) -> None:
    database = open_writer(tmp_path / "state.db")
    rows = Rows(connection_of(database))
    marks = [f"{n}-" + "very-secret" * 400 for n in range(30)]  # long enough for pages of their own
    for number, mark in enumerate(marks):
        rows.arrive(mark, event=f"e{number}", ended="command x")
    assert any(b"very-secret" in file.read_bytes() for file in tmp_path.iterdir())
    erase(rows, *CONTENT)
    empty_log(connection_of(database))
    assert not any(b"very-secret" in file.read_bytes() for file in tmp_path.iterdir())
    database.close()


# ── whatever happens ─────────────────────────────────────────────────────────────────────────────


class Ages(RuleBasedStateMachine):
    """Everything that happens to rows, in any order, with erasing at any time in between."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.database = open_writer(self.directory / "state.db")
        self.tx = connection_of(self.database)
        self.rows = Rows(self.tx)
        self.now = 1000.0
        self.events = 0

    def teardown(self) -> None:
        self.database.close()
        shutil.rmtree(self.directory)

    @initialize()
    def begin(self) -> None:
        self.arrive("a")

    @rule(chat=st.sampled_from("ab"))
    def arrive(self, chat: str) -> None:
        self.events += 1
        self.rows.arrive(f"text {self.events}", event=f"e{self.events}", chat=chat, at=self.now)

    @rule(chat=st.sampled_from("ab"), parts=st.integers(0, 2))
    def answer(self, chat: str, parts: int) -> None:
        taken = self.taken(chat)
        if taken is not None:
            self.rows.answer(taken, *["part"] * parts, at=self.now)

    @rule(chat=st.sampled_from("ab"))
    def take(self, chat: str) -> None:
        self.taken(chat)

    def taken(self, chat: str) -> turns.Taken | None:
        running = "SELECT 1 FROM turn WHERE session_key = ? AND state = 'running'"
        if self.tx.execute(running, (KEY.format(chat=chat),)).fetchone():
            return None
        op = lambda tx: turns.take(tx, KEY.format(chat=chat), self.now, coalesce=False)  # noqa: E731
        taken = self.rows.write(op)
        return taken if isinstance(taken, turns.Taken) else None

    @rule(chat=st.sampled_from("ab"))
    def cancel(self, chat: str) -> None:
        self.rows.write(lambda tx: turns.cancel(tx, KEY.format(chat=chat), "/stop", self.now))

    @rule()
    def crash(self) -> None:
        self.rows.write(lambda tx: turns.interrupt(tx, self.now, "crash"))
        self.rows.write(outbox.doubt_unfinished)

    @rule(chat=st.sampled_from("ab"), state=st.sampled_from(("delivered", "failed", "unknown", "")))
    def send(self, chat: str, state: Any) -> None:
        row = self.rows.write(lambda tx: outbox.claim(tx, outbox.Chat("demo", chat), self.now))
        if row is not None and state:
            self.rows.write(lambda tx: outbox.settle(tx, row.sequence, state, self.now))

    @rule(what=st.sampled_from(("inbox", "deliveries")), act=st.sampled_from(("replay", "discard")))
    def repair(self, what: Any, act: Any) -> None:
        table, states = {
            "inbox": ("inbox", ("dead",)),
            "deliveries": ("outbox", ("failed", "unknown")),
        }[what]
        marks = ", ".join("?" for _ in states)
        ended = f"SELECT MAX(sequence) FROM {table} WHERE state IN ({marks})"  # noqa: S608
        (sequence,) = self.tx.execute(f"{ended} AND length(payload) > 0", states).fetchone()
        if sequence is not None:
            change = repair.Change(what, act, (sequence,))
            self.rows.write(lambda tx: repair.apply(tx, change, self.now))

    @rule(seconds=st.integers(1, 100))
    def later(self, seconds: int) -> None:
        self.now += seconds

    @rule(age=st.integers(0, 50), more=st.integers(0, 50))
    def erase(self, age: int, more: int) -> None:
        content, keys = self.now - age, self.now - age - more
        before = {table: self.keyed(table) for table in ("inbox", "outbox")}
        for steps, at in ((CONTENT, content), (KEYS, keys)):
            erase(self.rows, *steps, before=at)
        for table, found in before.items():
            left = self.keyed(table)
            for sequence, (state, ended_at, payload) in found.items():
                is_over = state not in ("waiting", "running", "pending", "attempting")
                if not is_over or ended_at >= content:
                    assert left[sequence] == (state, ended_at, payload)
                elif ended_at >= keys:
                    assert left[sequence] == (state, ended_at, b"")
                else:
                    assert sequence not in left

    @precondition(lambda self: self.events > 0)
    @invariant()
    def open_rows_have_their_turns(self) -> None:
        lost = self.tx.execute(
            "SELECT turn_id FROM inbox WHERE state = 'running' AND turn_id NOT IN"
            " (SELECT id FROM turn WHERE state = 'running') UNION ALL SELECT turn_id FROM outbox"
            " WHERE state IN ('pending', 'attempting') AND turn_id NOT IN (SELECT id FROM turn)"
        ).fetchall()
        assert lost == []

    def keyed(self, table: str) -> dict[int, tuple[str, float, bytes]]:
        query = f"SELECT sequence, state, ended_at, payload FROM {table}"  # noqa: S608
        return {row[0]: row[1:] for row in self.tx.execute(query)}


def test_nothing_that_is_not_over_is_ever_touched() -> None:
    often = settings(max_examples=40, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(Ages, settings=often)


# ── helpers ──────────────────────────────────────────────────────────────────────────────────────


def many(tx: Tx, number: int) -> None:
    """So many rows of everything that goes with age."""
    tx.execute("BEGIN")
    for _ in range(number):
        (last,) = tx.execute("SELECT COALESCE(MAX(sequence), 0) FROM inbox").fetchone()
        name = f"x{last}"
        for statement in _FILL:
            tx.execute(statement, {"name": name, "at": 100.0, "payload": b"{}"})
    tx.execute("COMMIT")


_FILL = (
    "INSERT INTO inbox (account, chat_id, event_id, type, session_key, generation, payload, state,"
    " received_at, ended_at) VALUES ('demo', 'c', :name, 'message', 'k', 0, :payload, 'done', :at,"
    " :at)",
    "INSERT INTO outbox (id, account, chat_id, session_key, payload, state, created_at, expires_at,"
    " ended_at) VALUES (:name, 'demo', 'c', 'k', :payload, 'delivered', :at, :at, :at)",
    "INSERT INTO turn (id, session_id, session_key, generation, attempt, owner, unsure, state,"
    " started_at, ended_at) VALUES (:name, 's', 'k', 0, 1, 'u', :payload, 'cancelled', :at, :at)",
    "INSERT INTO message (session_id, turn_id, role, hidden, text, created_at)"
    " VALUES ('s', :name, 'user', 1, 'text', :at)",
    "INSERT INTO event (hook, payload, created_at) VALUES ('on_x', :payload, :at)",
    "INSERT INTO denied (account, chat_id, sender_id, reason, first_at, last_at)"
    " VALUES ('demo', 'c', :name, 'no', :at, :at)",
    "INSERT INTO session (id, session_key, generation, address, created_at, active_at, ended_at)"
    " VALUES (:name, :name, 0, :payload, :at, :at, :at)",
)


def _message(text: str) -> Outbound:
    address = Address(platform="demo", chat_id="c1")
    return Outbound(id="o_1", created_at=100.0, address=address, text=text)


def _all(tx: Tx, table: str) -> list[tuple[Any, ...]]:
    return tx.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608 - our tables


def _session(tx: Tx) -> str:
    (session_id,) = tx.execute("SELECT id FROM session").fetchone()
    return str(session_id)


def _turn_of(tx: Tx, event: str) -> str:
    (turn,) = tx.execute("SELECT turn_id FROM inbox WHERE event_id = ?", (event,)).fetchone()
    return str(turn)
