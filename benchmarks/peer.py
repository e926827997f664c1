"""Our gateway in the harness that drives other gateways through the same load.

The harness is a file `pipe_common.py` in the directory that HERMES_BENCH_HARNESS names. Run a peer
and ours in turn, several times, and compare medians::

    python -m benchmarks.peer conc s=1000 m=5
"""

from __future__ import annotations

import importlib
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.ours import Ours


class Peer:
    """What the harness asks for."""

    name = "ours"
    on_reply: Callable[[str, str], None]

    async def start(self, turn: Callable[[str, str], Awaitable[None]]) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._ours = Ours(os.environ.get("HERMES_BENCH_DURABILITY", "full"))
        self._ours.on_start = turn
        self._ours.on_reply = lambda session: self.on_reply(session, "")
        await self._ours.start(Path(self._directory.name))

    async def inject(self, session: str, text: str, user: str | None = None) -> None:
        await self._ours.inject(session, text, user)

    async def stop(self) -> None:
        await self._ours.stop()
        self._directory.cleanup()


if __name__ == "__main__":
    sys.path.insert(0, os.environ.get("HERMES_BENCH_HARNESS", "../shared/bench"))
    importlib.import_module("pipe_common").main(Peer)
