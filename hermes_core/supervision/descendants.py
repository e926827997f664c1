"""Which processes belong to a tree, and how to end exactly those. Linux only.

A member is found by its session or group, by its chain of parents, or by a mark in the environment
that it was started with. It is then held by a process descriptor, after its start time was
compared: every signal reaches the process that was found, never a later one with the same number.

Not found is a process that left session and group, lost its parent, and cleared its environment.
"""

from __future__ import annotations

import math
import os
import select
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

KILL_LIMIT = 2.0
"""Seconds that the kernel gets to end what was killed. Only what is stuck in it needs more."""

_PARENT, _GROUP, _SESSION, _START = 1, 2, 3, 19
"""Fields 4, 5, 6 and 22 of /proc/PID/stat, counted from the end of the name (proc_pid_stat(5))."""


class Process(NamedTuple):
    """One line of the process table. `started` is in clock ticks since the boot."""

    pid: int
    parent: int
    group: int
    session: int
    started: int


def read_process(pid: int) -> Process | None:
    """The process that has `pid` now, remains of an ended one included; None when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command name is in parentheses and may itself hold any byte.
    fields = stat[stat.rfind(b")") + 1 :].split()
    return Process(pid, *(int(fields[at]) for at in (_PARENT, _GROUP, _SESSION, _START)))


def process_table() -> dict[int, Process]:
    """Every process that can be seen, by its number. Empty without /proc."""
    try:
        numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    except OSError:
        return {}
    return {process.pid: process for process in map(read_process, numbers) if process}


def _started_with(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, or another user's
        return False


def _ancestors(table: dict[int, Process], pid: int) -> Iterator[int]:
    while process := table.get(pid):
        yield pid
        pid = process.parent


def _age(key: tuple[int, int]) -> tuple[int, int]:
    """Parents first: a shell must not go on with its next line when the present one is ended."""
    pid, started = key
    return started, pid


class Descendants:
    """The living processes of one tree. Blocking: for a thread.

    `mark` is a line ``NAME=value`` of the environment. `root`, if given, leads a session and must
    stay unreaped while this object is used, so that its number cannot mean another process; nothing
    that is older than it is ever a member.
    """

    def __init__(self, mark: str, root: Process | None = None) -> None:
        self._mark = os.fsencode(mark)
        self._root = root
        self._held: dict[tuple[int, int], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        while self._held:
            os.close(self._held.popitem()[1])

    def end(self, grace: float) -> list[int]:
        """Ask all to end, kill after `grace` seconds, return the numbers of what survived that."""
        if self._end_by(signal.SIGTERM, grace) or self._end_by(signal.SIGKILL, KILL_LIMIT):
            return []
        return sorted(pid for pid, _ in self._held)

    def _end_by(self, number: signal.Signals, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        told: set[tuple[int, int]] = set()
        while True:
            self._find()
            if not self._held:
                return True
            if time.monotonic() >= deadline:
                return False
            for key in sorted(self._held.keys() - told, key=_age):
                with suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(self._held[key], number)
                told.add(key)
            self._wait(deadline)

    def _find(self) -> None:
        """Hold every member that lives, and let go of those that have ended."""
        table = process_table()
        spared = {0, 1, *_ancestors(table, os.getpid())}
        children = defaultdict(list)
        for process in table.values():
            children[process.parent].append(process)
        pending = [process for process in table.values() if self._belongs(process)]
        seen: set[int] = set()
        while pending:
            process = pending.pop()
            if process.pid in spared or process.pid in seen or not self._hold(process):
                continue
            seen.add(process.pid)
            pending.extend(children[process.pid])
        self._release_ended()

    def _belongs(self, process: Process) -> bool:
        if (process.pid, process.started) in self._held:
            return True
        if self._root is not None:
            if process.started < self._root.started:
                return False
            if self._root.pid in (process.session, process.group):
                return True
        return _started_with(process.pid, self._mark)

    def _hold(self, process: Process) -> bool:
        """Hold `process`. False when it is gone: children of its number may be another's by now."""
        key = (process.pid, process.started)
        descriptor = self._held.get(key)
        if descriptor is None:
            try:
                descriptor = os.pidfd_open(process.pid)
            except OSError:
                return False
        now = read_process(process.pid)
        if now is not None and now.started == process.started:
            self._held[key] = descriptor
            return True
        if key not in self._held:
            os.close(descriptor)
        return False

    def _release_ended(self) -> None:
        poll = select.poll()
        keys = {descriptor: key for key, descriptor in self._held.items()}
        for descriptor in keys:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(0):
            key = keys[descriptor]
            if self._root is not None and key != (self._root.pid, self._root.started):
                # Where this process is the init of a container, orphans become its children.
                with suppress(OSError):  # usually it is not ours to reap
                    os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG)
            os.close(self._held.pop(key))

    def _wait(self, deadline: float) -> None:
        """Until all that are held have ended, or until `deadline`."""
        poll = select.poll()
        living = set(self._held.values())
        for descriptor in living:
            poll.register(descriptor, select.POLLIN)
        while living and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(math.ceil(left * 1000)):
                poll.unregister(descriptor)
                living.discard(descriptor)
