"""`hermes chat` as a process of its own, through the whole way of a message."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

LIMIT = 60.0
"""Seconds after which a process of these tests is a failure."""


class Hermes:
    """The installed `hermes` with a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "hermes_core.cli", *arguments],
            env={**os.environ, "HERMES_HOME": str(self.home)},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def run(self, *arguments: str, said: str = "") -> tuple[int, str, str]:
        """Exit code, output and errors."""
        process = self.start(*arguments, stdin=subprocess.PIPE)
        out, err = process.communicate(said, timeout=LIMIT)
        return process.returncode, out, err

    def gateway(self) -> subprocess.Popen[str]:
        """`hermes run`, ready."""
        process = self.start("run")
        assert process.stderr is not None
        for line in process.stderr:
            if "the gateway is ready" in line:
                return process
        raise AssertionError("the gateway did not start")

    def transcript(self) -> list[tuple[str, str]]:
        _, out, _ = self.run("sessions", "show", "--json")
        return [(line["role"], line["text"]) for line in json.loads(out)["transcript"]]

    def busy(self) -> int:
        """How many messages wait for a turn or are in one."""
        sessions = json.loads(self.run("sessions", "list", "--json")[1])
        return sum(session["waiting"] for session in sessions)

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


@pytest.fixture
def hermes(tmp_path: Path) -> Iterator[Hermes]:
    started = Hermes(tmp_path / "home")
    yield started
    started.end()


def test_one_message_prints_the_reply_only(hermes: Hermes) -> None:
    assert hermes.run("chat", "-m", "hello there") == (0, "hello there\n", "")
    assert hermes.transcript() == [("user", "hello there"), ("assistant", "hello there")]


def test_a_piped_flood_waits_its_turn(hermes: Hermes) -> None:
    numbers = "".join(f"{n}\n" for n in range(1, 501))
    assert hermes.run("chat", said=numbers) == (0, numbers, "")


def test_empty_lines_say_nothing_and_the_last_line_needs_no_end(hermes: Hermes) -> None:
    assert hermes.run("chat", said="\none\n  \ntwo") == (0, "one\ntwo\n", "")


def test_long_texts_arrive_whole(hermes: Hermes) -> None:
    code, out, err = hermes.run("chat", said="long 100000\n")
    assert (code, len(out), err) == (0, 100_001, "")
    assert out.split()[:3] == ["1", "2", "3"]


def test_a_failed_turn_is_an_error_and_the_rest_is_said(hermes: Hermes) -> None:
    code, out, err = hermes.run("chat", said="fail\nhello\n")
    assert (code, out) == (1, "hello\n")
    assert err == "hermes: The echo agent failed, as you asked.\n"


def test_an_agent_that_chose_to_say_nothing_is_not_waited_for(hermes: Hermes) -> None:
    assert hermes.run("chat", said="[SILENT]\nhello\n") == (0, "hello\n", "")


def test_a_command_is_answered(hermes: Hermes) -> None:
    code, out, err = hermes.run("chat", "-m", "/help")
    assert (code, err) == (0, "")
    assert "/stop" in out


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["-m", " "], 2, "nothing to say"),
        (["-m", "hi", "--chat", "a\nb"], 1, "cannot name a chat"),
        (["-m", "hi", "--profile", "Not A Name"], 2, "cannot name a profile"),
    ],
)
def test_what_cannot_be_is_one_clear_error(
    hermes: Hermes, arguments: list[str], code: int, reason: str
) -> None:
    found, out, err = hermes.run("chat", *arguments)
    assert (found, out) == (code, "")
    assert reason in err.splitlines()[-1]


def test_a_home_that_is_a_file_is_one_clear_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not ours")
    code, out, err = Hermes(file).run("chat", "-m", "hi")
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert str(file) in err
    assert file.read_text() == "not ours"


