"""What the settings say about who may speak."""

from __future__ import annotations

import pytest

from tests.config.support import Check, Load, Refused

TOKEN = '[platforms.line]\ntoken = "env:LINE_TOKEN"\n'


@pytest.mark.case("AZ-01")
@pytest.mark.parametrize("access", ["", "allowed_users = []\n", "allow_all = false\n"])
def test_no_list_opens_nothing_and_is_said_once(check: Check, access: str) -> None:
    checked = check(TOKEN + access)
    assert checked.settings is not None
    account = checked.settings.accounts[0]
    assert account.allowed_users == account.allowed_groups == ()
    assert account.allow_all is False
    (warning,) = checked.warnings
    assert "nobody" in warning.problem


@pytest.mark.case("AZ-01")
@pytest.mark.parametrize("entry", ["", "   ", "\\t", "\\u00a0"])
def test_blank_entries_are_errors(refused: Refused, entry: str) -> None:
    (fault,) = refused(f'{TOKEN}allowed_users = ["{entry}"]\n').faults
    assert fault.key == "platforms.line.allowed_users[0]"
    assert fault.line == 3


@pytest.mark.case("AZ-01")
def test_an_empty_table_opens_nothing(refused: Refused) -> None:
    (fault,) = refused("[platforms.line]\n").faults
    assert fault.key == "platforms.line.token"


@pytest.mark.case("AZ-01")
def test_a_star_is_no_wild_card(refused: Refused) -> None:
    (fault,) = refused(f'{TOKEN}allowed_users = ["*"]\n').faults
    assert "allow_all = true" in fault.problem


def test_only_literal_true_opens_to_all(load: Load, refused: Refused) -> None:
    assert load(TOKEN + "allow_all = true\n").accounts[0].allow_all is True
    for value in ('"true"', "1", '"yes"', "[true]"):
        (fault,) = refused(f"{TOKEN}allow_all = {value}\n").faults
        assert fault.key == "platforms.line.allow_all"


@pytest.mark.case("AZ-02")
@pytest.mark.parametrize(
    "written",
    [
        '"11,22"',
        '" 11 , 22 ,"',
        '["11,22"]',
        '["11", "22 "]',
        '["\\"11\\",\\"22\\""]',
        "[\"'11' 22\"]",
        '["11;22"]',
        '["11,22  # boss"]',
        '["11 # boss"]',
        '["11", "22\\r"]',
        '["11", ""]',
        '["11", 22]',
        '["11", ["22"]]',
        '["11", true]',
        "{11 = true}",
        "11",
    ],
)
def test_lists_have_one_form_and_every_other_is_an_error(refused: Refused, written: str) -> None:
    error = refused(f"{TOKEN}allowed_users = {written}\n")
    for fault in error.faults:
        assert fault.key.startswith("platforms.line.allowed_users")
        assert fault.line == 3


@pytest.mark.case("AZ-02")
@pytest.mark.parametrize(
    "written",
    ['["11", "22"]', "['11', '22',]", '[\n  "11", # boss\n  "22",\n]', '["11", """22"""]'],
)
def test_lists_in_any_way_that_toml_writes_them(load: Load, written: str) -> None:
    assert load(f"{TOKEN}allowed_users = {written}\n").accounts[0].allowed_users == ("11", "22")


@pytest.mark.parametrize("entry", ["Robin", "@robin", "１２３", "²", "12a"])
def test_an_entry_that_can_be_no_id_is_an_error_that_names_it(refused: Refused, entry: str) -> None:
    (fault,) = refused(f'{TOKEN}admins = ["1", "{entry}"]\n').faults
    assert fault.key == "platforms.line.admins[1]"
    assert f'"{entry}"' in fault.problem


@pytest.mark.case("AZ-16")
@pytest.mark.parametrize(
    ("text", "key", "line", "hint"),
    [
        (TOKEN + 'alowed_users = ["1"]\n', "platforms.line.alowed_users", 3, "allowed_users"),
        (TOKEN + 'alow = ["1"]\n', "platforms.line.alow", 3, "allow_all"),
        (TOKEN + "allow = {u1 = true}\n", "platforms.line.allow", 3, "allow_all"),
        (TOKEN + 'deny_all = "yes"\n', "platforms.line.deny_all", 3, ""),
        (TOKEN + "[platforms.line.users]\nu1 = true\n", "platforms.line.users", 3, ""),
        ("[authorization.users]\nu1 = true\n", "authorization.users", 1, "authorizers"),
        ("[authorization]\nauthorizer = ['x']\n", "authorization.authorizer", 2, "authorizers"),
        ("[authz.users]\nu1 = true\n", "authz", 1, "authorization"),
        ("[authorisation]\nauthorizers = []\n", "authorisation", 1, "authorization"),
        ("[platform.line]\nallowed_users = ['1']\n", "platform", 1, "platforms"),
        ("[platforms.lime]\nallowed_users = ['1']\n", "platforms.lime", 1, "line"),
        ("[discord]\nallowed_users = ['1']\n", "discord", 1, ""),
        ("allowed_users = ['1']\n", "allowed_users", 1, ""),
        ("[sessions.access]\nallow_all = true\n", "sessions.access", 1, ""),
    ],
)
def test_a_mistyped_security_table_is_an_error(
    refused: Refused, text: str, key: str, line: int, hint: str
) -> None:
    (fault,) = refused(text).faults
    assert (fault.key, fault.line) == (key, line)
    assert hint in fault.hint


def test_lists_beside_allow_all_are_said_to_be_idle(check: Check) -> None:
    (warning,) = check(f'{TOKEN}allow_all = true\nallowed_users = ["1"]\n').warnings
    assert warning.key == "platforms.line.allow_all"
