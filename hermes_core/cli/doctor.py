"""`hermes doctor`: looks at everything that has to be right, and says what to do about the rest."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import click

from hermes_core.checks import Check, Finding, Verdict
from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option
from hermes_core.cli.streams import one_line
from hermes_core.errors import EXIT_FAILURE, ConfigError, HermesError

if TYPE_CHECKING:
    from hermes_core.config import Checked
    from hermes_core.plugins.loading import Loaded
    from hermes_core.profiles import ProfileScope


@dataclass(frozen=True)
class Result:
    """A check that was run. `by` is the plugin that brought it, "" for the core."""

    check: str
    by: str
    verdict: Verdict
    text: str
    remedy: str


@click.command()
@json_option
@click.pass_obj
def doctor(invocation: Invocation, json: bool) -> int:
    """Check the installation, the settings, the state and the plugins, and say how to mend them.

    Nothing is changed. Exit code 1 when a check fails; a warning is no failure.
    """
    results = list(_results(invocation))
    emit([asdict(result) for result in results], json, lambda _: _human(results))
    return EXIT_FAILURE if any(result.verdict == "failed" for result in results) else 0


def _results(invocation: Invocation) -> Iterator[Result]:
    from hermes_core.cli.checkup import core_checks
    from hermes_core.cli.installed import load_installed
    from hermes_core.profiles import require_profile

    require_profile(invocation.home, invocation.profile)
    loaded = load_installed(invocation, quiet=True)  # a check tells it
    checked = _checked(invocation, loaded)
    for check in core_checks(invocation, loaded, checked):
        yield _run(check, "")
    scope = _scope(invocation, checked)
    if scope is not None:
        yield from _plugin_results(loaded, scope)


def _checked(invocation: Invocation, loaded: Loaded) -> Checked:
    """The settings, checked. A fault that keeps them from being read is a fault as any other."""
    from hermes_core.cli.installed import check_document, declared_by
    from hermes_core.config import Checked, read_document, user_config_ignored
    from hermes_core.profiles import absent_profiles

    try:
        file = invocation.home.config_file(invocation.profile)
        document = None if user_config_ignored() else read_document(file)
        checked = check_document(invocation, document, declared_by(loaded))
        if document is None:
            return checked
        absent = absent_profiles(invocation.home, invocation.profile, document)
        return replace(checked, faults=(*checked.faults, *absent))
    except ConfigError as error:
        if not error.faults:
            raise
        return Checked(None, error.faults, ())


def _scope(invocation: Invocation, checked: Checked) -> ProfileScope | None:
    """What plugins' checks get: the profile as it would be served; None when it cannot be."""
    from hermes_core.cli.installed import secrets_of
    from hermes_core.profiles import ProfileScope, read_uuid

    if checked.settings is None:
        return None
    home, profile = invocation.home, invocation.profile
    secrets = secrets_of(invocation)
    return ProfileScope(
        name=profile,
        uuid=read_uuid(home.state_dir(profile)) or "",
        config_dir=home.config_dir(profile),
        state_dir=home.state_dir(profile),
        settings=checked.settings,
        secrets=secrets,
        hidden=secrets.names(),
    )


def _plugin_results(loaded: Loaded, scope: ProfileScope) -> Iterator[Result]:
    names = [plugin.name for plugin in loaded.plugins]
    for name, hook in loaded.registry.implementations("doctor_checks", names):
        arguments = {"scope": scope} if "scope" in hook.arguments else {}
        try:
            with contextlib.redirect_stdout(sys.stderr):
                checks = hook.function(**arguments)
            if not isinstance(checks, list) or not all(isinstance(one, Check) for one in checks):
                raise TypeError("doctor_checks did not return a list of Check")
        except Exception as error:  # code of a plugin: the other checks are run nevertheless
            yield Result(name, name, "failed", _broken(error), "update or uninstall the plugin")
            continue
        for check in checks:
            yield _run(check, name)


def _run(check: Check, by: str) -> Result:
    try:
        with contextlib.redirect_stdout(sys.stderr):
            found = check.run()
    except HermesError as error:
        what = f"{error.where}: {error.what}" if error.where else error.what
        found = Finding("failed", what, error.remedy)
    except Exception as error:  # one check that breaks is no reason to skip the others
        found = Finding("failed", _broken(error))
    return Result(check.name, by, found.verdict, found.text, found.remedy)


def _broken(error: Exception) -> str:
    return f"the check itself failed: {type(error).__name__}: {error}"


def _human(results: list[Result]) -> None:
    colors = {"ok": "green", "warning": "yellow", "failed": "red"}
    names = [f"{result.check} ({result.by})" if result.by else result.check for result in results]
    width = max(map(len, names))
    for name, result in zip(names, results, strict=True):
        verdict = click.style(f"{result.verdict:<7}", fg=colors[result.verdict])
        click.echo(f"{verdict}  {name:<{width}}  {one_line(result.text)}")
        if result.remedy:
            click.echo(f"{'':<7}  {'':<{width}}  → {one_line(result.remedy)}")
    counts = Counter(result.verdict for result in results)
    failed, warnings = counts["failed"] or "none", _warnings(counts["warning"])
    click.echo(f"{len(results)} checks: {failed} failed, {warnings}.")


def _warnings(count: int) -> str:
    return "1 warning" if count == 1 else f"{count or 'no'} warnings"
