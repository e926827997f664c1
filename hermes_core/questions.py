"""Questions that a turn asks while it runs, and who may answer them.

A question is shown with a button for each choice, or with a numbered list where the platform has no
buttons; then `/choose N` answers it. Only the person whose message the turn answers, or an admin,
can decide, in the same chat, once, while the turn waits. A question does not outlive its turn: one
that a crash cut is asked again by the next attempt, and its old buttons do nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hermes_core.commands import Call, Command
from hermes_core.delivery import Delivery, Reply
from hermes_core.ids import new_id
from hermes_core.messages import Action, Button
from hermes_core.store.outbox import Shown

if TYPE_CHECKING:
    from hermes_core.attempts import Link
    from hermes_core.lanes import Run
    from hermes_core.moves import Moves

MAX_CHOICES = 8
MAX_LABEL = 40
"""Characters of a choice: what a button of a telephone's width shows."""


@dataclass(eq=False)
class _Question:
    """One question that waits. `text` is what the message with the buttons says. For each choice
    there is the value of its button, and a number that no other question has: whoever answers late
    decides nothing else."""

    run: Run
    text: str
    choices: tuple[str, ...]
    reply: Reply
    values: tuple[str, ...]
    numbers: range
    chosen: asyncio.Future[int] = field(repr=False)

    @property
    def waits(self) -> bool:
        return self.run.live and not self.run.cancelled and not self.chosen.done()

    def is_for(self, sender_id: str, *, admin: bool) -> bool:
        return self.waits and (admin or sender_id == self.run.owner)


class Questions:
    """The questions of one profile that wait for an answer."""

    def __init__(
        self, delivery: Delivery, link: Callable[[str], Link | None], moves: Moves
    ) -> None:
        """`link(account_key)` finds a configured account of the profile; `moves` are its chats that
        have moved."""
        self._delivery = delivery
        self._link = link
        self._moves = moves
        self._open: list[_Question] = []
        self._next = 1

    async def ask(
        self, run: Run, reply: Reply, text: str, choices: Sequence[str], limit: float
    ) -> str | None:
        """Ask, and wait up to `limit` seconds. The choice, None when nobody made one.

        A run that was cancelled asks nothing. Raises ValueError for what cannot be asked.
        """
        _require_askable(text, choices)
        question = _Question(
            run,
            text,
            tuple(choices),
            replace(reply, shown=Shown(), answers=()),
            tuple(new_id("q") for _ in choices),
            range(self._next, self._next + len(choices)),
            asyncio.get_running_loop().create_future(),
        )
        if not question.waits:
            return None
        self._next += len(choices)
        self._open.append(question)
        try:
            self._show(question, limit)
            await asyncio.wait([question.chosen], timeout=limit)
            # What was chosen counts, also at the last moment: people were told.
            chosen = question.chosen
            return question.choices[chosen.result()] if chosen.done() else None
        finally:
            self._open.remove(question)

    def press(self, event: Action, *, admin: bool) -> None:
        """A button was pressed. What is no answer to a question that waits does nothing."""
        for question in self._open:
            if event.value in question.values and self._may_press(question, event, admin=admin):
                self._choose(question, question.values.index(event.value), event.message_id)

    @property
    def command(self) -> Command:
        return Command("choose", "answer a question: /choose NUMBER", run=self._by_command)

    async def _by_command(self, call: Call) -> str:
        asked = {number: question for question in self._asked(call) for number in question.numbers}
        if not asked:
            return "There is no question for you to answer."
        typed = call.arguments
        number = int(typed) if typed.isascii() and typed.isdigit() and len(typed) < 10 else 0  # noqa: PLR2004
        if number not in asked:
            return f"Use /choose with one of these numbers: {', '.join(map(str, asked))}."
        question = asked[number]
        index = question.numbers.index(number)
        question.chosen.set_result(index)
        return f"→ {question.choices[index]}"

    def _asked(self, call: Call) -> list[_Question]:
        """The questions of a session that the sender of a command may answer."""
        key = self._moves.key(call.session_key)
        return [
            question
            for question in self._open
            if self._moves.key(question.reply.session_key) == key
            and question.is_for(call.event.sender.id, admin=call.admin)
        ]

    def _show(self, question: _Question, limit: float) -> None:
        link = self._link(question.reply.address.account_key)
        if link is not None and link.platform.buttons:
            buttons = tuple(
                Button(label=label, value=value)
                for label, value in zip(question.choices, question.values, strict=True)
            )
            question.text = self._delivery.ask(question.reply, question.text, buttons, lives=limit)
            return
        listed = "\n".join(
            f"{number}. {label}"
            for number, label in zip(question.numbers, question.choices, strict=True)
        )
        text = f"{question.text}\n{listed}\nAnswer with /choose and a number."
        self._delivery.ask(question.reply, text, (), lives=limit)

    def _may_press(self, question: _Question, event: Action, *, admin: bool) -> bool:
        address = self._moves.address(event.address)
        asked = self._moves.address(question.reply.address)
        same_chat = (address.account_key, address.chat_id) == (asked.account_key, asked.chat_id)
        return same_chat and question.is_for(event.sender.id, admin=admin)

    def _choose(self, question: _Question, index: int, message_id: str) -> None:
        """Let the turn go on, and let the question say what was chosen, its buttons gone."""
        question.chosen.set_result(index)
        link = self._link(question.reply.address.account_key)
        edits = message_id if link is not None and link.platform.edit else ""
        reply = replace(question.reply, shown=Shown(edits))
        self._delivery.tell(reply, f"{question.text}\n→ {question.choices[index]}")


def _require_askable(text: str, choices: Sequence[str]) -> None:
    if not text.strip():
        raise ValueError("a question needs a text")
    if not 1 <= len(choices) <= MAX_CHOICES or len(set(choices)) < len(choices):
        raise ValueError(f"a question needs 1 to {MAX_CHOICES} different choices")
    for label in choices:
        if not label.strip() or len(label) > MAX_LABEL or "\n" in label:
            raise ValueError(f"a choice is one line of 1 to {MAX_LABEL} characters: {label!r}")
