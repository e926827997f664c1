"""What stands around every command: global options, safe output, errors and exit codes."""

from __future__ import annotations

import contextlib
import os
import sys

import click

from hermes_core.cli.group import CommandGroup
from hermes_core.cli.invocation import Invocation
from hermes_core.cli.streams import EXIT_PIPE, complain, flush, open_standard_streams
from hermes_core.cli.table import COMMANDS
from hermes_core.errors import EXIT_FAILURE, HermesError
from hermes_core.version import VERSION

EXIT_INTERRUPTED = 130

_EPILOG = "Plugins add commands of their own, such as `chat`: `hermes plugins list` shows them."


def _show_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    click.echo(f"hermes {VERSION}")
    ctx.exit()


@click.group(
    cls=CommandGroup,
    table=COMMANDS,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--profile",
    metavar="NAME",
    default="default",
    envvar="HERMES_PROFILE",
    help="Use the profile NAME.",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.pass_context
def hermes(ctx: click.Context, profile: str) -> None:
    """Connect people on chat networks to an AI agent."""
    ctx.obj = Invocation(profile=profile)


def run(arguments: list[str] | None = None) -> int:
    """Run one command (of sys.argv when `arguments` is None) and return its exit code."""
    open_standard_streams()
    code = _run(sys.argv[1:] if arguments is None else arguments)
    return flush(told=code != 0) or code


def _run(arguments: list[str]) -> int:
    try:
        if "_HERMES_COMPLETE" in os.environ:
            hermes.main(arguments, prog_name="hermes")
        with hermes.make_context("hermes", arguments) as ctx:
            result = hermes.invoke(ctx)
    except click.exceptions.Exit as error:
        return error.exit_code
    except SystemExit as error:
        return _exit_code(error)
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return EXIT_PIPE
    except (click.ClickException, HermesError, OSError) as error:
        return _report(error)
    return result if type(result) is int else 0


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    complain(str(error.code))
    return EXIT_FAILURE


def _report(error: click.ClickException | HermesError | OSError) -> int:
    if isinstance(error, click.ClickException):
        with contextlib.suppress(OSError):
            error.show()
        return error.exit_code
    if isinstance(error, HermesError):
        complain(str(error))
        return error.exit_code
    reason = error.strerror or str(error)
    complain(f"{error.filename}: {reason}" if error.filename else reason)
    return EXIT_FAILURE
