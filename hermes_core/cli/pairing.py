"""`hermes pairing`: strangers who were given a code, and who was let in by one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from hermes_core.cli.group import Section
from hermes_core.cli.invocation import Invocation
from hermes_core.cli.output import emit, json_option, table
from hermes_core.errors import ControlError

LIMIT = 15.0
"""Seconds that a gateway gets to commit a change."""


@click.group(cls=Section)
def pairing() -> None:
    """Let strangers in by the codes they were given.

    An account gives out codes when its settings say `pairing = true`. ACCOUNT is `telegram`, or
    `telegram.ops` for an account with a name.
    """


@pairing.command("list")
@json_option
@click.pass_obj
def list_pairings(invocation: Invocation, json: bool) -> None:
    """List who was let in, and who waits with a code."""
    emit(_ask(invocation, "pairing.list"), json, _human)


@pairing.command()
@click.argument("account")
@click.argument("code")
@json_option
@click.pass_obj
def approve(invocation: Invocation, account: str, code: str, json: bool) -> None:
    """Let the sender in who shows you CODE."""
    found = _ask(invocation, "pairing.approve", account=account, code=code)
    emit(found, json, lambda one: click.echo(f"{_who(one)} may speak to {one['account']} now."))


@pairing.command()
@click.argument("account")
@click.argument("user")
@json_option
@click.pass_obj
def revoke(invocation: Invocation, account: str, user: str, json: bool) -> None:
    """Do not let USER in any more. Codes that were given to USER are void too."""
    found = _ask(invocation, "pairing.revoke", account=account, user=user)
    if not found["revoked"]:
        raise ControlError(f"{user} is not paired with {account}", remedy="hermes pairing list")
    emit(found, json, lambda _: click.echo(f"{user} may not speak to {account} any more."))


def _ask(invocation: Invocation, verb: str, **wanted: str) -> dict[str, Any]:
    """Ask the gateway, or answer alone under the home's lock when none runs."""
    from hermes_core.supervision.control import request
    from hermes_core.supervision.lock import holder

    home, profile = invocation.home, invocation.profile
    if holder(home.lock_path) is not None:
        asked: dict[str, Any] = {"profile": profile, **wanted}
        return request(home.state_root, verb, timeout=LIMIT, **asked)
    return _alone(invocation, verb, wanted)


def _alone(invocation: Invocation, verb: str, wanted: dict[str, str]) -> dict[str, Any]:
    import asyncio
    import time

    from hermes_core.pairing import PairingBook, listing
    from hermes_core.profiles import require_profile
    from hermes_core.store import Store
    from hermes_core.supervision.lock import HomeLock

    home, profile = invocation.home, require_profile(invocation.home, invocation.profile)
    if not home.database(profile).exists():
        if verb == "pairing.list":
            return {"approved": [], "waiting": []}
        raise ControlError(f"the profile {profile} has no state yet: it was never served")

    async def act() -> dict[str, Any]:
        store = Store(home.database(profile))
        await store.open()
        try:
            book = PairingBook(store, time.time)
            if verb == "pairing.list":
                now = time.time()
                return await store.write(lambda tx: listing(tx, now))
            if verb == "pairing.revoke":
                return {"revoked": await book.revoke(wanted["account"], wanted["user"])}
            found = await book.approve(wanted["account"], wanted["code"])
            return {"account": found.account, "user": found.sender_id, "name": found.sender_name}
        finally:
            await store.close()

    with HomeLock(home.lock_path, runs=f"hermes {verb.replace('.', ' ')}"):
        return asyncio.run(act())


def _human(found: dict[str, Any]) -> None:
    rows = [
        (one["account"], one["user"], one["name"], f"since {_time(one['approved_at'])}")
        for one in found["approved"]
    ]
    rows += [
        (one["account"], one["user"], one["name"], f"waits until {_time(one['expires_at'])}")
        for one in found["waiting"]
    ]
    if not rows:
        click.echo("Nobody is paired, and nobody waits with a code.")
        return
    table(("ACCOUNT", "USER", "NAME", "PAIRED"), rows)


def _who(one: dict[str, Any]) -> str:
    return f"{one['name']} ({one['user']})" if one["name"] else str(one["user"])


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M")
