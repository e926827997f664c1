"""`hermes config`: look at a profile's settings, check them, change them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hermes_core.cli.group import Section
from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option
from hermes_core.errors import EXIT_CONFIG, ConfigError, HermesError

if TYPE_CHECKING:
    from hermes_core.config import Checked, Document
    from hermes_core.errors import Fault


@click.group(cls=Section)
def config() -> None:
    """Look at a profile's settings, check them, change them."""


@config.command()
@json_option
@click.pass_obj
def path(invocation: Invocation, json: bool) -> None:
    """Show which file holds the settings. It need not exist."""
    emit({"path": _file(invocation)}, json, lambda found: click.echo(found["path"]))


@config.command()
@json_option
@click.pass_obj
def show(invocation: Invocation, json: bool) -> None:
    """Show all settings in effect, defaults included. Secrets show as references."""
    emit(_effective(invocation), json, lambda tables: click.echo(_toml(tables), nl=False))


@config.command()
@click.argument("key")
@json_option
@click.pass_obj
def get(invocation: Invocation, key: str, json: bool) -> None:
    """Show the value of KEY in effect, such as sessions.busy."""
    from hermes_core.config.edit import parse_key

    value: Any = _effective(invocation)
    for part in parse_key(key):
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            raise ConfigError(f"{key} is not set and has no default") from None
    emit(value, json, lambda found: click.echo(_plain_value(found)))


@config.command(context_settings={"ignore_unknown_options": True})
@click.argument("words", nargs=-1, required=True, metavar="KEY VALUE | KEY=VALUE...")
@click.pass_obj
def set(invocation: Invocation, words: tuple[str, ...]) -> None:  # noqa: A001 - the command's name
    """Set KEY to VALUE, written as TOML; what is no TOML is a text.

    Keys that need each other are set in one go: agent.use=command agent.command.argv='["x"]'.

    The file keeps its comments, its order and its permissions. Values that would make the settings
    invalid are refused, and nothing is written.
    """
    from hermes_core.config.document import dotted
    from hermes_core.config.edit import parse_assignments, set_key

    assignments = parse_assignments(words)
    document = _read(invocation)
    edited = document.text
    for place, value in assignments:
        edited = set_key(edited, place, value)
    new = _parse(edited, document)
    warnings = _new_warnings(invocation, document, new)
    _write(invocation, document, edited)
    for place, _ in assignments:
        click.echo(f"{dotted(place)} is set in {document.file}")
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


@config.command()
@json_option
@click.pass_obj
def check(invocation: Invocation, json: bool) -> int:
    """Check the settings and the secrets they refer to. Exit code 2 when something is wrong."""
    checked = _check(invocation)
    report = {
        "path": _file(invocation),
        "valid": not checked.faults,
        "faults": checked.faults,
        "warnings": checked.warnings,
    }
    emit(report, json, lambda _: _show_check(_file(invocation), checked))
    return EXIT_CONFIG if checked.faults else 0


@config.command()
@click.pass_obj
def edit(invocation: Invocation) -> None:
    """Edit the settings with $VISUAL or $EDITOR. Only a valid file replaces the old one."""
    document = _read(invocation, broken=True)
    text = document.text
    while True:
        text = _edit_text(text)
        if text == document.text:
            click.echo("Nothing was changed.")
            return
        faults = _faults_of(invocation, text, document)
        if not faults:
            break
        if not sys.stdin.isatty():
            raise ConfigError.of(faults)
        for fault in faults:
            click.echo(str(fault), err=True)
        if not click.confirm("Edit again? Otherwise the changes are dropped."):
            raise ConfigError("the changes are dropped", where=document.file)
    _write(invocation, document, text)
    click.echo(f"Written to {document.file}")


# ── reading ──────────────────────────────────────────────────────────────────────────────────────


def _file(invocation: Invocation) -> Path:
    return invocation.home.config_file(invocation.profile)


def _read(invocation: Invocation, *, broken: bool = False) -> Document:
    """The settings file; with `broken`, one that is no TOML counts as text alone."""
    from hermes_core.config import Document, read_document
    from hermes_core.profiles import require_profile

    require_profile(invocation.home, invocation.profile)
    try:
        return read_document(_file(invocation))
    except ConfigError:
        text = _text(_file(invocation)) if broken else None
        if text is None:
            raise
        return Document(_file(invocation), {}, text)


def _parse(text: str, document: Document) -> Document:
    from hermes_core.config import parse_document

    return parse_document(text.encode(), document.path)


