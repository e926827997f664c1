"""`hermes completion`: the script with which a shell completes commands, options and values."""

from __future__ import annotations

import click

_WHERE = {
    "bash": 'eval "$(hermes completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(hermes completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "hermes completion fish > ~/.config/fish/completions/hermes.fish",
}


@click.command(epilog="\b\n" + "\n".join(_WHERE.values()))
@click.argument("shell", type=click.Choice(tuple(_WHERE)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL. Commands of plugins are completed too."""
    from click.shell_completion import ShellComplete, get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "hermes", "_HERMES_COMPLETE")
    # Not its own `source`: bash's starts a bash to ask for its version, and there may be none here.
    click.echo(ShellComplete.source(script))
