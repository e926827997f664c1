"""One turn: start the program, give it the turn, pass on what it says, see it end."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator, Awaitable, Coroutine
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from hermes_command.document import turn_document, turn_text
from hermes_command.events import AskLine
from hermes_command.output import OutputReader
from hermes_command.settings import CommandSettings, expand, run_in
from hermes_command.stderr import ErrorLog
from hermes_core import AgentError, AgentEvent, ChildTree, Duration, Turn, end_leftovers

T = TypeVar("T")

_CHUNK = 65_536
_SETTLE = 1.0
"""Seconds for the helpers to see that the pipes are closed. They need a few rounds of the loop."""
_WHERE = "[agent.command]"

log = logging.getLogger(__name__)


async def answer(settings: CommandSettings, turn: Turn) -> AsyncGenerator[AgentEvent, None]:
    """What the program says to the turn. Raises AgentError."""
    place = {"profile": turn.scope.name, "turn": turn.id}
    errors = ErrorLog(settings.program, place)
    run = _Run(settings, turn)
    try:
        async with AsyncExitStack() as stack:
            helpers = await stack.enter_async_context(_Helpers())  # they end after the program
            stdin = await run.stdin()
            child = await run.start(stack)
            helpers.start(_feed(child.stdin, stdin, close=not settings.dialogue))
            helpers.start(errors.read(child.stderr))
            output = OutputReader(settings.output, run.cwd, place)
            while chunk := await run.read(child.stdout):
                for said in output.feed(chunk):
                    if isinstance(said, AskLine):
                        await run.ask(said, child)
                    else:
                        yield said
            for said in output.end():
                if not isinstance(said, AskLine):  # nobody is left to hear the answer
                    yield said
            await run.finish(child)
    except AgentError as error:
        words = f"; its last words: {errors.last_words}" if errors.last_words else ""
        log.error("%s%s", error, words, extra=place)
        raise


class _Run:
    """The settings of a run and what is left of its limits."""

    def __init__(self, settings: CommandSettings, turn: Turn) -> None:
        self._settings = settings
        self._turn = turn
        self._deadline = asyncio.get_running_loop().time() + settings.timeout
        self._taken = 0
        self.cwd = run_in(settings, turn.scope)

    async def stdin(self) -> bytes:
        if self._settings.input == "text":
            return turn_text(self._turn).encode("utf-8", "replace")
        budget = self._settings.history
        history = await self._turn.history(max_chars=budget) if budget else []
        return msgspec.json.encode(turn_document(self._turn, history)) + b"\n"

    async def start(self, stack: AsyncExitStack) -> ChildTree:
        turn, settings = self._turn, self._settings
        if turn.attempt > 1:
            await end_leftovers(turn.id)
        environment = {
            **turn.scope.child_environment(),
            **{name: secret.reveal() for name, secret in settings.env.items()},
            "HERMES_SESSION_ID": turn.session_id,
        }
        argv = [expand(settings.argv[0]), *settings.argv[1:]]
        try:
            if not settings.cwd:
                self.cwd.mkdir(mode=0o700, parents=True, exist_ok=True)
            tree = ChildTree(argv, owner=turn.id, env=environment, cwd=self.cwd)
            return await stack.enter_async_context(tree)
        except (OSError, ValueError) as error:
            raise self._not_started(error) from error

    async def read(self, stdout: asyncio.StreamReader) -> bytes:
        chunk = await self._in_time(stdout.read(_CHUNK))
        self._taken += len(chunk)
        if self._taken > self._settings.max_output:
            raise AgentError(
                "The agent's program said too much and was stopped.",
                where=f"{_WHERE} max_output",
                remedy=f"it wrote more than {self._settings.max_output} bytes",
            )
        return chunk

    async def ask(self, question: AskLine, child: ChildTree) -> None:
        """Let the person choose, and tell the program. A program that ends takes its question
        back."""
        if not self._settings.dialogue:
            raise AgentError(
                "The agent's program asks something, and cannot hear the answer.",
                where=f"{_WHERE} dialogue",
                remedy="set dialogue = true",
            )
        asking = self._turn.ask(question.text, question.choices, limit=question.limit)
        try:
            choice = await self._in_time(_unless(child.wait(), asking))
        except ValueError as error:
            raise AgentError(f"The agent's program cannot ask that: {error}.") from error
        # Not drained: the line is short, and a program that reads nothing must not hold the run up.
        child.stdin.write(msgspec.json.encode({"choice": choice}) + b"\n")

    async def finish(self, child: ChildTree) -> None:
        """See the program end well. What it left running in the background then is meant to run."""
        status = await self._in_time(child.wait())
        if status == 0:
            child.release()
            return
        how = f"exit status {status}" if status > 0 else f"signal {_signal_name(-status)}"
        raise AgentError(f"The agent's program failed ({how}).", where=self._settings.program)

    async def _in_time(self, awaitable: Awaitable[T]) -> T:
        try:
            # Around each step and never around a yield, where it would cancel the caller.
            async with asyncio.timeout_at(self._deadline):
                return await awaitable
        except TimeoutError:
            limit = Duration.text(self._settings.timeout)
            raise AgentError(
                f"The agent's program did not finish within {limit} and was stopped.",
                where=f"{_WHERE} timeout",
            ) from None

    def _not_started(self, error: Exception) -> AgentError:
        program = self._settings.argv[0]
        if isinstance(error, OSError) and error.filename in (self.cwd, str(self.cwd)):
            return AgentError(
                f"The agent's working directory cannot be used: {error.strerror}.",
                where=f"{_WHERE} cwd: {self.cwd}",
                remedy="create it, or set another one",
            )
        if isinstance(error, FileNotFoundError):
            return AgentError(
                f"The agent's program {program} was not found.",
                where=f"{_WHERE} argv",
                remedy="install it, or give its full path; a script needs its interpreter too",
            )
        if isinstance(error, PermissionError):
            return AgentError(
                f"The agent's program {program} may not be run.",
                where=f"{_WHERE} argv",
                remedy="make it executable for the user of the gateway",
            )
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return AgentError(
            f"The agent's program {program} cannot be started: {reason}.", where=f"{_WHERE} argv"
        )


class _Helpers:
    """Tasks beside the run. They end by themselves when the program has ended."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[object, object, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=_SETTLE)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)


async def _unless(end: Coroutine[object, object, object], work: Awaitable[T]) -> T | None:
    """What `work` comes to; None when `end` came first, and `work` is cancelled."""
    tasks = asyncio.ensure_future(work), asyncio.ensure_future(end)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return tasks[0].result() if tasks[0].done() else None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _feed(stdin: asyncio.StreamWriter, data: bytes, *, close: bool) -> None:
    # A program need not read its stdin.
    with suppress(BrokenPipeError, ConnectionResetError):
        stdin.write(data)
        await stdin.drain()
    if close:
        stdin.close()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
