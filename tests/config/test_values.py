"""Which values a key takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_core import Duration
from hermes_core.config import Declarations, check_profile
from hermes_core.profiles import ProfileSecrets
from tests.config.support import Check, Load, Refused

LINE = '[platforms.line]\ntoken = "env:LINE_TOKEN"\nallowed_users = ["1"]\n'


@pytest.mark.case("CF-10")
@pytest.mark.parametrize(
    "text",
    [
        "[gateway]\nshutdown_grace = nan",
        "[gateway]\nshutdown_grace = inf",
        "[gateway]\nshutdown_grace = -1",
        "[gateway]\nshutdown_grace = true",
        "[gateway]\nshutdown_grace = 1e308",
        "[gateway]\nshutdown_grace = 0",
        "[gateway]\nshutdown_grace = 07:32:00",
        '[gateway]\nshutdown_grace = "-1s"',
        '[gateway]\nshutdown_grace = "nan"',
        '[gateway]\nshutdown_grace = "30"',
        '[gateway]\nshutdown_grace = "99999999999999999999d"',
        '[gateway]\nshutdown_grace = "٣s"',
        '[sessions]\ninactivity = "0s"',
        '[retention]\ncontent = "23h"',
        '[retention]\nkeys = "6d"',
        '[retention]\ntranscript = "0s"',
        "[sessions]\nmax_waiting = true",
        "[sessions]\nmax_waiting = 0",
        "[sessions]\nmax_waiting = -5",
        "[sessions]\nmax_waiting = 1.5",
        "[sessions]\nmax_waiting = 1_000_000_000_000",
        "[sessions]\nmax_waiting = 99999999999999999999999",
        LINE + "port = 0",
        LINE + "port = 70000",
        LINE + 'pause = "61s"',
        LINE + 'pause = "500ms"',
        "[memory_trim]\ncooldown_seconds = nan",
    ],
)
def test_numbers_that_timers_cannot_use(refused: Refused, text: str) -> None:
    (fault,) = refused(text).faults
    table, _, _ = text.rpartition("\n")[0].partition("]")
    assert fault.key.startswith(table.removeprefix("["))
    assert fault.expected
    assert fault.found
    assert fault.line == text.count("\n") + 1


def test_keys_are_kept_as_long_as_content(load: Load, refused: Refused) -> None:
    (fault,) = refused('[retention]\ncontent = "120d"').faults
    assert str(fault).endswith('keys ("90d") cannot be shorter than content ("120d")')
    assert load('[retention]\ncontent = "7d"\nkeys = "7d"').retention.transcript is None


@pytest.mark.case("CF-10")
def test_zero_is_fine_where_it_means_something(load: Load) -> None:
    assert load('[gateway]\nshutdown_grace = "0s"').gateway.shutdown_grace == Duration(0)


@pytest.mark.case("CF-13")
def test_unknown_keys_are_warnings_with_the_nearest_name(check: Check) -> None:
    checked = check("[memory_trm]\nenabled = true\n[sessions]\nretrys = 3\nbussy = 'queue'\n")
    assert checked.faults == ()
    trim, retrys, bussy = checked.warnings
    assert (trim.key, trim.hint) == ("memory_trm", 'did you mean "memory_trim"?')
    assert retrys.key == "sessions.retrys"
    assert "max_waiting" in retrys.hint
    assert (bussy.key, bussy.line, bussy.hint) == ("sessions.bussy", 5, 'did you mean "busy"?')


@pytest.mark.case("CF-13")
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[cron]\ntick = '1m'", "cron"),
        ("[platforms.matrix]\nserver = 'x'\nallowed_users = ['1']", "platforms.matrix"),
        ("[agent.claude]\nmodel = 'x'", "agent.claude"),
        ("[[hooks.inbound]]\nname = 'x'", "hooks.inbound"),
        ("lonely = 1", "lonely"),
    ],
)
def test_keys_of_a_plugin_that_is_not_there(check: Check, text: str, key: str) -> None:
    checked = check(text)
    assert checked.settings is not None
    assert [warning.key for warning in checked.warnings] == [key]
    assert checked.settings.warnings == (str(checked.warnings[0]),)


def test_another_profile_has_no_gateway_table(
    declarations: Declarations, config_file: Path
) -> None:
    config_file.write_text("[gateway]\nmax_running_turns = 7\n")
    checked = check_profile(config_file, "work", declarations, ProfileSecrets())
    assert checked.settings is not None
    assert checked.settings.gateway.max_running_turns == 64
    assert [warning.key for warning in checked.warnings] == ["gateway"]


@pytest.mark.parametrize("use", ["[agent]\nuse = 'nonesuch'", LINE + "agent = 'nonesuch'"])
def test_an_agent_that_no_plugin_brings(refused: Refused, use: str) -> None:
    (fault,) = refused(use).faults
    assert "nonesuch" in fault.problem


def test_the_agent_in_use_needs_its_required_keys(refused: Refused) -> None:
    (fault,) = refused("[agent]\nuse = 'command'\n").faults
    assert fault.key == "agent.command.argv"
    assert "missing" in fault.problem


@pytest.mark.parametrize(
    ("argv", "key", "problem"),
    [
        ("[]", "agent.command.argv", "texts, at least 1 long, found an empty list"),
        ('["x", 3]', "agent.command.argv[1]", "expected a text, found the number 3"),
    ],
)
def test_a_list_of_a_certain_length(refused: Refused, argv: str, key: str, problem: str) -> None:
    (fault,) = refused(f"[agent]\nuse = 'command'\ncommand.argv = {argv}\n").faults
    assert fault.key == key
    assert problem in str(fault)


def test_an_agent_not_in_use_may_lack_them(load: Load) -> None:
    assert "command" not in load("").agent.tables


@pytest.mark.parametrize("text", ["agent = 1", "platforms = []", "sessions = 'x'", "plugins = 1"])
def test_something_else_in_place_of_a_table(refused: Refused, text: str) -> None:
    (fault,) = refused(text).faults
    assert fault.line == 1


def test_an_array_of_tables_written_as_a_table(refused: Refused) -> None:
    (fault,) = refused("[hooks.outbound]\nname = 'x'\nurl = 'y'\n").faults
    assert fault.key == "hooks.outbound"


@pytest.mark.parametrize(
    ("profiles", "words"),
    [
        (["default", "default"], "listed twice"),
        (["../x"], "cannot name a profile"),
        (["A"], "cannot name a profile"),
        (["é"], "cannot name a profile"),
    ],
)
def test_names_of_profiles(refused: Refused, profiles: list[str], words: str) -> None:
    (fault,) = refused(f"[gateway]\nprofiles = {profiles!r}\n").faults
    assert words in fault.problem
