"""A time in which nothing can be written. It is logged when it begins and when it is over, however
many writes fail in between."""

from __future__ import annotations

import logging
import time
from pathlib import Path

log = logging.getLogger(__name__)


class Episode:
    """Belongs to the thread that writes. `reason` is read by others: "" while all is well."""

    def __init__(self, path: Path) -> None:
        self._place = {"path": str(path)}
        self._since = 0.0
        self.reason = ""

    def begin(self, reason: str) -> None:
        """Nothing can be written. Does nothing when that was said already."""
        if not self.reason:
            self._since = time.monotonic()
            self.reason = reason
            log.error("nothing can be written for now: %s", reason, extra=self._place)

    def end(self) -> None:
        """Something was written. Does nothing when all was well."""
        if self.reason:
            self.reason = ""
            lasted = time.monotonic() - self._since
            log.warning(
                "the state database can be written again, after %.0f s", lasted, extra=self._place
            )
