from __future__ import annotations

import asyncio
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hermes_echo
from hermes_core import AgentError, ProfileScope, Text, Turn, TurnMessage
from hermes_echo import EchoAgent, EchoSettings
from hermes_echo.agent import answer


class FakeTurn:
    """Only what the echo agent looks at."""

    def __init__(self, *texts: str) -> None:
        self.asked: list[tuple[str, list[str]]] = []
        self.choice: str | None = None
        self.messages: Sequence[TurnMessage] = [
            TurnMessage(token=str(n), text=text, sender="1", sender_name="", received_at=0.0)
            for n, text in enumerate(texts)
        ]

    async def ask(self, question: str, choices: Sequence[str]) -> str | None:
        self.asked.append((question, list(choices)))
        return self.choice


def pieces(*texts: str, turn: FakeTurn | None = None) -> list[str]:
    agent = EchoAgent(EchoSettings(), cast(ProfileScope, None))  # it looks at nothing of a profile
    given = turn or FakeTurn(*texts)

    async def collect() -> list[str]:
        events = [event async for event in agent.run(cast(Turn, given))]
        return [event.text for event in events if isinstance(event, Text)]

    return asyncio.run(collect())


def test_says_what_it_was_told_word_by_word() -> None:
    assert pieces("good  morning,\nworld") == ["good  ", "morning,\n", "world"]


def test_answers_all_messages_of_a_turn() -> None:
    assert "".join(pieces("one", "two")) == "one\ntwo"


@given(st.text())
def test_no_character_is_lost(text: str) -> None:
    reply = answer(f"“{text}")
    assert "".join(reply.pieces) == f"“{text}"
    assert reply.pause == 0


def test_slow_spreads_the_words_over_the_time() -> None:
    reply = answer("slow 6 one two three")
    assert list(reply.pieces) == ["one ", "two ", "three"]
    assert reply.pause == 2.0
    assert pieces("slow 0.01 one two") == ["one ", "two"]


@pytest.mark.parametrize(
    "text", ["slow", "slow 5", "slow down please", "long", "long way", "failed"]
)
def test_words_without_their_argument_are_text(text: str) -> None:
    assert "".join(pieces(text)) == text


@given(st.integers(min_value=0, max_value=20_000))
def test_long_is_exactly_as_long_as_asked(length: int) -> None:
    text = "".join(answer(f"long {length}").pieces)
    assert len(text) == length
    assert text == text.rstrip()
    assert text.split()[:-1] == [str(n + 1) for n in range(len(text.split()) - 1)]


def test_silent_says_nothing() -> None:
    assert pieces("silent") == []


def test_fail_tells_the_person() -> None:
    with pytest.raises(AgentError, match="as you asked"):
        pieces("fail")


def test_crash_is_an_error_that_nobody_foresaw() -> None:
    with pytest.raises(RuntimeError, match="crash"):
        pieces("crash")


def test_the_plugin_declares_one_agent() -> None:
    (declared,) = hermes_echo.agents()
    assert (declared.name, declared.agent, declared.settings) == ("echo", EchoAgent, EchoSettings)
    (entry_point,) = entry_points(group="hermes.plugins", name="echo")
    assert entry_point.load() is hermes_echo


@pytest.mark.parametrize(("choice", "said"), [("Yes", "Yes"), (None, "Nobody answered.")])
def test_ask_says_what_was_chosen(choice: str | None, said: str) -> None:
    turn = FakeTurn("ask Shall I?")
    turn.choice = choice
    assert "".join(pieces(turn=turn)) == said
    assert turn.asked == [("Shall I?", ["Yes", "No"])]
