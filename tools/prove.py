"""`make prove`: the long run behind docs/guarantees.md. Its last line is for programs.

schedules=N kills=N messages=N lost=N reordered=N duplicates=N mutants=N/N
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.crash.rounds import Report, prove
from tests.soak import Outcome, soak
from tests.world.explore import Explorer, Failure
from tests.world.mutants import MUTANTS

CHUNK = 500


def main() -> int:
    """Run everything; the exit code is 0 when nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=int(time.time()) * 1_000_000)
    wanted = parser.parse_args()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        firsts = range(wanted.seed, wanted.seed + wanted.schedules, CHUNK)
        failures = []
        messages = 0
        for number, (failure, seen) in enumerate(pool.map(explore, firsts), start=1):
            messages += seen
            if failure is not None:
                failures.append(failure)
                print(failure)
            print(f"\r{number * CHUNK} schedules", end="", file=sys.stderr)
        print(file=sys.stderr)
        caught = sum(pool.map(catch, range(len(MUTANTS))))
    kills = run_kills(wanted.kills, wanted.seed)
    long = run_soak(wanted.messages)
    summary = (
        f"schedules={wanted.schedules} kills={kills.kills}"
        f" messages={messages + kills.messages + long.messages}"
        f" lost={len(failures) + kills.lost + long.lost}"
        f" reordered={kills.reordered + long.reordered}"
        f" duplicates={kills.duplicates + long.duplicates}"
        f" mutants={caught}/{len(MUTANTS)}"
    )
    print(f"kills: {kills}", file=sys.stderr)
    broken = (
        failures,
        kills.lost + kills.reordered + kills.duplicates + kills.reruns + kills.strays,
        long.lost + long.reordered + long.duplicates,
        not long.sums_up,
        caught < len(MUTANTS),
    )
    print(summary)
    return int(any(broken))


def explore(first: int) -> tuple[Failure | None, int]:
    """The first broken world of a chunk, and how many messages its worlds took in."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as directory:
        explorer = Explorer(Path(directory))
        return explorer.explore(range(first, first + CHUNK)), explorer.messages


def catch(number: int) -> bool:
    """Whether the worlds find a mutant."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as directory, MUTANTS[number]():
        return Explorer(Path(directory)).explore(range(2000)) is not None


def run_kills(count: int, seed: int) -> Report:
    """Kill a real gateway so often."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(prove(Path(directory), count, seed))


def run_soak(messages: int) -> Outcome:
    """One long life with many sessions."""
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(soak(Path(directory), sessions=messages // 20, messages=20))


if __name__ == "__main__":
    sys.exit(main())
