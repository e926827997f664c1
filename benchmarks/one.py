"""One measurement: `python -m benchmarks.one SCENARIO PIPELINE` prints its figures as JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import tempfile
from pathlib import Path

from benchmarks.floor import Floor
from benchmarks.load import Driver, measure, measure_idle
from benchmarks.ours import Ours


async def one(scenario: str, name: str, directory: Path) -> dict[str, float]:
    driver: Driver = Ours() if name == "ours" else Floor()
    if scenario == "idle":
        return await measure_idle(driver, directory, 10_000)
    sessions, turns = (1000, 5) if scenario == "conc" else (1, 1000)
    return await measure(driver, directory, sessions, turns)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as directory:
        print(json.dumps(asyncio.run(one(sys.argv[1], sys.argv[2], Path(directory)))))
