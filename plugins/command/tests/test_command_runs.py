"""A program answers a turn: what it gets, what becomes of it, and that nothing of it stays."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from hermes_command import CommandAgent, CommandSettings, agents
from hermes_command.document import TurnDocument
from hermes_command.schema import TYPES, schema
from hermes_core import (
    AgentError,
    AgentEvent,
    Attachment,
    ChatKind,
    Commentary,
    Duration,
    HistoryMessage,
    ProfileScope,
    Secret,
    Text,
    Turn,
    TurnMessage,
    Usage,
)

PLUGIN = Path(__file__).parents[1]
STUBBORN = "trap '' TERM; sleep 800 & echo $$ $!; sleep 801; sleep 802"


@dataclass
class FakeScope:
    """As much of a profile as a program can see."""

    state_dir: Path
    name: str = "work"

    def child_environment(self) -> dict[str, str]:
        return {"PATH": os.environ["PATH"]}


@dataclass
class FakeTurn:
    scope: FakeScope
    messages: Sequence[TurnMessage]
    past: list[HistoryMessage]
    id: str = field(default_factory=lambda: f"t_{uuid.uuid4().hex}")
    session_id: str = "s_1"
    attempt: int = 1
    chat_kind: ChatKind = "group"
    hint: str = "Markdown"
    asked: list[int] = field(default_factory=list)
    questions: list[tuple[str, tuple[str, ...], float]] = field(default_factory=list)
    choice: str | None = None
    away: bool = False
    """Nobody is there to choose."""

    async def ask(self, question: str, choices: tuple[str, ...], *, limit: float) -> str | None:
        if len(set(choices)) < len(choices):
            raise ValueError("twice the same")
        self.questions.append((question, choices, limit))
        if self.away:
            await asyncio.Event().wait()
        await asyncio.sleep(0)  # nobody chooses before the program was told its turn
        return self.choice

    async def history(self, *, max_chars: int = 100_000) -> list[HistoryMessage]:
        self.asked.append(max_chars)
        return self.past


@pytest.fixture
def turn(tmp_path: Path) -> FakeTurn:
    state = tmp_path / "state"
    state.mkdir()
    photo = Attachment(ref="the-adapter-s-own", name="a.jpg", media_type="image/jpeg", size=7)
    message = TurnMessage(
        token="the-core-s-own",
        text="hello",
        sender="u1",
        sender_name="Ada",
        received_at=1.5,
        quoted="before",
        attachments=(photo,),
    )
    past = HistoryMessage(role="assistant", text="Hi.", sender_name="", created_at=0.5)
    return FakeTurn(FakeScope(state), [message], [past])


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe with a name: a program that reads it waits until the test writes it."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def start(
    turn: FakeTurn, argv: Sequence[str], **settings: Any
) -> aclosing[AsyncGenerator[AgentEvent, None]]:
    """Run the program. Leaving the context is what the core does when the turn is over."""
    agent = CommandAgent(
        CommandSettings(argv=tuple(argv), **settings), cast(ProfileScope, turn.scope)
    )
    return aclosing(cast("AsyncGenerator[AgentEvent, None]", agent.run(cast(Turn, turn))))


def ask(turn: FakeTurn, argv: Sequence[str], **settings: Any) -> list[AgentEvent]:
    async def collect() -> list[AgentEvent]:
        async with asyncio.timeout(30), start(turn, argv, **settings) as events:
            return [event async for event in events]

    return asyncio.run(collect())


def said(turn: FakeTurn, argv: Sequence[str], **settings: Any) -> str:
    """The text of the whole answer."""
    events = ask(turn, argv, **settings)
    return "".join(event.text for event in events if isinstance(event, Text))


def fails(turn: FakeTurn, argv: Sequence[str], **settings: Any) -> AgentError:
    with pytest.raises(AgentError) as caught:
        ask(turn, argv, **settings)
    return caught.value


async def numbers(events: AsyncGenerator[AgentEvent, None]) -> list[int]:
    """The process numbers that the program writes first."""
    first = await anext(events)
    assert isinstance(first, Text)
    return [int(word) for word in first.text.split()]


def alive(pid: int) -> bool:
    """Whether a process runs; remains that init has not taken away yet do not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


