"""`hermes auth`: why somebody may speak or may not, and who was denied."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import click

from hermes_core.cli.group import Section
from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option, table
from hermes_core.errors import ControlError

EXIT_DENIED = 1


@click.group(cls=Section)
def auth() -> None:
    """Explain who may speak, and list who was denied."""


@auth.command()
@click.option("--profile", metavar="NAME", help="As `hermes --profile NAME`.")
@click.option("--platform", required=True, metavar="NAME", help="The platform, such as telegram.")
@click.option("--account", default="default", metavar="NAME", help="One of several accounts.")
@click.option("--user", required=True, metavar="ID", help="The sender's id.")
@click.option("--chat", metavar="ID", help="The group or channel. Default: a direct chat.")
@click.option("--bot", is_flag=True, help="The sender is a bot.")
@click.option("--no-mention", is_flag=True, help="The message does not mention the account.")
@json_option
@click.pass_obj
def explain(
    invocation: Invocation,
    *,
    profile: str | None,
    platform: str,
    account: str,
    user: str,
    chat: str | None,
    bot: bool,
    no_mention: bool,
    json: bool,
) -> None:
    """Show each check that a message of a sender would go through, and what it says.

    Asks the gateway when one runs; otherwise reads the settings and asks the plugins itself. Exit
    code 0: admitted. 1: not.
    """
    if profile is not None:
        invocation = Invocation(profile)
    wanted: dict[str, Any] = {
        "account": platform if account == "default" else f"{platform}.{account}",
        "user": user,
        "chat": chat,
        "kind": "dm" if chat is None else "group",
        "bot": bot,
        "mentions": not no_mention,
    }
    found = {"profile": invocation.profile, **_explain(invocation, wanted)}
    emit(found, json, _human)
    sys.exit(0 if found["admitted"] else EXIT_DENIED)


@auth.command()
@json_option
@click.pass_obj
def denials(invocation: Invocation, json: bool) -> None:
    """List who was denied: the latest first. What they said is not kept."""
    from hermes_core.cli.state import exists, reading
    from hermes_core.store.models import Denied

    rows: list[dict[str, Any]] = []
    if exists(invocation):
        with reading(invocation) as database:
            found = Denied.select().order_by(Denied.last_at.desc()).limit(1000)
            rows = list(found.dicts().execute(database))
    for row in rows:
        del row["id"]

    def human(rows: list[dict[str, Any]]) -> None:
        if not rows:
            click.echo("Nobody was denied.")
            return
        table(
            ("LAST", "ACCOUNT", "CHAT", "SENDER", "TIMES", "REASON"),
            [
                (
                    _time(row["last_at"]),
                    row["account"],
                    row["chat_id"],
                    row["sender_id"],
                    row["count"],
                    row["reason"],
                )
                for row in rows
            ],
        )

    emit(rows, json, human)


def _explain(invocation: Invocation, wanted: dict[str, Any]) -> dict[str, Any]:
    from hermes_core.supervision.control import request
    from hermes_core.supervision.lock import holder

    home, profile = invocation.home, invocation.profile
    if holder(home.lock_path) is not None:
        found = request(home.state_root, "auth.explain", profile=profile, **wanted)
        return {**found, "asked": "the gateway"}
    return {**_alone(invocation, wanted), "asked": "the settings"}


def _alone(invocation: Invocation, wanted: dict[str, Any]) -> dict[str, Any]:
    """As a gateway that starts now would decide. Names on lists are not resolved."""
    import asyncio

    from hermes_core.administration import explain as examine
    from hermes_core.administration import imagined
    from hermes_core.authorization import Gate
    from hermes_core.plugins import normalizer
    from hermes_core.policy import AccessList
    from hermes_core.profiles import require_profile
    from hermes_core.startup import prepare

    profile = require_profile(invocation.home, invocation.profile)
    plan = prepare(invocation.home, only=profile)
    scope = plan.scopes[-1]
    platform, _, name = wanted["account"].partition(".")
    settings = scope.settings.account(platform, name or "default")
    if scope.name != profile or settings is None:
        reason = plan.unserved.get(profile, f"it has no account {wanted['account']}")
        raise ControlError(f"the profile {profile} cannot be asked: {reason}")
    owned = plan.hooks.platforms[platform]
    access = AccessList.build(settings, owned.plugin.distribution, normalizer(owned.value))
    gate = Gate(plan.hooks, scope, _Paired(invocation))
    return asyncio.run(examine(gate, access, imagined(wanted, wanted["account"])))


class _Paired:
    """Who was approved, as the database says now."""

    def __init__(self, invocation: Invocation) -> None:
        from hermes_core.cli.state import exists, reading
        from hermes_core.store.models import Pairing

        self._pairs: set[tuple[str, str]] = set()
        if exists(invocation):
            with reading(invocation) as database:
                found = Pairing.select(Pairing.account, Pairing.sender_id)
                self._pairs = set(found.tuples().execute(database))

    def has(self, account: str, sender_id: str) -> bool:
        return (account, sender_id) in self._pairs


def _human(found: dict[str, Any]) -> None:
    click.echo(f"profile {found['profile']}, account {found['account']} (asked {found['asked']})")
    for number, check in enumerate(found["checks"], start=1):
        detail = f": {check['detail']}" if check["detail"] else ""
        click.echo(f"{number:3}. {check['name']:<16} {check['outcome']}{detail}")
    for name in found["unresolved"]:
        click.echo(f"note: {name} on a list leads to no id at present")
    verdict = "admitted" if found["admitted"] else "denied"
    role = ", as an admin" if found["admin"] else ""
    click.echo(f"{found['sender']} is {verdict} ({found['reason']}){role}")


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
