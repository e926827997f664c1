"""What searching in transcripts costs: `python -m benchmarks.search [LINES]`.

Lines of a hundred words out of fifty thousand, some much more frequent than others.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from hermes_core.store import search
from hermes_core.store.database import Tx, connection_of, empty_log, open_read_only, open_writer

WORDS = [f"w{number}" for number in range(50_000)]
QUERIES = {"a frequent word": ["w0"], "a rare word": ["w41234"], "three words": ["w1", "w9", "w99"]}


def fill(tx: Tx, count: int) -> None:
    chosen = random.Random(1)  # noqa: S311 - the same in every run
    sums = list(itertools.accumulate(1 / (rank + 1) for rank in range(len(WORDS))))
    tx.execute("BEGIN")
    for number in range(count):
        text = " ".join(chosen.choices(WORDS, cum_weights=sums, k=100))
        tx.execute(
            "INSERT INTO message (session_id, turn_id, role, text, created_at)"
            " VALUES (?, ?, 'user', ?, 0)",
            (f"s{number // 10}", f"t{number}", text),
        )
    tx.execute("COMMIT")


def steps(tx: Tx, step: Callable[[Tx], object]) -> Iterator[float]:
    """Milliseconds of each transaction until there is nothing to do."""
    more: object = True
    while more:
        began = time.perf_counter()
        tx.execute("BEGIN IMMEDIATE")
        more = step(tx)
        tx.execute("COMMIT")
        yield (time.perf_counter() - began) * 1000


def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "state.db"
        tx = connection_of(open_writer(path))
        fill(tx, count)
        empty_log(tx)
        plain = path.stat().st_size
        times = list(steps(tx, search.index))
        empty_log(tx)
        more = path.stat().st_size / plain - 1
        print(f"{count:,} lines: {plain / 1e6:,.0f} MB, the index {more:.0%} more")
        report("index 200 lines", times)
        for name, words in QUERIES.items():
            began = time.perf_counter()
            hits = search.search(open_read_only(path), words, 20)
            print(f"{name}: {len(hits)} hits in {(time.perf_counter() - began) * 1000:.0f} ms")
        tx.execute("BEGIN IMMEDIATE")
        search.forget(tx, [1, count // 2])
        tx.execute("DELETE FROM message WHERE id IN (1, ?)", (count // 2,))
        tx.execute("COMMIT")
        begin = iter([True])
        report("purge", list(steps(tx, lambda tx: search.purge(tx, begin=next(begin, False)))))


def report(name: str, times: list[float]) -> None:
    print(
        f"{name}: {len(times)} transactions, median {statistics.median(times):.1f} ms,"
        f" longest {max(times):.0f}, together {sum(times) / 1000:.1f} s"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
