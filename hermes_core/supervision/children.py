"""Child processes of a turn: start a tree of them, and end all of it and nothing else.

The first process of a `ChildTree` leads a session of its own, and everything in the tree carries
two marks in its environment: the turn that owns it, and a random one of this very tree. The first
process is not reaped before the tree has ended, so its number, which is also that of its group and
its session, cannot come to mean somebody else's.

On Linux all descendants are found, also those that left the group (see `descendants`). On other
POSIX systems the tree is the group.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from hermes_core.supervision.descendants import KILL_LIMIT, Descendants, Process, read_process
from hermes_core.supervision.pipes import Output, abort, open_input, open_output

TURN_MARK = "HERMES_TURN_ID"
TREE_MARK = "HERMES_TREE_ID"

GRACE = 2.0
"""Seconds from the request to end to the kill, unless the caller says otherwise."""
_LOOK = 0.05
"""Seconds between two looks at a child, where the system has no process descriptors."""

log = logging.getLogger(__name__)


class ChildTree:
    """``async with ChildTree(argv, owner=turn.id, env=...) as child:`` runs `argv` without a shell.

    `env` is the whole environment; the marks ``HERMES_TURN_ID`` (the owner) and ``HERMES_TREE_ID``
    are added to it. `stdin`, `stdout` and `stderr` are pipes; both outputs end when the first
    process ends, even if a background process still holds them.

    Leaving the context ends the whole tree, whatever the reason and also when cancelled: it asks
    (SIGTERM), kills after `grace` seconds, and takes at most `KILL_LIMIT` seconds more.

    Raises ValueError for a blank owner, and OSError when the program cannot be started.
    """

    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader
    _popen: subprocess.Popen[bytes]

    def __init__(
        self,
        argv: Sequence[str],
        *,
        owner: str,
        env: Mapping[str, str],
        cwd: Path | None = None,
        grace: float = GRACE,
    ) -> None:
        _check_owner(owner)
        tree = os.urandom(16).hex()
        self._argv = list(argv)
        self._owner = owner
        self._env = {**env, TURN_MARK: owner, TREE_MARK: tree}
        self._mark = f"{TREE_MARK}={tree}"
        self._cwd = cwd
        self._grace = grace
        self._root: Process | None = None
        self._pidfd: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._outputs: list[Output] = []
        self._exited = asyncio.Event()
        self._returncode = 0
        self._released = False
        self._ending: asyncio.Future[None] | None = None
        self._at_close = ExitStack()

    async def __aenter__(self) -> Self:
        self._start()
        try:
            self._watch()
            await self._connect()
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave()

    @property
    def pid(self) -> int:
        """The first process. No other process can have this number before the context is left."""
        return self._popen.pid

    async def wait(self) -> int:
        """Wait for the first process: its exit status, or minus the signal that ended it."""
        await self._exited.wait()
        return self._returncode

    async def terminate(self, grace: float | None = None) -> None:
        """End the whole tree now. A cancellation meanwhile is raised after the tree has ended."""
        if self._ending is None:
            self._ending = _in_thread(self._end, self._grace if grace is None else grace)
        await _outlast(self._ending)

    def release(self) -> None:
        """Let live on what the first process has left running in the background.

        Raises RuntimeError while the first process itself runs.
        """
        if not self._exited.is_set():
            raise RuntimeError("a child can be released only after its first process has ended")
        self._released = True

    # ── start ────────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        self._popen = subprocess.Popen(
            self._argv,
            env=self._env,
            cwd=self._cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._at_close.callback(self._reap)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._root = read_process(self.pid)
        self._pidfd = _descriptor_of(self.pid) if self._root else None
        if self._pidfd is None:
            self._at_close.callback(self._stop_looking)
            self._look_again()
        else:
            self._at_close.callback(os.close, self._pidfd)
            self._at_close.callback(loop.remove_reader, self._pidfd)
            loop.add_reader(self._pidfd, self._look_once)

    async def _connect(self) -> None:
        popen = self._popen
        pipes = [pipe for pipe in (popen.stdin, popen.stdout, popen.stderr) if pipe]
        for pipe in pipes:
            self._at_close.callback(pipe.close)
        self.stdin = await open_input(pipes[0])
        self._at_close.callback(abort, self.stdin)
        for pipe in pipes[1:]:
            output = await open_output(pipe)
            self._outputs.append(output)
            self._at_close.callback(output.finish)
        self.stdout, self.stderr = (output.reader for output in self._outputs)
        if self._exited.is_set():
            self._finish_outputs()

    # ── the first process ends ───────────────────────────────────────────────────────────────────

    def _look_again(self) -> None:
        status = self._popen.poll()
        if status is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK, self._look_again)
        else:
            self._has_exited(status)

    def _stop_looking(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look_once(self) -> None:
        """Read the status and leave the remains, which keep the number reserved."""
        result = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        if result is not None and self._pidfd is not None:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            by_itself = result.si_code == os.CLD_EXITED
            self._has_exited(result.si_status if by_itself else -result.si_status)

    def _has_exited(self, status: int) -> None:
        self._returncode = status
        self._exited.set()
        self._finish_outputs()

    def _finish_outputs(self) -> None:
        for output in self._outputs:
            output.finish()

    # ── the tree ends ────────────────────────────────────────────────────────────────────────────

    async def _leave(self) -> None:
        with self._at_close:
            if not self._released:
                await self.terminate()

    def _end(self, grace: float) -> None:
        """Blocking, for a thread: so it goes through, whatever happens to the tasks of the loop."""
        if self._pidfd is None:
            survivors = _end_group(self._popen, grace)
        else:
            with Descendants(self._mark, self._root) as descendants:
                survivors = descendants.end(grace)
            if not survivors:
                self._end_unseen(self._pidfd)
        _report(survivors, self._owner)

    def _end_unseen(self, pidfd: int) -> None:
        """Where nothing could be found (no /proc, no free descriptor), there is still the group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll(KILL_LIMIT * 1000)

    def _reap(self) -> None:
        status = self._popen.poll()
        if status is not None and not self._exited.is_set():
            self._has_exited(status)


