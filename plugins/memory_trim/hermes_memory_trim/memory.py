"""The process's memory: how much there is, and the call that gives free memory back."""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

STATUS = Path("/proc/self/status")
OLDEST, YOUNG = 2, 1
"""Generations of Python's collector."""
_KIB = 1024


class Figures(msgspec.Struct, frozen=True):
    """Memory in bytes, None where the system does not say. `anonymous` is what is not of files."""

    resident: int | None = None
    anonymous: int | None = None
    threads: int | None = None


class Trim(msgspec.Struct, frozen=True):
    """One trim. `released` is what the C library says: whether anything went back."""

    reason: str
    at: float
    before: Figures
    after: Figures
    released: bool
    duration: float
    """Seconds, monotonic, of the collection and the call together."""
    collecting: float = 0.0
    """Seconds of the collection alone, which holds Python's lock."""

    @property
    def delta(self) -> int:
        """Bytes of resident memory that went back; negative when more was taken meanwhile."""
        return (self.before.resident or 0) - (self.after.resident or 0)


Release = Callable[[], bool]
"""Gives free memory back; True when there was any. Raises OSError."""


def figures(path: Path = STATUS) -> Figures:
    """The present figures, from what Linux says about the process."""
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return Figures()
    found = dict(line.partition(":")[::2] for line in text.splitlines())
    return Figures(
        resident=_kib(found.get("VmRSS")),
        anonymous=_kib(found.get("RssAnon")),
        threads=_number(found.get("Threads")),
    )


def find_release() -> Release | None:
    """The system's way to give memory back, None where there is none (musl, Windows)."""
    try:
        if sys.platform == "darwin":
            return _macos(ctypes.CDLL(None))
        if sys.platform.startswith("linux"):
            return _glibc(ctypes.CDLL("libc.so.6"))
    except (OSError, AttributeError):
        pass
    return None


def trim(release: Release, reason: str, at: float, generation: int = OLDEST) -> Trim:
    """Collect up to `generation` and give back. Takes its time: call it in a thread. Raises
    OSError."""
    before = figures()
    began = time.perf_counter()
    gc.collect(generation)
    collecting = time.perf_counter() - began
    released = release()
    duration = time.perf_counter() - began
    return Trim(reason, at, before, figures(), released, duration, collecting)


def _glibc(library: ctypes.CDLL) -> Release:
    call = library.malloc_trim
    call.argtypes, call.restype = [ctypes.c_size_t], ctypes.c_int
    return lambda: bool(call(0))


def _macos(library: ctypes.CDLL) -> Release:
    call = library.malloc_zone_pressure_relief
    call.argtypes, call.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_size_t
    return lambda: bool(call(None, 0))


def _kib(text: str | None) -> int | None:
    number = _number((text or "").removesuffix("kB"))
    return None if number is None else number * _KIB


def _number(text: str | None) -> int | None:
    plain = (text or "").strip()
    return int(plain) if plain.isdigit() else None
