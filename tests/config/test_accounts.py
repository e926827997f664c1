"""Several accounts of one platform, and what they take over from its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_core import Adapter, Platform, PluginError, Settings
from hermes_core.config import Checked, Declarations, check_profile
from hermes_core.profiles import ProfileSecrets
from tests.config.support import Check, Load, Refused, line_settings

TOKEN = 'token = "env:LINE_TOKEN"\n'
USERS = 'allowed_users = ["1"]\n'


def test_a_table_with_accounts_only_is_no_account(load: Load) -> None:
    settings = load(
        f"[platforms.line]\n{USERS}mode = 'push'\n"
        f"[platforms.line.accounts.a]\n{TOKEN}"
        f"[platforms.line.accounts.b]\n{TOKEN}mode = 'poll'\nallowed_users = []\nadmins = ['2']\n"
    )
    a, b, _ = settings.accounts
    assert (a.name, a.account, line_settings(a).mode, a.allowed_users) == (
        "line.a",
        "a",
        "push",
        ("1",),
    )
    assert (b.name, line_settings(b).mode, b.allowed_users, b.admins) == (
        "line.b",
        "poll",
        (),
        ("2",),
    )


def test_secrets_are_not_taken_over(refused: Refused) -> None:
    (fault,) = refused(
        f"[platforms.line]\n{TOKEN}{USERS}[platforms.line.accounts.ops]\nmode = 'push'\n"
    ).faults
    assert fault.key == "platforms.line.accounts.ops.token"
    assert fault.line == 4


def test_the_default_account_cannot_be_written_twice(refused: Refused) -> None:
    (fault,) = refused(
        f"[platforms.line]\n{TOKEN}{USERS}[platforms.line.accounts.default]\n{TOKEN}"
    ).faults
    assert fault.key == "platforms.line.accounts.default"


def test_the_default_account_may_stand_among_the_others(load: Load) -> None:
    settings = load(f"[platforms.line.accounts.default]\n{TOKEN}{USERS}")
    assert settings.accounts[0].name == "line"
    assert settings.account("line") is settings.accounts[0]
    assert settings.account("line", "ops") is None


@pytest.mark.parametrize("name", ["../x", "A", "", "a.b", "é"])
def test_names_of_accounts(refused: Refused, name: str) -> None:
    (fault,) = refused(f'[platforms.line.accounts."{name}"]\n{TOKEN}{USERS}').faults
    assert "cannot name an account" in fault.problem


def test_an_account_that_is_switched_off_needs_nothing(load: Load) -> None:
    settings = load(
        "[platforms.line]\nenabled = false\nx = 1\n[platforms.local]\nenabled = false\n"
    )
    assert settings.accounts == ()


def test_unknown_keys_of_a_table_without_an_account_are_errors(refused: Refused) -> None:
    (fault,) = refused(
        f"[platforms.line]\nalow = 1\n{USERS}[platforms.line.accounts.a]\n{TOKEN}"
    ).faults
    assert fault.key == "platforms.line.alow"


def test_a_fault_that_is_taken_over_is_reported_at_least_where_it_stands(check: Check) -> None:
    checked = check(
        f"[platforms.line]\n{TOKEN}progress = 'loud'\n{USERS}[platforms.line.accounts.a]\n{TOKEN}"
    )
    assert "platforms.line.progress" in [fault.key for fault in checked.faults]


@pytest.mark.parametrize("text", ["[platforms]\nline = 1", "[platforms.line]\naccounts = 1"])
def test_something_else_in_place_of_a_table(check: Check, text: str) -> None:
    assert len(check(text).faults) >= 1


class TakenSettings(Settings):
    allowed_users: str = ""


class TakenAdapter(Adapter[TakenSettings]):
    pass


def test_a_plugin_cannot_take_a_key_of_the_core(config_file: Path) -> None:
    platform = Platform("taken", TakenAdapter, TakenSettings, max_length=10)
    config_file.write_text("[platforms.taken]\n")
    declared = Declarations(platforms={"taken": platform}, agents={}, sections={})
    with pytest.raises(PluginError, match="allowed_users"):
        check_profile(config_file, "default", declared, ProfileSecrets())


def _lines(checked: Checked) -> list[int | None]:
    return [fault.line for fault in checked.faults]


def test_faults_come_in_the_order_of_the_file(check: Check) -> None:
    lines = _lines(
        check("[platforms.line]\nx = 1\n[sessions]\nbusy = 1\n[gateway]\nprofiles = 1\n")
    )
    assert lines == sorted(lines, key=lambda line: line or 0)
