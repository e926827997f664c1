"""A turn's processes end with it, all of them, and nobody else's do."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from hermes_core.supervision.children import ChildTree, end_leftovers
from hermes_core.supervision.identity import Identity

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="descendants are found in /proc")

ENV = {"PATH": os.defpath}
OWNER = f"t_{os.getpid()}"
"""The turn of these tests: no other test at work on this machine has it."""
STUBBORN = "trap '' TERM; sleep 1000 & echo $$ $!; wait"
"""A shell and a child that both ignore the request to end."""

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(1000)
    os._exit(0)
os.wait()
time.sleep(float(sys.argv[1]))
"""
"""Starts a process that leaves the group, the session and its parent."""

Stranger = Callable[[list[str], Mapping[str, str]], Identity]


@pytest.fixture(params=["descriptors", "group"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With process descriptors and /proc, and as on a system that has neither."""
    if request.param == "group":
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    elif not hasattr(os, "pidfd_open"):
        pytest.skip("no process descriptors")


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    """Start a process that belongs to nobody's turn; it runs until the end of the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(argv: list[str], env: Mapping[str, str]) -> Identity:
        started.append(subprocess.Popen(argv, env={**ENV, **env}, stdin=subprocess.PIPE))
        return identity_of(started[-1].pid)

    yield start
    for process in started:
        process.kill()
        process.communicate()


def identity_of(pid: int) -> Identity:
    identity = Identity.of(pid)
    assert identity is not None
    return identity


def tree(*argv: str, owner: str = OWNER, grace: float = 0.1, **env: str) -> ChildTree:
    return ChildTree(argv, owner=owner, env={**ENV, **env}, grace=grace)


def shell(script: str, *, owner: str = OWNER, grace: float = 0.1) -> ChildTree:
    return tree("sh", "-c", script, owner=owner, grace=grace)


def python(script: str, *arguments: str, owner: str = OWNER) -> ChildTree:
    return tree(sys.executable, "-c", script, *arguments, owner=owner)


async def announced(child: ChildTree) -> list[Identity]:
    """The processes whose numbers the child writes on its next line of output."""
    return [identity_of(int(number)) for number in (await child.stdout.readline()).split()]


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def reserved(pid: int) -> bool:
    """Whether a process has that number, if only an ended one that nobody has reaped."""
    return Path(f"/proc/{pid}").exists()


def living(identities: list[Identity]) -> list[Identity]:
    return [identity for identity in identities if identity.alive()]


def gone(identities: list[Identity]) -> bool:
    """Whether all have ended. What was killed by its group may take a moment."""
    limit = time.monotonic() + 5
    while living(identities) and time.monotonic() < limit:
        os.sched_yield()
    return bool(identities) and not living(identities)


def running_with(argument: str) -> list[bytes]:
    """The command lines with that argument."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(file.read_bytes())
    return [line for line in lines if argument.encode() in line.split(b"\0")]


@pytest.mark.usefixtures("system")
class TestRunning:
    def test_pipes_and_status(self) -> None:
        async def main() -> None:
            async with shell("cat; echo oops >&2; exit 3") as child:
                child.stdin.write(b"hello")
                child.stdin.close()
                assert await child.stdout.read() == b"hello"
                assert await child.stderr.read() == b"oops\n"
                assert await child.wait() == 3

        asyncio.run(main())

    def test_a_signal_is_a_negative_status(self) -> None:
        async def main() -> None:
            async with shell("kill -9 $$") as child:
                assert await child.wait() == -signal.SIGKILL

        asyncio.run(main())

    def test_the_environment_is_what_was_given_and_the_marks(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LEAK", "me")

        async def main() -> None:
            async with tree("env", owner="t_7", GIVEN="1") as child:
                lines = (await child.stdout.read()).decode().splitlines()
            values = dict(line.split("=", 1) for line in lines)
            assert values.pop("HERMES_TREE_ID")
            assert values == {**ENV, "GIVEN": "1", "HERMES_TURN_ID": "t_7"}

        asyncio.run(main())

    def test_output_that_nobody_has_read_yet_outlives_the_child(self) -> None:
        async def main() -> None:
            async with shell("head -c 700000 /dev/zero & wait; printf end") as child:
                taken = await child.stdout.readexactly(500_000)
                await child.wait()
                rest = await child.stdout.read()
                assert len(taken) + len(rest) == 700_003
                assert rest.endswith(b"end")

        asyncio.run(main())

    def test_output_ends_with_the_first_process(self) -> None:
        async def main() -> None:
            async with shell("sleep 1000 & echo $!") as child:
                assert await child.stdout.read()
                assert await child.stderr.read() == b""
                assert await child.wait() == 0

        asyncio.run(main())

    def test_a_program_that_is_not_there(self, tmp_path: Path) -> None:
        async def main() -> None:
            with pytest.raises(FileNotFoundError):
                async with tree(str(tmp_path / "nothing")):
                    pass

        asyncio.run(main())


@pytest.mark.usefixtures("system")
class TestEnding:
    def test_leaving_ends_the_stubborn(self) -> None:
        async def main() -> list[Identity]:
            async with shell(STUBBORN) as child:
                return await announced(child)

        assert gone(asyncio.run(main()))

    def test_leaving_ends_what_the_first_process_left_behind(self) -> None:
        async def main() -> list[Identity]:
            async with shell("trap '' TERM; sleep 1000 & echo $!") as child:
                left = await announced(child)
                assert await child.wait() == 0
                assert living(left) == left
                return left

        assert gone(asyncio.run(main()))

    def test_an_error_inside_is_raised_after_the_end(self) -> None:
        processes: list[Identity] = []

        async def main() -> None:
            async with shell(STUBBORN) as child:
                processes.extend(await announced(child))
                raise LookupError

        with pytest.raises(LookupError):
            asyncio.run(main())
        assert len(processes) == 2
        assert gone(processes)

    def test_those_who_listen_may_finish(self, tmp_path: Path) -> None:
        done = tmp_path / "done"

        async def main() -> int:
            script = f"trap 'echo bye > {done}; exit 5' TERM; echo; while :; do sleep 0.01; done"
            async with shell(script, grace=60) as child:
                await child.stdout.readline()
                await child.terminate()
                return await child.wait()

        assert asyncio.run(main()) == 5
        assert done.read_text() == "bye\n"

    def test_terminating_twice_is_harmless(self) -> None:
        async def main() -> None:
            async with shell("exec sleep 1000") as child:
                await asyncio.gather(child.terminate(0), child.terminate(0))
                await child.terminate()
                assert await child.wait() == -signal.SIGKILL

        asyncio.run(main())

    def test_cancelling_again_and_again_does_not_stop_the_end(self) -> None:
        processes: list[Identity] = []

        async def turn(running: asyncio.Event) -> None:
            async with shell(STUBBORN) as child:
                processes.extend(await announced(child))
                running.set()
                await child.wait()

        async def main() -> None:
            running = asyncio.Event()
            task = asyncio.create_task(turn(running))
            await running.wait()
            while not task.done():
                task.cancel()
                await asyncio.sleep(0)
            assert task.cancelled()
            assert gone(processes)

        asyncio.run(main())
        assert len(processes) == 2

    def test_a_loop_that_is_shut_down_takes_its_children_along(self) -> None:
        processes: list[Identity] = []

        async def turn(running: asyncio.Event) -> None:
            async with shell(STUBBORN) as child:
                processes.extend(await announced(child))
                running.set()
                await child.wait()

        async def main() -> asyncio.Task[None]:
            running = asyncio.Event()
            task = asyncio.create_task(turn(running))
            await running.wait()
            return task

        assert asyncio.run(main()).cancelled()
        assert len(processes) == 2
        assert gone(processes)

    def test_without_a_thread_the_end_comes_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        async def main() -> list[Identity]:
            async with shell(STUBBORN, grace=60) as child:
                processes = await announced(child)
                monkeypatch.setattr(threading.Thread, "start", refuse)
                return processes

        assert gone(asyncio.run(main()))

    def test_nothing_stays_open_and_nobody_is_unreaped(self) -> None:
        async def main() -> None:
            before = open_descriptors()
            for script in ("exit 0", "cat", STUBBORN):
                async with shell(script, grace=0) as child:
                    child.stdin.write(bytes(300_000))
                await asyncio.sleep(0)
            assert open_descriptors() == before

        asyncio.run(main())
        with pytest.raises(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)


@linux_only
class TestDescendants:
    def test_no_other_process_can_have_the_number_before_the_end(self) -> None:
        async def main() -> None:
            async with shell("exit 0") as child:
                assert await child.wait() == 0
                assert reserved(child.pid)
            assert not reserved(child.pid)

        asyncio.run(main())

    def test_a_daemon_is_found_by_its_mark(self) -> None:
        async def main() -> list[Identity]:
            async with python(DAEMON, "0") as child:
                found = await announced(child)
                assert await child.wait() == 0
                assert living(found) == found
                return found

        assert living(asyncio.run(main())) == []

    def test_a_child_without_marks_is_found_by_its_parents(self) -> None:
        async def main() -> list[Identity]:
            async with shell("setsid env -i sh -c 'sleep 1000 & echo $$ $!; wait' & wait") as child:
                found = await announced(child)
                assert len({os.getsid(identity.pid) for identity in found} - {child.pid}) == 1
                return found

        assert living(asyncio.run(main())) == []

    def test_children_that_keep_coming(self) -> None:
        async def main() -> None:
            script = "trap '' TERM; while :; do setsid sleep 1000.0815 & echo; sleep 0.01; done"
            async with shell(script) as child:
                for _ in range(3):
                    await child.stdout.readline()
                assert running_with("1000.0815")
            assert running_with("1000.0815") == []

        asyncio.run(main())

    def test_without_a_free_descriptor_there_is_still_the_group(self) -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)

        async def main() -> list[Identity]:
            async with shell(STUBBORN, grace=60) as child:
                processes = await announced(child)
                resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
                return processes

        try:
            processes = asyncio.run(main())
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert gone(processes)

    def test_strangers_survive(self, stranger: Stranger) -> None:
        async def main() -> None:
            async with python(DAEMON, "1000") as child:
                await announced(child)
                strangers = [
                    stranger([sys.executable, "-c", "input()", DAEMON, "1000"], {}),
                    stranger(["sleep", "1000"], {"HERMES_TURN_ID": OWNER}),
                    stranger(["sleep", "1000"], {"HERMES_TURN_ID": "", "HERMES_TREE_ID": ""}),
                    stranger(
                        ["sh", "-c", f"exec sleep 1000 # {OWNER}"], {"X": f"HERMES_TURN_ID={OWNER}"}
                    ),
                ]
            assert living(strangers) == strangers

        asyncio.run(main())

    def test_another_tree_of_the_same_turn_survives(self) -> None:
        async def main() -> None:
            async with shell(STUBBORN) as other:
                others = await announced(other)
                async with shell(STUBBORN) as child:
                    await announced(child)
                assert living(others) == others

        asyncio.run(main())

    def test_orphans_that_become_our_children_are_reaped(self) -> None:
        """As in a container, where the gateway is the first process."""
        script = f"""
import asyncio, ctypes, os
from hermes_core.supervision.children import ChildTree
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
async def main():
    argv = [{sys.executable!r}, "-c", {DAEMON!r}, "0"]
    async with ChildTree(argv, owner="t_1", env=os.environ, grace=1) as child:
        await child.stdout.readline()
        await child.wait()
asyncio.run(main())
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("none left")
"""
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
        assert done.stdout == b"none left\n"


@pytest.mark.usefixtures("system")
class TestRelease:
    def test_what_was_started_in_the_background_lives_on(self) -> None:
        async def main() -> Identity:
            async with shell("sleep 1000 & echo $!") as child:
                (left,) = await announced(child)
                await child.wait()
                child.release()
                return left

        left = asyncio.run(main())
        try:
            assert left.alive()
        finally:
            os.kill(left.pid, signal.SIGKILL)

    def test_not_while_the_first_process_runs(self) -> None:
        async def main() -> list[Identity]:
            async with shell(STUBBORN) as child:
                processes = await announced(child)
                with pytest.raises(RuntimeError):
                    child.release()
                return processes

        assert gone(asyncio.run(main()))


@pytest.mark.parametrize("owner", ["", " ", "\t\n", "t\0"])
def test_no_owner_no_child(owner: str) -> None:
    with pytest.raises(ValueError, match="owner"):
        ChildTree(["true"], owner=owner, env=ENV)
    with pytest.raises(ValueError, match="owner"):
        asyncio.run(end_leftovers(owner))


@linux_only
class TestLeftovers:
    GATEWAY = """
import asyncio, os, sys
from hermes_core.supervision.children import ChildTree
async def main():
    async with ChildTree(sys.argv[2:], owner=sys.argv[1], env=os.environ) as child:
        print((await child.stdout.readline()).decode().strip(), flush=True)
        await child.wait()
asyncio.run(main())
"""

    def crashed(self, owner: str) -> list[Identity]:
        """What a gateway leaves that was killed in the middle of a turn."""
        argv = [sys.executable, "-c", self.GATEWAY, owner, "sh", "-c", STUBBORN]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as gateway:
            assert gateway.stdout is not None
            left = [identity_of(int(pid)) for pid in gateway.stdout.readline().split()]
            gateway.kill()
        assert living(left) == left
        return left

    def test_only_the_turn_s_own(self) -> None:
        mine, other = self.crashed(f"{OWNER}a"), self.crashed(f"{OWNER}aa")
        try:
            asyncio.run(end_leftovers(f"{OWNER}a", grace=0.1))
            assert living(mine) == []
            assert living(other) == other
        finally:
            asyncio.run(end_leftovers(f"{OWNER}aa", grace=0))
        assert living(other) == []

    def test_never_itself_nor_what_started_it(self) -> None:
        """A gateway that was started by the very turn it cleans up after."""
        code = """
import asyncio, os
from hermes_core.supervision.children import end_leftovers
asyncio.run(end_leftovers(os.environ["HERMES_TURN_ID"], grace=0.1))
print("still here")
"""
        done = subprocess.run(
            ["sh", "-c", '"$0" -c "$1"; echo so am I', sys.executable, code],
            env={**os.environ, "HERMES_TURN_ID": f"{OWNER}b"},
            capture_output=True,
            check=True,
        )
        assert done.stdout == b"still here\nso am I\n"


@pytest.mark.case("SH-11")
@linux_only
def test_children_of_an_abandoned_turn(stranger: Stranger) -> None:
    helper = stranger(["sleep", "700"], {})
    abandoned: list[Identity] = []

    async def turn(running: asyncio.Event) -> None:
        async with shell("sleep 800 & echo $!; exec sleep 801", owner=f"{OWNER}d") as child:
            abandoned.extend([*await announced(child), identity_of(child.pid)])
            running.set()
            await child.wait()

    async def main() -> Identity:
        async with shell("sleep 900 & echo $!", owner=f"{OWNER}c") as child:
            (kept,) = await announced(child)
            assert await child.wait() == 0
            child.release()
        running = asyncio.Event()
        task = asyncio.create_task(turn(running))
        await running.wait()
        assert living(abandoned) == abandoned
        task.cancel()
        with suppress(asyncio.CancelledError):
            async with asyncio.timeout(5):
                await task
        assert living(abandoned) == []
        return kept

    kept = asyncio.run(main())
    try:
        assert living([kept, helper]) == [kept, helper]
    finally:
        os.kill(kept.pid, signal.SIGKILL)
