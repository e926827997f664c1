"""`hermes hooks`: every point at which a plugin can join in, and who does."""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING, Any

import click

from hermes_core.cli.group import Section
from hermes_core.cli.installed import load_installed
from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option
from hermes_core.errors import HermesError
from hermes_core.hookspecs import ALL
from hermes_core.hookspecs import describe as describe_hook
from hermes_core.plugins.inspection import inspect_adapter, nearest, parameters

if TYPE_CHECKING:
    from hermes_core.hookkinds import Spec
    from hermes_core.plugins.loading import Loaded
    from hermes_core.plugins.model import Plugin


@click.group(cls=Section)
def hooks() -> None:
    """Show the hooks that plugins can implement, and which plugins do."""


@hooks.command("list")
@click.argument("hook", metavar="[HOOK]", default="")
@json_option
@click.pass_obj
def list_hooks(invocation: Invocation, hook: str, json: bool) -> None:
    """List every hook with its implementers in the order in which they are called.

    With the name of a HOOK, show the whole entry of that one.
    """
    specs = list(ALL.values()) if not hook else [_spec(hook)]
    loaded = load_installed(invocation)
    adapters = _adapters(loaded)
    rows = [_describe(spec, loaded, adapters) for spec in specs]
    described = _described(invocation, loaded)
    for row in rows:
        row["uses"] = [use for use in described if row["hook"] in use["hooks"]]
    emit(rows, json, _human_one if hook else _human_all)


def _spec(name: str) -> Spec[..., object]:
    if name not in ALL:
        raise HermesError(
            f"there is no hook {name!r}{nearest(name, ALL)}", remedy="see `hermes hooks list`"
        )
    return ALL[name]


def _adapters(loaded: Loaded) -> dict[str, list[dict[str, Any]]]:
    """Who implements the adapter hooks, by the name of the hook."""
    found: dict[str, list[dict[str, Any]]] = {}
    for platform, owned in loaded.platforms.items():
        adapter = owned.value.adapter
        where = f"{adapter.__module__}.{adapter.__qualname__}"
        who = {**_identity(owned.plugin), "platform": platform, "adapter": where}
        for hook in inspect_adapter(adapter).hooks:
            found.setdefault(hook, []).append(who)
    return found


def _describe(
    spec: Spec[..., object], loaded: Loaded, adapters: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    found = adapters.get(spec.name, []) if spec.kind == "adapter" else _modules(spec, loaded)
    return {
        "hook": spec.name,
        "kind": spec.kind,
        "meaning": _meaning(spec),
        "since": spec.since,
        "arguments": list(parameters(spec.function)),
        "limit": spec.limit,
        "closed": spec.closed,
        "implementations": [{"order": order, **who} for order, who in enumerate(found, start=1)],
    }


def _modules(spec: Spec[..., object], loaded: Loaded) -> list[dict[str, Any]]:
    """Which plugins implement a hook that is none of adapters, in order."""
    plugins = {plugin.name: plugin for plugin in loaded.plugins}
    found = loaded.registry.implementations(spec.name, plugins)
    return [_identity(plugins[name]) for name, _ in found]


def _described(invocation: Invocation, loaded: Loaded) -> list[dict[str, Any]]:
    """What plugins say about their use of hooks in the profile in question."""
    plugins = {plugin.name: plugin for plugin in loaded.plugins}
    if not loaded.registry.implementations("describe", plugins):
        return []
    from hermes_core.cli.streams import complain
    from hermes_core.startup import prepare

    try:
        with contextlib.redirect_stdout(sys.stderr):
            plan = prepare(invocation.home, only=invocation.profile)
    except HermesError as error:
        complain(f"{error}\nWhat plugins do in this profile is not shown.")
        return []
    scopes = [scope for scope in plan.scopes if scope.name == invocation.profile]
    return [
        {"plugin": owned.plugin.name, "name": one.name, "hooks": list(one.hooks), "text": one.text}
        for scope in scopes
        for owned in plan.hooks.collect(describe_hook, scope=scope)
        for one in owned.value
    ]


def _meaning(spec: Spec[..., object]) -> str:
    """The first sentence of the manual."""
    paragraph = " ".join(spec.doc.strip().partition("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph, maxsplit=1)[0]


def _identity(plugin: Plugin) -> dict[str, Any]:
    return {
        "plugin": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
    }


def _human_all(rows: list[dict[str, Any]]) -> None:
    kind = ""
    for row in rows:
        if row["kind"] != kind:
            if kind:
                click.echo()
            kind = row["kind"]
            click.secho(f"{kind} hooks", bold=True)
        click.echo(f"  {_heading(row)}  since {row['since']}")
        click.echo(f"      {row['meaning']}")
        _implementers(row, indent="      ")


def _human_one(rows: list[dict[str, Any]]) -> None:
    (row,) = rows
    click.secho(_heading(row), bold=True)
    limit = f", at most {row['limit']:g} s a call" if row["limit"] else ""
    closed = ", a failure refuses" if row["closed"] and row["kind"] == "decide" else ""
    click.echo(f"{row['kind']} hook, since hook API {row['since']}{limit}{closed}\n")
    click.echo(_manual(row["hook"]) + "\n")
    _implementers(row, indent="")
    if not row["implementations"]:
        click.echo("No plugin implements it.")


def _heading(row: dict[str, Any]) -> str:
    return f"{row['hook']}({', '.join(row['arguments'])})"


def _manual(hook: str) -> str:
    import inspect

    return inspect.cleandoc(ALL[hook].doc)


def _implementers(row: dict[str, Any], *, indent: str) -> None:
    for who in row["implementations"]:
        adapter = f": {who['adapter']}" if "adapter" in who else ""
        origin = f"{who['distribution']} {who['version']}".strip()
        click.echo(f"{indent}{who['order']}. {who['plugin']} ({origin}){adapter}")
        for use in row["uses"]:
            if use["plugin"] == who["plugin"]:
                click.echo(f"{indent}   {use['name']}: {use['text']}")