def _check(invocation: Invocation) -> Checked:
    from hermes_core.cli.installed import check_document, declarations
    from hermes_core.config import Checked
    from hermes_core.profiles import absent_profiles

    try:
        document = _read(invocation)
        checked = check_document(invocation, document, declarations(document))
        absent = absent_profiles(invocation.home, invocation.profile, document)
        return replace(checked, faults=(*checked.faults, *absent))
    except ConfigError as error:
        if not error.faults:
            raise
        return Checked(None, error.faults, ())


def _effective(invocation: Invocation) -> dict[str, object]:
    from hermes_core.cli.installed import check_document, declarations
    from hermes_core.config import Document, user_config_ignored
    from hermes_core.config.effective import effective

    document = Document(None, {}) if user_config_ignored() else _read(invocation)
    checked = check_document(invocation, document, declarations(document))
    if checked.settings is None:
        raise ConfigError.of(checked.faults)
    return effective(checked.settings, document)


# ── writing ──────────────────────────────────────────────────────────────────────────────────────


def _new_warnings(invocation: Invocation, old: Document, new: Document) -> list[Fault]:
    """The warnings that a change brings. Raises ConfigError for the faults that it brings.

    Faults that were there before are no obstacle: they may be mended one by one.
    """
    from hermes_core.cli.installed import check_document, declarations

    declared = declarations(new)
    before = check_document(invocation, old, declared)
    after = check_document(invocation, new, declared)
    if faults := _added(before.faults, after.faults):
        raise ConfigError.of(faults)
    return _added(before.warnings, after.warnings)


def _added(before: Sequence[Fault], after: Sequence[Fault]) -> list[Fault]:
    """What is in `after` only. Lines do not count: an edit moves them."""
    known = [replace(fault, line=None) for fault in before]
    return [fault for fault in after if replace(fault, line=None) not in known]


def _faults_of(invocation: Invocation, text: str, document: Document) -> Sequence[Fault]:
    from hermes_core.cli.installed import check_document, declarations

    try:
        new = _parse(text, document)
        return check_document(invocation, new, declarations(new)).faults
    except ConfigError as error:
        if not error.faults:
            raise
        return error.faults


def _write(invocation: Invocation, document: Document, text: str) -> None:
    from hermes_core.files import write_atomic

    target = _file(invocation)
    try:
        if not target.exists():
            invocation.home.ensure(invocation.profile)
        elif _text(target) != document.text:
            raise ConfigError(
                "the file was changed by someone else meanwhile, nothing is written",
                where=document.file,
            )
        write_atomic(target, text.encode())
    except OSError as error:
        raise HermesError(
            f"not written: {error.strerror or error}", where=document.file, remedy="nothing changed"
        ) from error


def _text(path: Path) -> str | None:
    """What stands in the file, valid or not; None when it cannot be read as text."""
    from hermes_core.config.document import MAX_SETTINGS_FILE
    from hermes_core.files import UnusableFile, read_bounded

    try:
        return read_bounded(path, limit=MAX_SETTINGS_FILE).decode("utf-8-sig")
    except (FileNotFoundError, UnusableFile, UnicodeDecodeError):
        return None


def _edit_text(text: str) -> str:
    """What the user's editor made of `text`. It works on a copy that nobody else can read."""
    import shlex
    import subprocess
    import tempfile

    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="hermes-") as directory:
        copy = Path(directory, "config.toml")
        copy.write_text(text, encoding="utf-8", newline="")
        try:
            status = subprocess.run([*shlex.split(editor), str(copy)], check=False).returncode
            if status:
                raise ValueError(f"it ended with status {status}")
            return copy.read_bytes().decode("utf-8-sig")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise HermesError(
                f"the editor failed: {reason}", where=editor, remedy="set EDITOR to one that works"
            ) from error


# ── showing ──────────────────────────────────────────────────────────────────────────────────────


def _toml(tables: dict[str, object]) -> str:
    import tomli_w

    return tomli_w.dumps(tables)


def _plain_value(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return _toml(value).rstrip("\n")
    if isinstance(value, list):
        return f"[{', '.join(_plain_item(item) for item in value)}]"
    return _plain_item(value)


def _plain_item(value: object) -> str:
    return _toml({"value": value}).removeprefix("value = ").rstrip("\n")


def _show_check(file: Path, checked: Checked) -> None:
    for fault in checked.faults:
        click.echo(f"error: {fault}")
    for warning in checked.warnings:
        click.echo(f"warning: {warning}")
    if not checked.faults:
        found = f"{file} is valid" if file.exists() else f"{file} is not there: defaults apply"
        click.echo(found)
