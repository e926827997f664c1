"""`hermes webhooks`: the targets, a test of one, what was delivered, and a check of signatures."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option, table
from hermes_core.errors import EXIT_FAILURE, HermesError

if TYPE_CHECKING:
    from hermes_core import ProfileScope
    from hermes_outbound_webhooks.retry import Outcome
    from hermes_outbound_webhooks.targets import Target

SERVICE = "webhooks"
MAX_BODY = 16 << 20


@click.group()
def webhooks() -> None:
    """Show, test and verify what is sent to other systems."""


@webhooks.command("list")
@json_option
@click.pass_obj
def list_targets(invocation: Invocation, json: bool) -> None:
    """List the targets and how they fare.

    SIGNING is signed, UNSIGNED or REFUSED; GATEWAY is what a running gateway says.
    """
    found = _targets(invocation)
    running = _ask(invocation, {"do": "status"}, needed=False).get("targets", {})
    rows = [
        {
            "name": target.name,
            "signing": target.signing,
            "place": str(target.place),
            "events": list(target.events.values()),
            "matcher": target.settings.matcher,
            "timeout": float(target.settings.timeout),
            "durable": target.settings.durable,
            "headers": sorted(target.headers),
            "refused": target.refused,
            "notes": list(target.notes),
            "gateway": running.get(target.name),
        }
        for target in found
    ]
    emit(rows, json, _human_targets)


@webhooks.command()
@click.argument("name")
@json_option
@click.pass_obj
def test(invocation: Invocation, name: str, json: bool) -> None:
    """Send the event `test` to NAME now.

    Says what came of it.
    """
    import asyncio

    from hermes_core import profile_scope

    scope = profile_scope(invocation.profile)
    target = _named(_targets_in(scope), name)
    if target.refused:
        raise HermesError(f"the target is refused: {target.refused}", where=name)
    delivery_id, outcome = asyncio.run(_test(scope, target))
    row = {
        "target": name,
        "id": delivery_id,
        "delivered": outcome.state == "delivered",
        "status": outcome.status,
        "reason": outcome.reason,
        "signing": target.signing,
    }
    emit(row, json, _human_test)
    if outcome.state != "delivered":
        sys.exit(EXIT_FAILURE)


@webhooks.command()
@click.option("--failed", is_flag=True, help="Only those that failed.")
@json_option
@click.pass_obj
def deliveries(invocation: Invocation, failed: bool, json: bool) -> None:
    """List the latest deliveries. Without a running gateway: those of durable targets."""
    answer = _ask(invocation, {"do": "deliveries", "failed": failed}, needed=False)
    rows = answer.get("deliveries")
    emit(_stored(invocation, failed=failed) if rows is None else rows, json, _human_deliveries)


@webhooks.command()
@click.argument("delivery", metavar="ID")
@click.pass_obj
def replay(invocation: Invocation, delivery: str) -> None:
    """Send the ended delivery ID once more, under the same id."""
    answer = _ask(invocation, {"do": "replay", "id": delivery}, needed=True)
    click.echo(f"{delivery} waits for {answer.get('target')} again")


@webhooks.command()
@click.option(
    "--secret-env",
    metavar="NAME",
    help="Take the secret NAME of the profile, or else the variable NAME.",
)
@click.option("--target", metavar="NAME", help="Take the secrets of the target NAME.")
@click.option("-H", "--header", "lines", metavar="LINE", multiple=True, help='"Name: value".')
@click.option("--any-time", is_flag=True, help="Do not mind how old the delivery is.")
@click.argument("body", type=click.File("rb"), default="-")
@click.pass_obj
def verify(
    invocation: Invocation,
    secret_env: str | None,
    target: str | None,
    lines: tuple[str, ...],
    body: Any,
    *,
    any_time: bool,
) -> None:
    """Check the signature of a request.

    BODY is a file, or the standard input; the headers are given by -H. Exit code 0: the signature
    is right. 1: it is not.
    """
    from hermes_outbound_webhooks.signing import TOLERANCE
    from hermes_outbound_webhooks.signing import verify as is_right

    if (secret_env is None) == (target is None):
        raise click.UsageError("give either --secret-env or --target")
    secrets = (
        _secrets_of(invocation, target or "")
        if secret_env is None
        else (_secret_named(invocation, secret_env),)
    )
    tolerance = float("inf") if any_time else TOLERANCE
    right = is_right(body.read(MAX_BODY), _headers(lines), secrets, tolerance=tolerance)
    click.echo("the signature is right" if right else "the signature is NOT right")
    if not right:
        sys.exit(EXIT_FAILURE)


# ── what the commands work with ──────────────────────────────────────────────────────────────────


def _targets(invocation: Invocation) -> list[Target]:
    from hermes_core import profile_scope

    return _targets_in(profile_scope(invocation.profile))


def _secret_named(invocation: Invocation, name: str) -> str:
    from hermes_core import profile_scope

    found = profile_scope(invocation.profile).secrets.get(name) or os.environ.get(name, "")
    if not found.strip():
        raise HermesError(f"{name} is set neither in secrets.env nor in the environment")
    return found.strip()


def _secrets_of(invocation: Invocation, name: str) -> tuple[str, ...]:
    target = _named(_targets(invocation), name)
    if not target.secrets:
        raise HermesError(f"the target has no secret: {target.refused or 'UNSIGNED'}", where=name)
    return target.secrets


def _targets_in(scope: ProfileScope) -> list[Target]:
    from hermes_outbound_webhooks.targets import targets_of

    return targets_of(scope)


def _named(targets: list[Target], name: str) -> Target:
    for target in targets:
        if target.name == name:
            return target
    raise HermesError(f"there is no target {name!r}", remedy="see `hermes webhooks list`")


def _ask(invocation: Invocation, request: dict[str, object], *, needed: bool) -> dict[str, Any]:
    """The answer of the running gateway; nothing when none answers, unless it is `needed`."""
    from hermes_core.errors import ControlError
    from hermes_core.supervision.control import request as ask
    from hermes_core.supervision.lock import holder

    home = invocation.home
    if holder(home.lock_path) is None:
        if needed:
            raise ControlError("no gateway is running", remedy="start it with `hermes run`")
        return {}
    try:
        return ask(
            home.state_root, "service", profile=invocation.profile, name=SERVICE, request=request
        )
    except ControlError as error:
        if needed:
            raise
        click.echo(f"the running gateway does not tell: {error}", err=True)
        return {}


def _stored(invocation: Invocation, *, failed: bool) -> list[dict[str, Any]]:
    """The durable deliveries, from the database."""
    from hermes_core.store import open_read_only
    from hermes_core.store.database import connection_of
    from hermes_outbound_webhooks.durable import listing

    path = invocation.home.database(invocation.profile)
    if not path.exists():
        return []
    database = open_read_only(path)
    try:
        if not database.table_exists("webhook_delivery"):
            return []
        return listing(connection_of(database), failed=failed, limit=200)
    finally:
        database.close()


async def _test(scope: ProfileScope, target: Target) -> tuple[str, Outcome]:
    import time

    from hermes_core.redaction import Redactor
    from hermes_core.secrets import ProfileSecrets
    from hermes_outbound_webhooks.client import Client
    from hermes_outbound_webhooks.delivery import Delivery, MemoryBacklog, Worker
    from hermes_outbound_webhooks.names import TEST

    known = scope.secrets.values() if isinstance(scope.secrets, ProfileSecrets) else ()
    client = Client(target)
    worker = Worker(
        target,
        MemoryBacklog(target, lambda _: None),
        profile=scope.name,
        post=client.post,
        mask=Redactor(known),
        wall=time.time,
    )
    delivery = Delivery(TEST, TEST, time.time(), {"note": "sent by hermes webhooks test"})
    try:
        return delivery.id, await worker.attempt(delivery)
    finally:
        await client.close()


def _headers(lines: tuple[str, ...]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise click.BadParameter('expected "Name: value"', param_hint="--header")
        headers[name.strip()] = value.strip()
    return headers


# ── for people ───────────────────────────────────────────────────────────────────────────────────


def _human_targets(rows: list[dict[str, Any]]) -> None:
    if not rows:
        click.echo("There are no targets: see [[hooks.outbound]] in the README of the plugin.")
        return
    table(
        ["NAME", "SIGNING", "TARGET", "EVENTS", "MATCHER", "TIMEOUT", "GATEWAY"],
        [
            (
                row["name"],
                row["signing"],
                row["place"],
                ",".join(row["events"]),
                row["matcher"] or "-",
                f"{row['timeout']:g} s",
                _fares(row["gateway"]),
            )
            for row in rows
        ],
    )
    for row in rows:
        for remark in (row["refused"], *row["notes"]):
            if remark:
                click.echo(f"{row['name']}: {remark}")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _fares(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    counts = ", ".join(
        f"{found[name]} {name}"
        for name in ("waiting", "delivered", "failed", "dropped")
        if found[name]
    )
    return f"{found['state']}: {counts}" if counts else str(found["state"])


def _human_test(row: dict[str, Any]) -> None:
    result = f"delivered, status {row['status']}" if row["delivered"] else row["reason"]
    click.echo(f"{row['target']}: {row['signing']}, {result} (delivery {row['id']})")


def _human_deliveries(rows: list[dict[str, Any]]) -> None:
    if not rows:
        click.echo("There are none. Those of a target that is not durable go with the gateway.")
        return
    table(
        ["ID", "TARGET", "EVENT", "STATE", "ATTEMPTS", "TIME", "REASON"],
        [
            (
                row["id"],
                row["target"],
                row["event"],
                row["state"],
                row["attempts"],
                _time(row["created_at"]),
                row["reason"],
            )
            for row in rows
        ],
    )
