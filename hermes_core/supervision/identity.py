"""Which process is meant: a process id alone is soon somebody else's.

An `Identity` is a process id and a mark of when that process started. The same id with another
mark is another process. Nothing in Hermes sends a signal to a process id before it has verified it.
"""

from __future__ import annotations

import os
import signal as signals
import sys
from dataclasses import dataclass
from pathlib import Path

_STATE = 0
_START = 19
"""Fields 3 and 22 of /proc/PID/stat, counted after the command name (proc_pid_stat(5))."""
_ENDED = frozenset("ZXx")
_PS_LIMIT = 5.0
"""Seconds that `ps` may take."""


@dataclass(frozen=True)
class Identity:
    """One process. `started` is opaque: the same text means that it is the same process.

    On Linux it is exact. Elsewhere it comes from `ps` and has the resolution of a second.
    """

    pid: int
    started: str

    @classmethod
    def current(cls) -> Identity:
        """The running process."""
        identity = cls.of(os.getpid())
        # Without /proc and ps the process id is all there is, and `alive` never confirms it.
        return identity or cls(os.getpid(), "")

    @classmethod
    def of(cls, pid: int) -> Identity | None:
        """The process that has `pid` now, None when there is none (or only its remains)."""
        started = _started(pid) if pid > 0 else None
        return None if started is None else cls(pid, started)

    @classmethod
    def from_json(cls, value: object) -> Identity | None:
        """Read what `to_json` made. None for anything else."""
        if not isinstance(value, dict):
            return None
        pid, started = value.get("pid"), value.get("started")
        if type(pid) is int and pid > 0 and isinstance(started, str):
            return cls(pid, started)
        return None

    def to_json(self) -> dict[str, object]:
        """``{"pid": ..., "started": ...}``."""
        return {"pid": self.pid, "started": self.started}

    def alive(self) -> bool:
        """Whether this very process still runs. False also when that cannot be found out."""
        return bool(self.started) and Identity.of(self.pid) == self

    def signal(self, number: signals.Signals) -> bool:
        """Send a signal to this very process. False, and nothing sent, when it is gone.

        Raises PermissionError when the process belongs to another user.
        """
        if not hasattr(os, "pidfd_open"):  # not Linux
            return self._signal_by_pid(number)
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return False
        try:
            # The descriptor stays with its process: check and signal mean the same one.
            if not self.alive():
                return False
            signals.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _signal_by_pid(self, number: signals.Signals) -> bool:
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def _started(pid: int) -> str | None:
    return started_by_proc(pid) if sys.platform == "linux" else started_by_ps(pid)


def started_by_proc(pid: int) -> str | None:
    """The mark from Linux's /proc: the boot and the clock tick of the start."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return None
    # The command name is in parentheses and may itself hold any byte.
    fields = stat[stat.rfind(b")") + 1 :].decode("ascii").split()
    if fields[_STATE] in _ENDED:
        return None
    return f"{boot}:{fields[_START]}"


def started_by_ps(pid: int) -> str | None:
    """The mark from the `ps` of POSIX systems: the date of the start, in UTC, to the second."""
    import subprocess  # costs more than the rest of the module

    environment = {"LC_ALL": "C", "TZ": "UTC0", "PATH": "/bin:/usr/bin"}
    try:
        result = subprocess.run(
            ["ps", "-o", "stat=,lstart=", "-p", str(pid)],  # noqa: S607 - PATH is given below
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PS_LIMIT,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    state, _, started = result.stdout.decode("ascii", "replace").strip().partition(" ")
    if not started or state[0] in _ENDED:
        return None
    return " ".join(started.split())