ASKING = """
import json, sys
turn = json.loads(sys.stdin.readline())
for choices in (["Allow", "Deny"], ["Yes", "No"]):
    asked = {"type": "ask", "text": turn["messages"][0]["text"], "choices": choices, "limit": 5}
    print(json.dumps(asked), flush=True)
    answer = json.loads(sys.stdin.readline() or '{"choice": "nobody there"}')
    print(json.dumps({"type": "text", "text": f"{answer['choice']} "}), flush=True)
"""


class TestAsking:
    @pytest.mark.parametrize("choice", ["Allow", None])
    def test_a_program_asks_and_goes_on_with_the_choice(
        self, turn: FakeTurn, choice: str | None
    ) -> None:
        turn.choice = choice
        assert said(turn, python(ASKING), dialogue=True) == f"{choice} {choice} "
        asked = [("hello", ("Allow", "Deny"), 5.0), ("hello", ("Yes", "No"), 5.0)]
        assert turn.questions == asked

    def test_one_that_could_not_hear_the_answer_is_told_what_to_set(self, turn: FakeTurn) -> None:
        error = fails(turn, python(ASKING))
        assert "cannot hear the answer" in str(error)
        assert error.remedy == "set dialogue = true"
        assert turn.questions == []

    def test_what_cannot_be_asked_ends_the_run(self, turn: FakeTurn) -> None:
        script = ASKING.replace('["Allow", "Deny"]', '["Allow", "Allow"]')
        assert "cannot ask that" in str(fails(turn, python(script), dialogue=True))

    def test_who_does_not_wait_for_the_answer_harms_nobody(self, turn: FakeTurn) -> None:
        line = '{"type": "ask", "text": "Sure?", "choices": ["Yes"]}'
        script = f'echo \'{line}\'; echo \'{{"type": "text", "text": "bye"}}\''
        assert said(turn, sh(script), dialogue=True) == "bye"

    @pytest.mark.parametrize("status", [0, 3])
    def test_a_program_that_ends_takes_its_question_back(self, turn: FakeTurn, status: int) -> None:
        turn.away = True
        line = '{"type": "ask", "text": "Sure?", "choices": ["Yes"]}'
        text = '{"type": "text", "text": "bye"}'
        script = f"printf '%s\\n%s\\n' '{line}' '{text}'; exit {status}"
        if status:
            assert "exit status 3" in str(fails(turn, sh(script), dialogue=True))
        else:
            assert said(turn, sh(script), dialogue=True) == "bye"

    def test_one_that_reads_nothing_cannot_outlast_its_time(self, turn: FakeTurn) -> None:
        turn.choice = "Yes"
        message = turn.messages[0]
        turn.messages = [msgspec.structs.replace(message, text="x" * 1_000_000)]
        line = '{"type": "ask", "text": "Sure?", "choices": ["Yes"]}'
        error = fails(
            turn, sh(f"echo '{line}'; exec sleep 800"), dialogue=True, timeout=Duration(0.5)
        )
        assert "did not finish within 500ms" in str(error)

    def test_a_dialogue_has_no_plain_text_for_a_beginning(self) -> None:
        with pytest.raises(ValueError, match="dialogue"):
            CommandSettings(argv=("cat",), input="text", dialogue=True)


