"""A home of one profile with a few plugins, and a loader for texts of settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_core.config import Checked, Declarations, ProfileSettings, check_profile, load_profile
from hermes_core.errors import ConfigError
from hermes_core.profiles import ProfileSecrets
from tests.config.support import Check, Load, Refused, declare


@pytest.fixture
def declarations() -> Declarations:
    return declare()


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


@pytest.fixture
def secrets(tmp_path: Path) -> ProfileSecrets:
    values = {
        "LINE_TOKEN": "line-token-value",
        "TELEGRAM_BOT_TOKEN": "bot-token-value",
        "AUDIT_HOOK_SECRET": "audit-secret-value",
    }
    return ProfileSecrets(values, directory=tmp_path)


@pytest.fixture
def check(config_file: Path, declarations: Declarations, secrets: ProfileSecrets) -> Check:
    """Check a text as the default profile's file."""

    def run(text: str | bytes) -> Checked:
        config_file.write_bytes(text.encode() if isinstance(text, str) else text)
        return check_profile(config_file, "default", declarations, secrets)

    return run


@pytest.fixture
def load(config_file: Path, declarations: Declarations, secrets: ProfileSecrets) -> Load:
    """Load a text as the default profile's file."""

    def run(text: str | bytes) -> ProfileSettings:
        config_file.write_bytes(text.encode() if isinstance(text, str) else text)
        return load_profile(
            config_file,
            "default",
            platforms=declarations.platforms,
            agents=declarations.agents,
            sections=declarations.sections,
            secrets=secrets,
        )

    return run


@pytest.fixture
def refused(load: Load) -> Refused:
    """The error that a text is refused with."""

    def run(text: str | bytes) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            load(text)
        assert caught.value.exit_code == 2
        return caught.value

    return run