def test_a_reader_that_leaves_is_no_error(hermes: Hermes) -> None:
    process = hermes.start("chat", stdin=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stdin is not None
    process.stdin.write("hello\n")
    process.stdin.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(LIMIT) == 128 + signal.SIGPIPE


def test_a_running_gateway_is_used(hermes: Hermes) -> None:
    gateway = hermes.gateway()
    assert hermes.run("chat", "-m", "hello") == (0, "hello\n", "")
    assert gateway.poll() is None
    gateway.terminate()
    assert gateway.wait(LIMIT) == 0


def test_the_answer_survives_the_death_of_the_gateway(hermes: Hermes) -> None:
    gateway = hermes.gateway()
    chat = hermes.start("chat", "-m", "slow 2 hello again")
    while not hermes.busy():
        pass
    gateway.kill()
    gateway.wait(LIMIT)
    hermes.gateway()
    out, err = chat.communicate(timeout=LIMIT)
    assert (chat.returncode, out) == (0, "hello again\n")
    assert err.splitlines() == [
        "hermes: the gateway does not answer; waiting for it",
        "hermes: the gateway is back",
    ]
    assert hermes.transcript() == [("user", "slow 2 hello again"), ("assistant", "hello again")]


def test_chats_that_start_at_once_are_all_answered(hermes: Hermes) -> None:
    chats = [hermes.start("chat", "-m", f"slow 1 hello {number}") for number in range(3)]
    for number, chat in enumerate(chats):
        out, _ = chat.communicate(timeout=LIMIT)
        assert (chat.returncode, out) == (0, f"hello {number}\n")


def test_a_chat_takes_the_place_of_the_chat_that_was_the_gateway(hermes: Hermes) -> None:
    first = hermes.start("chat", stdin=subprocess.PIPE)
    assert first.stdin is not None
    first.stdin.write("hello\n")
    first.stdin.flush()
    assert first.stdout is not None
    assert first.stdout.readline() == "hello\n"
    second = hermes.start("chat", stdin=subprocess.PIPE)
    assert second.stdin is not None
    second.stdin.write("one\n")
    second.stdin.flush()
    assert second.stdout is not None
    assert second.stdout.readline() == "one\n"
    first.stdin.close()
    assert first.wait(LIMIT) == 0
    second.stdin.write("two\n")
    second.stdin.close()
    assert second.stdout.read() == "two\n"
    assert second.wait(LIMIT) == 0


def test_a_chat_that_is_the_gateway_can_be_told_to_stop(hermes: Hermes) -> None:
    idle = hermes.start("chat", stdin=subprocess.PIPE)
    assert idle.stdin is not None
    idle.stdin.write("slow 3 hello hello\n")
    idle.stdin.flush()
    while not hermes.busy():
        pass
    assert hermes.run("stop", "--grace", "30")[0] == 0
    out, err = idle.communicate(timeout=LIMIT)
    assert (idle.returncode, out) == (1, "hello hello\n"), err
    assert err.splitlines()[-1] == "hermes: the gateway was told to stop"


def test_an_answer_that_nobody_waited_for_is_shown_later(hermes: Hermes) -> None:
    hermes.gateway()
    chat = hermes.start("chat", "-m", "slow 1 for later")
    while not hermes.busy():
        pass
    chat.kill()
    chat.wait(LIMIT)
    code, out, err = hermes.run("chat", "-m", "hello")
    assert (code, out) == (0, "hello\n")
    assert err == "hermes: an answer that was still to be delivered: for later\n"


def test_ctrl_c_stops_the_turn_and_leaves(hermes: Hermes) -> None:
    hermes.gateway()
    chat = hermes.start("chat", "-m", "slow 600 never to be seen")
    while not hermes.busy():
        pass
    chat.send_signal(signal.SIGINT)
    out, err = chat.communicate(timeout=LIMIT)
    assert (chat.returncode, out, err) == (128 + signal.SIGINT, "", "")
    while hermes.busy():
        pass


def test_the_end_of_the_terminal_drains_a_gateway_of_our_own(hermes: Hermes) -> None:
    chat = hermes.start("chat", stdin=subprocess.PIPE)
    assert chat.stdin is not None
    chat.stdin.write("slow 1 hello\n")
    chat.stdin.flush()
    while not hermes.busy():
        pass
    chat.send_signal(signal.SIGHUP)
    assert chat.wait(LIMIT) == 128 + signal.SIGHUP
    assert hermes.transcript() == [("user", "slow 1 hello"), ("assistant", "hello")]


def test_a_question_is_shown_beside_the_replies_and_another_chat_may_answer_it(
    hermes: Hermes,
) -> None:
    hermes.gateway()
    asking = hermes.start("chat", "-m", "ask Shall I?")
    assert asking.stderr is not None
    shown = "".join(asking.stderr.readline() for _ in range(4))
    assert shown == "hermes: Shall I?\n1. Yes\n2. No\nAnswer with /choose and a number.\n"
    assert hermes.run("chat", "-m", "/choose 2") == (0, "→ No\n", "")
    assert asking.communicate(timeout=LIMIT) == ("No\n", "")
