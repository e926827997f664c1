"""Watches over the event loop: when something holds it, the log says who, while it does.

A blocked loop cannot say anything itself, so a thread looks from outside. It knows two things: the
plugin code that was entered last, and where the loop's thread is at that moment.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType

HELD = 1.0
"""Seconds without a sign of life after which the loop counts as held."""
_INNERMOST = 3

log = logging.getLogger(__name__)


class Pulse:
    """Feels the pulse of the running event loop, as long as the context lasts.

    `suspect()` names the plugin code that holds the loop now, "" when it is none; it is called in
    another thread than the loop's.
    """

    def __init__(self, suspect: Callable[[], str], *, held: float = HELD) -> None:
        self._suspect = suspect
        self._held = held
        self._loop = asyncio.get_running_loop()
        self._owner = threading.get_ident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hermes-pulse", daemon=True)
        self._count = 0
        self._last: dict[str, object] | None = None

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()  # the thread is not joined: it may wait for a lock of the log

    def facts(self) -> dict[str, object] | None:
        """How often the loop was held and the last time: ``{"count": n, "by": who, "seconds": how
        long, "at": UNIX time of its end}``. None if it never was."""
        return None if self._last is None else {"count": self._count, **self._last}

    def _watch(self) -> None:
        while not self._over.wait(self._held / 2):
            alive = threading.Event()
            asked = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(alive.set)
            except RuntimeError:  # the loop was closed
                return
            if alive.wait(self._held) or time.monotonic() - asked > 2 * self._held:
                continue  # this thread, too, stood still: the process was stopped, not the loop
            self._tell(alive, asked)

    def _tell(self, alive: threading.Event, asked: float) -> None:
        """Say who holds the loop now, and when it is over for how long."""
        by = self._suspect() or f"code at {self._place()}"
        log.error("the event loop is held by %s", by)
        while not alive.wait(self._held):
            if self._over.is_set():
                return
        seconds = round(time.monotonic() - asked, 1)
        self._count += 1
        self._last = {"by": by, "seconds": seconds, "at": time.time()}
        log.warning("the event loop goes on; it was held for %.1f s by %s", seconds, by)

    def _place(self) -> str:
        """Where the loop's thread is: its innermost frames."""
        frame: FrameType | None = sys._current_frames().get(self._owner)
        places: list[str] = []
        while frame is not None and len(places) < _INNERMOST:
            code = frame.f_code
            places.append(f"{code.co_filename}:{frame.f_lineno} {code.co_name}")
            frame = frame.f_back
        return " < ".join(places)
