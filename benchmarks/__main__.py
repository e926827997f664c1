"""`make bench`: measure, print a table, and leave the figures in `benchmarks/results/latest.json`.

Each measurement runs in a process of its own. A pipeline and its baseline take turns, so that a
machine that is slower for a while is slower for both; medians are compared.
"""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 3
RESULTS = Path(__file__).parent / "results" / "latest.json"

PAIRS = (
    ("1,000 sessions x 5, durable", "conc", "ours", "floor", "turns_per_second"),
    ("1 session in sequence, durable", "seq", "ours", "floor", "turns_per_second"),
)
STARTS = (
    ("hermes --help", ["-m", "hermes_core.cli", "--help"]),
    ("hermes hooks list", ["-m", "hermes_core.cli", "hooks", "list"]),
    ("import hermes_core", ["-c", "import hermes_core"]),
)


def main() -> None:
    report = {
        "machine": machine(),
        "pipelines": pipelines(),
        "memory": memory(),
        "starts": starts(),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")
    print(f"\nfigures in {RESULTS}")


def machine() -> dict[str, object]:
    facts: dict[str, object] = {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
    }
    print("  ".join(f"{key} {value}" for key, value in facts.items()))
    return facts


def pipelines() -> dict[str, object]:
    found: dict[str, object] = {}
    print(f"\n{'pipeline':34}{'ours':>10}{'floor':>10}{'ratio':>8}{'p50 ms':>9}{'p99 ms':>9}")
    for title, scenario, *names, key in PAIRS:
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for _ in range(ROUNDS):
            for name in names:
                runs[name].append(_run(scenario, name))
        middle = {name: _median(runs[name]) for name in names}
        ours, floor = (middle[name] for name in names)
        ratio = ours[key] / floor[key]
        found[title] = {**middle, "ratio": ratio}
        print(
            f"{title:34}{ours[key]:10,.0f}{floor[key]:10,.0f}{ratio:8.2f}"
            f"{ours['p50_ms']:9.1f}{ours['p99_ms']:9.1f}"
        )
    return found


def memory() -> dict[str, float]:
    found = _run("idle", "ours")
    print(
        f"\n{found['sessions']:,.0f} sessions used once: "
        f"{found['bytes_per_idle_session']:,.0f} bytes of resident memory each"
    )
    return found


def starts() -> dict[str, float]:
    """How long commands take, as ratios to the interpreter alone."""
    found = {}
    print(f"\n{'start':34}{'x python -c pass':>18}")
    for title, arguments in STARTS:
        ratio = statistics.median(_seconds(arguments) / _seconds(["-c", "pass"]) for _ in range(15))
        found[title] = ratio
        print(f"{title:34}{ratio:18.1f}")
    return found


def _run(scenario: str, name: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.one", scenario, name],
        check=True,
        capture_output=True,
        text=True,
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _median(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def _seconds(arguments: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


main()
