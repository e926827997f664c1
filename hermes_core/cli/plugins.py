"""`hermes plugins`: what is installed, what runs, what does not and why."""

from __future__ import annotations

import sys
from typing import Any

import click

from hermes_core.cli.group import Section
from hermes_core.cli.installed import load_installed
from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option, table
from hermes_core.errors import EXIT_FAILURE, ControlError, HermesError
from hermes_core.hookspecs import ALL
from hermes_core.plugins.inspection import inspect_adapter, nearest
from hermes_core.plugins.loading import Loaded

BROKEN = frozenset({"quarantined", "missing"})
"""States of plugins that ought to run and do not."""


@click.group(cls=Section)
def plugins() -> None:
    """Show the installed plugins: which run, which do not and why."""


@plugins.command("list")
@click.option("--strict", is_flag=True, help="Exit with 1 when a plugin is broken or missing.")
@json_option
@click.pass_obj
def list_plugins(invocation: Invocation, strict: bool, json: bool) -> None:
    """List the plugins in the order in which they are asked, then those that do not run."""
    rows = _rows(load_installed(invocation))
    emit(rows, json, _human_list)
    if strict and any(row["state"] in BROKEN for row in rows):
        sys.exit(EXIT_FAILURE)


@plugins.command()
@click.argument("name")
@json_option
@click.pass_obj
def info(invocation: Invocation, name: str, json: bool) -> None:
    """Show all about the plugin NAME, or the plugins of the distribution NAME."""
    rows = _rows(load_installed(invocation))
    found = [row for row in rows if name in {row["plugin"], row["distribution"]}]
    if not found:
        near = nearest(name, [row["plugin"] for row in rows])
        raise HermesError(f"there is no plugin {name!r}{near}", remedy="see `hermes plugins list`")
    emit(found, json, _human_info)


@plugins.command()
@json_option
@click.pass_obj
def stats(invocation: Invocation, json: bool) -> None:
    """Show how the hooks of each plugin fared in the running gateway: calls, failures, time."""
    from hermes_core.supervision.control import request
    from hermes_core.supervision.lock import holder

    home = invocation.home
    if holder(home.lock_path) is None:
        raise ControlError(
            "no gateway is running, and only a running one counts calls",
            remedy="start it with `hermes run`",
        )
    emit(request(home.state_root, "plugins.stats"), json, _human_stats)


def _rows(loaded: Loaded) -> list[dict[str, Any]]:
    """Every plugin and everything that ought to be one, as plain values."""
    return [
        *_running(loaded),
        *(
            _row(
                "quarantined",
                plugin.name,
                plugin.distribution,
                plugin.version,
                tracker=plugin.tracker,
                reason=plugin.reason,
                traceback=plugin.details,
            )
            for plugin in loaded.quarantined
        ),
        *_missing(loaded),
        *(
            _row("left out", out.name, out.distribution, out.version, reason=out.reason)
            for out in loaded.left_out
        ),
        *(
            _row("foreign", "", other.distribution, other.version, reason="offers no plugin to us")
            for other in loaded.foreign
        ),
    ]


def _running(loaded: Loaded) -> list[dict[str, Any]]:
    from hermes_core.cli import plugged

    hooks = _hooks(loaded)
    return [
        _row(
            "active",
            plugin.name,
            plugin.distribution,
            plugin.version,
            order=plugin.order + 1,
            platforms=list(plugin.platforms),
            agents=list(plugin.agents),
            commands=plugged.names_of(plugin.distribution),
            hooks=hooks[plugin.name],
            tracker=plugin.tracker,
            import_seconds=round(plugin.seconds, 6),
        )
        for plugin in loaded.plugins
    ]


def _missing(loaded: Loaded) -> list[dict[str, Any]]:
    """The required plugins that are not even installed."""
    known = {name for plugin in loaded.quarantined for name in (plugin.name, plugin.distribution)}
    known |= {name for plugin in loaded.left_out for name in (plugin.name, plugin.distribution)}
    return [
        _row("missing", name, "", "", reason="required, and not installed")
        for name in loaded.missing_required
        if name not in known
    ]


def _row(state: str, plugin: str, distribution: str, version: str, **facts: Any) -> dict[str, Any]:
    return {
        "plugin": plugin,
        "state": state,
        "distribution": distribution,
        "version": version,
        **facts,
    }


def _hooks(loaded: Loaded) -> dict[str, list[str]]:
    """The hooks of each plugin and of its adapters, in the order of the reference."""
    names = [plugin.name for plugin in loaded.plugins]
    found: dict[str, set[str]] = {name: set() for name in names}
    for hook in loaded.registry.hooks:
        for name, _ in loaded.registry.implementations(hook, names):
            found[name].add(hook)
    for owned in loaded.platforms.values():
        found[owned.plugin.name] |= inspect_adapter(owned.value.adapter).hooks.keys()
    return {name: [hook for hook in ALL if hook in hooks] for name, hooks in found.items()}


def _human_list(rows: list[dict[str, Any]]) -> None:
    table(
        ("PLUGIN", "STATE", "VERSION", "DISTRIBUTION", "WHAT"),
        [
            (row["plugin"], row["state"], row["version"], row["distribution"], _what(row))
            for row in rows
        ],
    )


def _what(row: dict[str, Any]) -> str:
    if "reason" in row:
        return str(row["reason"])
    kinds = {
        "platform": row["platforms"],
        "agent": row["agents"],
        "command": [f"`hermes {name}`" for name in row["commands"]],
    }
    brought = [f"{kind} {', '.join(names)}" for kind, names in kinds.items() if names]
    return "; ".join(brought) or ", ".join(row["hooks"])


def _human_info(rows: list[dict[str, Any]]) -> None:
    for number, row in enumerate(rows):
        if number:
            click.echo()
        for key, value in row.items():
            if value not in ("", []):
                text = ", ".join(value) if isinstance(value, list) else str(value)
                click.echo(f"{key.replace('_', ' ')}: {text.rstrip()}")


def _human_stats(answer: dict[str, Any]) -> None:
    headers = ("plugin", "hook", "calls", "errors", "timeouts", "skipped", "dropped", "seconds")
    table(
        [header.upper() for header in (*headers, "state")],
        [
            (
                *(row[header] for header in headers[:-1]),
                f"{row['seconds']:.3f}",
                "suspended" if row["suspended"] else "ok",
            )
            for row in answer["hooks"]
        ],
    )
    for call in answer["abandoned"]:
        click.echo(f"{call['plugin']}.{call['hook']} lingers since {call['seconds']:.0f} s")
