"""What erasing by age costs: `python -m benchmarks.retention [EXCHANGES]`.

A database with that many exchanges (one event, turn, message and two lines each, texts of 1 kB),
a third of them old enough to go, a third old enough to be erased.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hermes_core.messages import Address, Message, Outbound, Sender, encode
from hermes_core.store import erasing
from hermes_core.store.database import Tx, connection_of, empty_log, open_writer

DAY = 86_400.0
SPAN = 135 * DAY
STEPS = (
    ("erase events", erasing.erase_inbox, 45 * DAY),
    ("erase messages", erasing.erase_outbox, 45 * DAY),
    ("delete events", erasing.delete_inbox, 90 * DAY),
    ("delete messages", erasing.delete_outbox, 90 * DAY),
    ("delete turns", erasing.delete_turns, 90 * DAY),
    ("delete sessions", erasing.delete_sessions, 90 * DAY),
)


def fill(tx: Tx, count: int) -> None:
    """Exchanges at even distances; a session has ten of them."""
    address, text = Address(platform="demo", chat_id="c"), "word " * 200
    said = encode(Message(address=address, sender=Sender(id="u"), event_id="e", text=text))
    sent = encode(Outbound(id="o", created_at=0.0, address=address, text=text))
    tx.execute("BEGIN")
    for number in range(count):
        at, chat, session = number / count * SPAN, f"c{number % 1000}", number // 10
        turn = f"t_{hash(number * 7919) & 0xFFFFFFFFFFFF:020x}"
        tx.execute(
            "INSERT INTO inbox (account, chat_id, event_id, type, session_key, generation, payload,"
            " state, turn_id, received_at, ended_at) VALUES ('demo', ?, ?, 'message', ?, 0, ?,"
            " 'done', ?, ?, ?)",
            (chat, f"e{number}", f"k{session}", said, turn, at, at),
        )
        tx.execute(
            "INSERT INTO turn (id, session_id, session_key, generation, attempt, owner, state,"
            " started_at, ended_at) VALUES (?, ?, ?, 0, 1, 'u', 'answered', ?, ?)",
            (turn, f"s{session}", f"k{session}", at, at),
        )
        tx.execute(
            "INSERT INTO outbox (id, account, chat_id, session_key, turn_id, payload, state,"
            " created_at, expires_at, ended_at)"
            " VALUES (?, 'demo', ?, ?, ?, ?, 'delivered', ?, ?, ?)",
            (f"o{number}", chat, f"k{session}", turn, sent, at, at, at),
        )
        if number % 10 == 0:
            tx.execute(
                "INSERT INTO session (id, session_key, generation, address, created_at, active_at,"
                " ended_at) VALUES (?, ?, 0, ?, ?, ?, ?)",
                (f"s{session}", f"k{session}", encode(address), at, at, at),
            )
        for role in ("user", "assistant"):
            tx.execute(
                "INSERT INTO message (session_id, turn_id, role, text, created_at)"
                " VALUES (?, ?, ?, ?, ?)",
                (f"s{session}", turn, role, text, at),
            )
    tx.execute("COMMIT")


def batches(tx: Tx, step: erasing.Step, before: float) -> Iterator[float]:
    """Milliseconds of each transaction until nothing is left."""
    count = erasing.BATCH
    while count == erasing.BATCH:
        began = time.perf_counter()
        tx.execute("BEGIN IMMEDIATE")
        count = step(tx, before).count
        tx.execute("COMMIT")
        yield (time.perf_counter() - began) * 1000


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "state.db"
        tx = connection_of(open_writer(path))
        fill(tx, count)
        empty_log(tx)
        print(f"{count:,} exchanges, {path.stat().st_size / 1e6:,.0f} MB")
        print(f"{'':18}{'batches':>9}{'median ms':>11}{'longest':>9}{'nothing to do':>15}")
        for name, step, age in STEPS:
            times = list(batches(tx, step, SPAN - age))
            (idle,) = batches(tx, step, SPAN - age)
            middle = statistics.median(times)
            print(f"{name:18}{len(times):9}{middle:11.1f}{max(times):9.1f}{idle:15.2f}")
        empty_log(tx)
        (free,) = tx.execute("PRAGMA freelist_count").fetchone()
        (pages,) = tx.execute("PRAGMA page_count").fetchone()
        print(f"{free / pages:.0%} of the file is free for what comes")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
