"""The sample of the manual works as it is written."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from hermes_core import Duration, Secret, Settings
from hermes_core.config import (
    AuthorizationSettings,
    GatewaySettings,
    PluginSettings,
    ProfileSettings,
    RetentionSettings,
    SessionSettings,
)
from hermes_core.config.sections import AccountKeys, AgentChoice, GroupKeys
from tests.config.support import Load, Refused, TargetSettings, TrimSettings, line_settings

MANUAL = (Path(__file__).parents[2] / "docs" / "settings.md").read_text(encoding="utf-8")
SAMPLE = MANUAL.split("```toml\n")[1].split("```")[0]


@pytest.fixture
def sample(tmp_path: Path, load: Load) -> ProfileSettings:
    token = tmp_path / "ops.token"
    token.write_text("ops-token-value\n")
    token.chmod(0o600)
    return load(SAMPLE)


def test_core_sections(sample: ProfileSettings) -> None:
    assert sample.gateway.profiles == ("default", "work")
    assert sample.gateway.shutdown_grace == Duration(30)
    assert sample.sessions.busy == "queue"
    assert sample.sessions.total is None
    assert sample.warnings == ()


def test_agent_section_has_the_type_of_its_plugin(sample: ProfileSettings) -> None:
    assert sample.agent.use == "command"
    command = sample.agent.tables["command"]
    assert command == type(command)(argv=("my-agent", "--json"), timeout=1800.0)


def test_accounts(sample: ProfileSettings) -> None:
    assert [account.name for account in sample.accounts] == ["telegram", "telegram.ops", "local"]
    usual, ops = sample.accounts[:2]
    assert line_settings(usual).token.reveal() == "bot-token-value"
    assert line_settings(ops).token.reveal() == "ops-token-value"
    assert usual.allowed_users == ops.allowed_users == ("123456789",)
    assert usual.agent == ops.agent == "llm"


def test_array_of_tables(sample: ProfileSettings) -> None:
    targets = sample.sections["hooks.outbound"]
    secret = Secret("audit-secret-value")
    assert targets == (
        TargetSettings(
            name="audit", url="https://example.org/hook", events=("on_turn_end",), secret=secret
        ),
    )


def test_sections_have_defaults(sample: ProfileSettings) -> None:
    assert sample.sections["memory_trim"] == TrimSettings(enabled=True, cooldown_seconds=60)


def test_nothing_written_gives_the_defaults(load: Load) -> None:
    settings = load("")
    assert settings.gateway.profiles == ("default",)
    assert settings.agent.use == "echo"
    assert [account.name for account in settings.accounts] == ["local"]


def test_secrets_are_never_shown(sample: ProfileSettings) -> None:
    shown = repr(sample) + str(sample)
    assert "token-value" not in shown
    assert "audit-secret-value" not in shown


SECTIONS: dict[str, type[Settings]] = {
    "[gateway]": GatewaySettings,
    "[sessions]": SessionSettings,
    "[retention]": RetentionSettings,
    "[agent]": AgentChoice,
    "[platforms.NAME]": AccountKeys,
    "[platforms.NAME.groups.ID]": GroupKeys,
    "[authorization]": AuthorizationSettings,
    "[plugins]": PluginSettings,
}


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_manual_has_every_key_with_its_default(heading: str) -> None:
    chapter = MANUAL.split(f"\n## `{heading}`\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", chapter, re.MULTILINE))
    fields = msgspec.structs.fields(SECTIONS[heading])
    assert list(rows) == [field.name for field in fields]
    for field in fields:
        if isinstance(field.default, Duration):
            assert rows[field.name] == f'`"{Duration.text(field.default)}"`'
        elif field.default is None:
            assert not rows[field.name].startswith("`")
        else:
            made = field.default_factory
            default = field.default if made is msgspec.NODEFAULT else made()
            assert rows[field.name] == f"`{json.dumps(default)}`"


def test_every_fault_of_a_file_is_reported_at_once(refused: Refused) -> None:
    error = refused(
        """
[gateway]
max_running_turns = true
shutdown_grace = -1
profiles = ["default", "default", "../x"]

[sessions]
busy = "que"

[agent]
use = "comand"

[platforms.line]
token = "env:LINE_TOKEN"
alow = ["1"]
allowed_users = ["", "1"]
"""
    )
    assert [(fault.line, fault.key) for fault in error.faults] == [
        (3, "gateway.max_running_turns"),
        (4, "gateway.shutdown_grace"),
        (5, "gateway.profiles[1]"),
        (5, "gateway.profiles[2]"),
        (8, "sessions.busy"),
        (11, "agent.use"),
        (15, "platforms.line.alow"),
        (16, "platforms.line.allowed_users[0]"),
    ]
    busy = error.faults[4]
    assert busy.expected == 'one of "queue", "coalesce", "interrupt", "steer"'
    assert busy.found == '"que"'
    assert busy.hint == 'did you mean "queue"?'
    assert str(error).startswith("8 faults")
