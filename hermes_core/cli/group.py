"""The group behind `hermes`: a static table, and plugins' commands for a name that is not in it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

import click

from hermes_core.cli.table import Entry

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


CHAT, CHAT_PLUGIN = "chat", "hermes-plugin-console"
"""The one command of a plugin that the core itself tells people to use."""


class Section(click.Group):
    """A group whose help shows the first sentence of each command whole."""

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(formatter.width * 10))
                    for name, command in self.commands.items()
                ]
            )


class CommandGroup(click.Group):
    """Imports a command's module when that command is called, and not before."""

    def __init__(self, table: Mapping[str, Entry], **attributes: object) -> None:
        super().__init__(**attributes)  # type: ignore[arg-type]
        self._table = table

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self._table.get(cmd_name)
        if entry is None:
            from hermes_core.cli import plugged

            return plugged.find(cmd_name)
        command = getattr(import_module(f"hermes_core.cli.{entry.module}"), entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        command = self.get_command(ctx, name)
        if command is None and not ctx.resilient_parsing:
            ctx.fail(self._unknown(name))
        return name, command, args[1:]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from hermes_core.cli import plugged

        helps: dict[str, str | None] = dict.fromkeys(plugged.names())
        helps.update((name, entry.help) for name, entry in self._table.items())
        items = [
            CompletionItem(name, help=text)
            for name, text in helps.items()
            if name.startswith(incomplete)
        ]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self._table.items()])

    def _unknown(self, name: str) -> str:
        from difflib import get_close_matches

        from hermes_core.cli import plugged

        if name == CHAT:
            return f"There is no command {name!r}. pip install {CHAT_PLUGIN}"
        known = [*self._table, *plugged.names()]
        near = get_close_matches(name, known, n=3)
        hint = f"Did you mean {' or '.join(near)}?" if near else "See `hermes --help`."
        return f"There is no command {name!r}. {hint}"
