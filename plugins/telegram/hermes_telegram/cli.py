"""`hermes telegram`: look at a bot from outside the gateway."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal

import click
import msgspec

from hermes_core.cli.output import emit, json_option
from hermes_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_core.cli.invocation import Invocation
    from hermes_core.config import AccountSettings
    from hermes_telegram.client import Client
    from hermes_telegram.settings import TelegramSettings

Verdict = Literal["ok", "note", "fault"]
_EXIT_FAULT = 1


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at. A fault keeps the bot from working, a note may surprise."""

    account: str
    verdict: Verdict
    about: str
    text: str


@click.group()
def telegram() -> None:
    """Look after Telegram bots."""


@telegram.command()
@click.option("--account", metavar="NAME", help="Only this account, such as default.")
@json_option
@click.pass_obj
def check(invocation: Invocation, account: str | None, json: bool) -> None:
    """Ask Telegram about each configured bot.

    Looks at its token, privacy mode, webhook, groups.

    Changes nothing, and can be used while the gateway runs. The exit code is 1 when there is a
    fault.
    """
    import asyncio

    accounts = [
        found for found in _accounts(invocation) if account is None or found.account == account
    ]
    if not accounts:
        raise ConfigError(
            "no such account of Telegram is configured",
            where=str(invocation.home.config_file(invocation.profile)),
            remedy='add [platforms.telegram] with token = "env:TELEGRAM_BOT_TOKEN"',
        )
    findings = asyncio.run(_examine_all(accounts))
    emit(findings, json, _show)
    if any(finding.verdict == "fault" for finding in findings):
        sys.exit(_EXIT_FAULT)


def _accounts(invocation: Invocation) -> list[AccountSettings]:
    """The Telegram accounts of the profile. Raises ConfigError."""
    from hermes_core import profile_scope

    settings = profile_scope(invocation.profile).settings
    return [found for found in settings.accounts if found.platform == "telegram"]


async def _examine_all(accounts: Sequence[AccountSettings]) -> list[Finding]:
    import asyncio

    found = await asyncio.gather(*(_examine(account) for account in accounts))
    return [finding for findings in found for finding in findings]


async def _examine(account: AccountSettings) -> list[Finding]:
    from telegram.error import InvalidToken, TelegramError

    from hermes_core.errors import HermesError
    from hermes_telegram.client import Client
    from hermes_telegram.poller import explain
    from hermes_telegram.settings import TelegramSettings

    assert isinstance(account.settings, TelegramSettings)
    findings = _who_may_speak(account)
    try:
        client = Client(account.settings)
    except HermesError as error:
        return [*findings, Finding(account.name, "fault", "settings", str(error))]
    try:
        findings += await _identity(client, account.name)
        findings += await _webhook(client, account.name, account.settings)
    except (TelegramError, AttributeError, KeyError, TypeError) as error:
        about = "token" if isinstance(error, InvalidToken) else "server"
        findings.append(Finding(account.name, "fault", about, str(explain(error))))
    finally:
        await client.close()
    return findings


def _who_may_speak(account: AccountSettings) -> list[Finding]:
    if account.allow_all:
        return [Finding(account.name, "note", "access", "everybody may speak (allow_all)")]
    if account.allowed_users or account.allowed_groups:
        count = len(account.allowed_users) + len(account.allowed_groups)
        return [Finding(account.name, "ok", "access", f"{count} on the lists")]
    return [
        Finding(account.name, "note", "access", "nobody is on a list: set allowed_users = [...]")
    ]


async def _identity(client: Client, name: str) -> list[Finding]:
    me = await client.bot.get_me()
    found = [Finding(name, "ok", "token", f"valid: @{me.username or me.first_name}, id {me.id}")]
    if not me.can_join_groups:
        found.append(Finding(name, "note", "groups", "the bot cannot be added to groups"))
    if me.can_read_all_group_messages:
        found.append(Finding(name, "ok", "privacy", "off: the bot reads all of a group"))
    else:
        found.append(
            Finding(
                name,
                "note",
                "privacy",
                "on: in groups the bot sees commands, mentions and replies to it only"
                " (@BotFather, /setprivacy; then add it to the group again)",
            )
        )
    return found


async def _webhook(client: Client, name: str, settings: TelegramSettings) -> list[Finding]:
    from urllib.parse import urlsplit

    webhook = await client.bot.get_webhook_info()
    waiting = Finding(name, "ok", "waiting", f"{webhook.pending_update_count} updates")
    host = urlsplit(webhook.url).hostname or ""
    wanted = urlsplit(settings.webhook_url).hostname or ""
    if host == wanted:
        text = f"set, at {host}" if host else "none, as polling needs it"
        found = [Finding(name, "ok", "webhook", text), waiting]
    elif host:
        text = f"left set at {host}: the gateway replaces it when it starts"
        found = [Finding(name, "note", "webhook", text), waiting]
    else:
        text = "not set yet: the gateway sets it when it starts"
        found = [Finding(name, "note", "webhook", text), waiting]
    if webhook.last_error_message:
        # It is remembered also when what failed was delivered since.
        text = f"Telegram failed to reach it: {webhook.last_error_message}"
        verdict: Verdict = "fault" if host and webhook.pending_update_count else "note"
        found.append(Finding(name, verdict, "webhook", text))
    return found


def _show(findings: Sequence[Finding]) -> None:
    from hermes_core.cli.output import table

    table(
        ("ACCOUNT", "", "ABOUT", "FOUND"),
        [(found.account, found.verdict, found.about, found.text) for found in findings],
    )