class TestInput:
    def test_the_document(self, turn: FakeTurn) -> None:
        assert json.loads(said(turn, ["cat"], output="text")) == {
            "version": 1,
            "turn_id": turn.id,
            "session_id": "s_1",
            "attempt": 1,
            "profile": "work",
            "chat_kind": "group",
            "hint": "Markdown",
            "messages": [
                {
                    "text": "hello",
                    "sender": "u1",
                    "sender_name": "Ada",
                    "received_at": 1.5,
                    "quoted": "before",
                    "attachments": [
                        {
                            "name": "a.jpg",
                            "media_type": "image/jpeg",
                            "size": 7,
                            "path": "",
                            "problem": "",
                        }
                    ],
                }
            ],
            "history": [{"role": "assistant", "text": "Hi.", "sender_name": "", "created_at": 0.5}],
        }

    def test_the_document_is_what_its_schema_says(self, turn: FakeTurn) -> None:
        document = said(turn, ["cat"], output="text")
        assert msgspec.json.decode(document, type=TurnDocument).turn_id == turn.id
        declared = json.loads((PLUGIN / "docs/turn.schema.json").read_text())
        names = declared["$defs"]["TurnDocument"]["properties"].keys()
        assert json.loads(document).keys() == names

    @pytest.mark.parametrize("name", sorted(TYPES))
    def test_the_schemas_in_the_docs_are_current(self, name: str) -> None:
        """If not: ``python -m hermes_command.schema NAME > docs/NAME.schema.json``."""
        assert (PLUGIN / f"docs/{name}.schema.json").read_text() == schema(name)

    def test_just_the_text(self, turn: FakeTurn) -> None:
        turn.messages = [*turn.messages, msgspec.structs.replace(turn.messages[0], text="and?")]
        assert said(turn, ["cat"], input="text") == "hello\n\nand?"
        assert turn.asked == []

    def test_the_budget_of_the_history(self, turn: FakeTurn) -> None:
        said(turn, ["cat"], history=500)
        said(turn, ["cat"], history=0)
        assert turn.asked == [500]

    @pytest.mark.parametrize("script", ["echo hi", "exec 0<&-; echo hi", "head -c 9 >&2; echo hi"])
    def test_a_program_need_not_read_it(self, turn: FakeTurn, script: str) -> None:
        turn.messages = [msgspec.structs.replace(turn.messages[0], text="x" * 1_000_000)]
        assert said(turn, sh(script)) == "hi"

    def test_the_environment(self, turn: FakeTurn, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OF_THE_GATEWAY", "1")
        lines = said(turn, ["env"], env={"API_KEY": Secret("k")}).splitlines()
        values = dict(line.split("=", 1) for line in lines)
        assert values.pop("HERMES_TREE_ID")
        assert values == {
            "PATH": os.environ["PATH"],
            "API_KEY": "k",
            "HERMES_TURN_ID": turn.id,
            "HERMES_SESSION_ID": "s_1",
        }

    def test_it_has_a_directory_of_its_own(self, turn: FakeTurn) -> None:
        directory = Path(said(turn, ["pwd"]))
        assert directory == turn.scope.state_dir / "command"
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700

    def test_or_the_one_of_the_settings(
        self, turn: FakeTurn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert said(turn, ["pwd"], cwd=str(tmp_path)) == str(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert said(turn, ["pwd"], cwd="~/state") == str(tmp_path / "state")

    def test_there_is_no_shell(self, turn: FakeTurn) -> None:
        assert said(turn, ["echo", "$HOME; `id` > x && y", "*"]) == "$HOME; `id` > x && y *"


class TestOutput:
    def test_text_is_passed_on_while_it_comes(self, turn: FakeTurn, gate: Path) -> None:
        async def main() -> list[AgentEvent]:
            async with start(turn, sh(f"echo one; cat {gate}; echo two")) as events:
                first = await anext(events)
                await asyncio.to_thread(gate.write_text, "")
                return [first, *[event async for event in events]]

        assert asyncio.run(main()) == [Text("one"), Text("\ntwo")]

    def test_events_are_passed_on_while_they_come(self, turn: FakeTurn, gate: Path) -> None:
        line = '{"type": "%s", "text": "x"}'
        script = f"echo '{line % 'commentary'}'; cat {gate}; echo '{line % 'text'}'"

        async def main() -> list[AgentEvent]:
            async with start(turn, sh(script)) as events:
                first = await anext(events)
                await asyncio.to_thread(gate.write_text, "")
                return [first, *[event async for event in events]]

        assert asyncio.run(main()) == [Commentary("x"), Text("x")]

    def test_silence_is_an_answer(self, turn: FakeTurn) -> None:
        assert ask(turn, ["true"]) == []

    def test_a_slow_listener_loses_nothing(self, turn: FakeTurn) -> None:
        script = "import os; os.write(1, b'x' * 900_000); os.write(1, b'end')"

        async def main() -> str:
            text = ""
            async with start(turn, python(script)) as events:
                async for event in events:
                    await asyncio.sleep(0)
                    text += event.text if isinstance(event, Text) else ""
            return text

        text = asyncio.run(main())
        assert len(text) == 900_003
        assert text.endswith("end")

    def test_stderr_goes_to_the_log_and_nowhere_else(
        self, turn: FakeTurn, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        script = r"printf 'one\n\033[31mtwo\033[0m\r\nthr' >&2; echo hi; printf 'ee' >&2"
        assert said(turn, sh(script)) == "hi"
        assert [record.getMessage() for record in caplog.records] == [
            "sh: one",
            "sh: two",
            "sh: three",
        ]
        assert {vars(record)["turn"] for record in caplog.records} == {turn.id}
        assert {vars(record)["profile"] for record in caplog.records} == {"work"}

    def test_stderr_is_bounded(self, turn: FakeTurn, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        script = "import sys; sys.stderr.write('x' * 3_000_000 + '\\n' + 'y\\n' * 200_000)"
        assert said(turn, python(script)) == ""
        assert len(caplog.records) < 1_100
        assert max(len(record.getMessage()) for record in caplog.records) < 2_100


class TestFailure:
    def test_exit_status(self, turn: FakeTurn, caplog: pytest.LogCaptureFixture) -> None:
        script = "echo partial; echo 'the key is wrong' >&2; exit 3"
        error = fails(turn, sh(script))
        assert error.what == "The agent's program failed (exit status 3)."
        (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
        assert "exit status 3" in record.getMessage()
        assert "the key is wrong" in record.getMessage()

    def test_a_signal(self, turn: FakeTurn) -> None:
        assert "SIGSEGV" in fails(turn, sh("kill -SEGV $$")).what

    def test_a_program_that_is_not_there(
        self, turn: FakeTurn, caplog: pytest.LogCaptureFixture
    ) -> None:
        error = fails(turn, ["no-such-agent", "--json"])
        assert error.what == "The agent's program no-such-agent was not found."
        assert "install it" in error.remedy
        assert "[agent.command] argv" in caplog.text

    def test_a_program_that_cannot_be_run(self, turn: FakeTurn, tmp_path: Path) -> None:
        program = tmp_path / "agent"
        program.write_text("#!/bin/sh\n")
        assert "may not be run" in fails(turn, [str(program)]).what
        program.write_bytes(b"\0\0")
        program.chmod(0o700)
        assert "cannot be started" in fails(turn, [str(program)]).what
        program.write_text("#!/no/such/interpreter\n")
        assert "interpreter" in fails(turn, [str(program)]).remedy

    def test_a_directory_that_is_not_there(self, turn: FakeTurn, tmp_path: Path) -> None:
        error = fails(turn, ["true"], cwd=str(tmp_path / "gone"))
        assert "working directory" in error.what
        assert str(tmp_path / "gone") in error.where

    def test_a_variable_that_cannot_be_passed(self, turn: FakeTurn) -> None:
        assert "cannot be started" in fails(turn, ["true"], env={"K": Secret("a\0b")}).what

    def test_too_much(self, turn: FakeTurn) -> None:
        error = fails(turn, sh("yes & echo $! >&2; wait"), max_output=100_000)
        assert "too much" in error.what
        assert "100000" in error.remedy

    def test_too_long(self, turn: FakeTurn) -> None:
        error = fails(turn, sh("exec sleep 1000"), timeout=Duration(0.05))
        assert error.what == "The agent's program did not finish within 50ms and was stopped."

    def test_too_long_after_its_last_word(self, turn: FakeTurn) -> None:
        assert "finish" in fails(turn, sh("exec >&- 2>&-; sleep 1000"), timeout=Duration(0.1)).what


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
class TestEnd:
    def test_cancelling_ends_the_tree(self, turn: FakeTurn) -> None:
        processes: list[int] = []

        async def listen(running: asyncio.Event) -> None:
            async with start(turn, sh(STUBBORN)) as events:
                processes.extend(await numbers(events))
                running.set()
                async for _ in events:
                    pass

        async def main() -> None:
            running = asyncio.Event()
            task = asyncio.create_task(listen(running))
            await running.wait()
            assert all(map(alive, processes))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not any(map(alive, processes))

        asyncio.run(main())
        assert len(processes) == 2

    def test_a_listener_that_leaves_ends_the_tree(self, turn: FakeTurn) -> None:
        async def main() -> list[int]:
            async with start(turn, sh("sleep 800 & echo $$ $!; wait")) as events:
                return await numbers(events)

        processes = asyncio.run(main())
        assert len(processes) == 2
        assert not any(map(alive, processes))

    def test_failing_ends_the_tree(self, turn: FakeTurn, tmp_path: Path) -> None:
        note = tmp_path / "pid"
        fails(turn, sh(f"setsid sleep 800 & echo $! > {note}; exit 1"))
        assert not alive(int(note.read_text()))

    def test_a_second_attempt_begins_without_the_first(self, turn: FakeTurn) -> None:
        left = subprocess.Popen(
            sh("echo; exec sleep 800"),
            env={"HERMES_TURN_ID": turn.id},
            stdout=subprocess.PIPE,
        )
        assert left.stdout is not None
        with left.stdout:
            left.stdout.readline()
        turn.attempt = 2
        try:
            assert said(turn, ["echo", "again"]) == "again"
            assert left.wait(5) == -signal.SIGTERM
        finally:
            left.kill()
            left.wait()

    @pytest.mark.case("SH-11")
    @pytest.mark.parametrize("abandoned_by", ["stop", "time limit"])
    def test_children_of_an_abandoned_turn(self, turn: FakeTurn, abandoned_by: str) -> None:
        limit = 1.5 if abandoned_by == "time limit" else 60.0

        async def abandon(events: AsyncGenerator[AgentEvent, None]) -> None:
            if abandoned_by == "time limit":
                with pytest.raises(AgentError, match="finish"):
                    await anext(events)

        async def main() -> tuple[int, list[int]]:
            async with start(turn, sh("sleep 900 & echo $!")) as events:
                (kept,) = await numbers(events)
                assert [event async for event in events] == []
            turn.id += "_next"
            script = "sleep 800 & echo $! $$; exec sleep 801"
            async with (
                asyncio.timeout(5),
                start(turn, sh(script), timeout=Duration(limit)) as events,
            ):
                ended = await numbers(events)
                assert all(map(alive, ended))
                await abandon(events)
            return kept, ended

        helper = subprocess.Popen(["sleep", "700"])
        kept, ended = asyncio.run(main())
        try:
            assert len(ended) == 2
            assert not any(map(alive, ended))
            assert alive(kept)
            assert helper.poll() is None
        finally:
            os.kill(kept, signal.SIGKILL)
            helper.kill()
            helper.wait()


class TestSettings:
    @pytest.mark.parametrize(
        "settings",
        [
            {"argv": ()},
            {"argv": (" ", "x")},
            {"argv": ("x", "\0")},
            {"argv": ("x",), "timeout": Duration(0)},
            {"argv": ("x",), "cwd": "here"},
            {"argv": ("~no-such-user/x",)},
            {"argv": ("x",), "env": {"A=B": Secret("x")}},
        ],
    )
    def test_what_cannot_work_is_refused(self, settings: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r".+"):
            CommandSettings(**settings)


class TestExamples:
    def test_an_agent_of_one_s_own(self, turn: FakeTurn) -> None:
        assert ask(turn, python_file("counts.py")) == [
            Commentary("counting"),
            Text("1 words. "),
            Usage(model="counts"),
        ]

    def test_a_history_for_those_who_read_text(self, turn: FakeTurn) -> None:
        prompt = said(turn, [*python_file("with_history.py"), "cat"])
        assert prompt.endswith("answer and nothing else.\n\nassistant: Hi.\n\nuser: hello")
        failing = [*python_file("with_history.py"), "sh", "-c", "exit 4"]
        assert "exit status 4" in fails(turn, failing).what

    def test_the_readme_shows_them(self) -> None:
        readme = (PLUGIN / "README.md").read_text()
        for example in (PLUGIN / "examples").iterdir():
            assert f"```python\n{example.read_text()}```" in readme


def python_file(name: str) -> list[str]:
    return [sys.executable, str(PLUGIN / "examples" / name)]


def test_declaring_the_agent_loads_nothing_heavy() -> None:
    code = "import sys, hermes_command; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert not {"asyncio", "subprocess", "mimetypes"} & set(done.stdout.split())


def test_the_agent_is_declared() -> None:
    (declared,) = agents()
    assert (declared.name, declared.settings) == ("command", CommandSettings)
