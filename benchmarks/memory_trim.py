"""Memory trimming: how much of 300 MB of small objects goes back once they are freed.

Each way runs in a process of its own. Run with ``python -m benchmarks.memory_trim`` where
hermes-plugin-memory-trim is installed.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time

from hermes_memory_trim import TrimSettings, memory
from hermes_memory_trim.service import Trimmer

SIZE = 300 << 20
BLOCK = 1000
"""Bytes of an object: larger than what Python keeps in arenas of its own, so that the C library
holds it."""
KEPT = 50
"""One object in so many stays, and with it the page that it is on."""
_MIB = 1 << 20


def resident() -> float:
    return (memory.figures().resident or 0) / _MIB


async def trimmed() -> tuple[float, float]:
    """Trim; how long it took, and the longest that the event loop stood still meanwhile."""
    trimmer = Trimmer()
    trimmer.look()
    work = asyncio.ensure_future(trimmer.trim(TrimSettings(), "benchmark", time.time()))
    longest, last = 0.0, time.perf_counter()
    while not work.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    done = await work
    assert done is not None
    return done.duration, longest


def measure() -> dict[str, float]:
    start = resident()
    objects = [bytes(BLOCK) for _ in range(SIZE // BLOCK)]
    full = resident()
    kept = objects[::KEPT]
    del objects
    freed = resident()
    duration, longest = asyncio.run(trimmed())
    after = resident()
    return {
        "start_mib": round(start, 1),
        "full_mib": round(full, 1),
        "freed_mib": round(freed, 1),
        "trimmed_mib": round(after, 1),
        "kept_objects": len(kept),
        "trim_ms": round(duration * 1000, 1),
        "loop_stood_still_ms": round(longest * 1000, 1),
    }


def main() -> None:
    if "--measure" in sys.argv:
        print(json.dumps(measure()))
        return
    command = [sys.executable, "-m", "benchmarks.memory_trim", "--measure"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    print(json.dumps(json.loads(done.stdout), indent=2))


if __name__ == "__main__":
    main()
