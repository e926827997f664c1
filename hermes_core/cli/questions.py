"""Questions to a person: on a terminal, through a pipe, or not at all."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import click

from hermes_core.cli.streams import one_line
from hermes_core.errors import HermesError

_YES, _NO = frozenset({"y", "yes"}), frozenset({"n", "no"})


@dataclass(frozen=True)
class Questions:
    """Asks, unless `defaults` says to take the default of every question."""

    defaults: bool = False

    @property
    def patient(self) -> bool:
        """Whether somebody is there who can answer again."""
        return not self.defaults and sys.stdin.isatty()

    def text(self, question: str, *, hidden: bool = False) -> str:
        """An answer that is not empty. With `hidden`, a terminal does not show it.

        Raises HermesError when there is nobody to ask.
        """
        if self.defaults:
            raise HermesError(
                f"there is no default for this: {question}", remedy="run it without --defaults"
            )
        while not (answer := _read(f"{question}: ", hidden=hidden)):
            click.echo("This one has no default.")
        return answer

    def optional(self, question: str) -> str:
        """An answer that may be empty, which is the default."""
        return "" if self.defaults else _read(f"{question}: ")

    def confirm(self, question: str, *, default: bool) -> bool:
        """Yes or no."""
        while not self.defaults:
            answer = _read(f"{question} [{'Y/n' if default else 'y/N'}]: ").lower()
            if answer in _YES | _NO:
                return answer in _YES
            if not answer:
                break
            click.echo("Please answer yes or no.")
        return default

    def choose(self, question: str, choices: Sequence[str], default: str) -> str:
        """One of `choices`."""
        while not self.defaults:
            answer = _read(f"{question} ({', '.join(choices)}) [{default}]: ") or default
            if answer in choices:
                return answer
            click.echo(f"{one_line(answer)} is none of them.")
        return default


def _read(prompt: str, *, hidden: bool = False) -> str:
    """One line, without white space around it. Raises HermesError at the end of the input."""
    if hidden and sys.stdin.isatty():
        import getpass

        return getpass.getpass(prompt).strip()
    click.echo(prompt, nl=False)
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not sys.stdin.isatty():
        click.echo()
    if not line:
        raise HermesError("the input ended before every question was answered: nothing is changed")
    return line.strip()