async def end_leftovers(owner: str, *, grace: float = GRACE) -> None:
    """End what an earlier gateway process, killed in the middle of the turn `owner`, left running.

    For the next attempt at the turn, before it starts anything. Does nothing but on Linux.
    """
    _check_owner(owner)

    def end(grace: float) -> None:
        with Descendants(f"{TURN_MARK}={owner}") as descendants:
            _report(descendants.end(grace), owner)

    own = _descriptor_of(os.getpid())
    if own is not None:
        os.close(own)
        await _outlast(_in_thread(end, grace))


def _check_owner(owner: str) -> None:
    if not owner.strip() or "\0" in owner:
        raise ValueError(f"a child process needs an owner, not {owner!r}")


def _report(survivors: list[int], owner: str) -> None:
    if survivors:
        numbers = ", ".join(map(str, survivors))
        log.error("processes that cannot be ended: %s", numbers, extra={"turn": owner})


def _descriptor_of(pid: int) -> int | None:
    """A process descriptor, None where the system has none."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:  # an old kernel, or a sandbox that forbids it
        return None


def _end_group(popen: subprocess.Popen[bytes], grace: float) -> list[int]:
    deadline = time.monotonic() + grace
    if grace > 0:
        _signal_group(popen, signal.SIGTERM)
    while _signal_group(popen, 0) and time.monotonic() < deadline:
        time.sleep(_LOOK / 5)
    _signal_group(popen, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        popen.wait(KILL_LIMIT)
    return [] if popen.returncode is not None else [popen.pid]


def _signal_group(popen: subprocess.Popen[bytes], number: int) -> bool:
    """Signal the group that `popen` leads or led. False when it is gone.

    A number is not given to a new process while a group of that number has members (POSIX.1-2017,
    4.14). So once `popen` was reaped, a process with its number means that the group is gone.
    """
    try:
        if popen.poll() is not None and _exists(popen.pid):
            return False
        os.killpg(popen.pid, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # there, but another user's
        return True
    return True


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _in_thread(function: Callable[[float], None], grace: float) -> asyncio.Future[None]:
    """Run `function` in a thread of its own: the shared ones may all be busy."""
    loop = asyncio.get_running_loop()
    executor = ThreadPoolExecutor(1, thread_name_prefix="hermes-children")
    try:
        return loop.run_in_executor(executor, function, grace)
    except RuntimeError:  # no thread can be started: here and now, then, and without a grace
        function(0.0)
        future: asyncio.Future[None] = loop.create_future()
        future.set_result(None)
        return future
    finally:
        executor.shutdown(wait=False)


async def _outlast(future: asyncio.Future[None]) -> None:
    """Await `future` to its end. Cancellations meanwhile are raised afterwards, as one."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    future.result()
