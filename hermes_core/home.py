"""Where Hermes keeps what: one home per user, or a directory of your choice in HERMES_HOME.

Looking creates nothing; `Home.ensure` does.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hermes_core.errors import ConfigError, HermesError
from hermes_core.names import DEFAULT_PROFILE, profile_name_problem
from hermes_core.supervision.control.address import socket_path
from hermes_core.supervision.lock import LOCK_NAME
from hermes_core.supervision.trouble import cannot

_APPLICATION = "hermes-gateway"
"""The name of the directories. Another program uses the shorter one."""


@dataclass(frozen=True)
class Home:
    """The directories of one user's Hermes, as absolute paths without symbolic links.

    ========================  ==================================================================
    HERMES_HOME is set        everything is under it
    it is not, or is empty    settings under the user's configuration directory, state under the
                              user's state directory, both named `hermes-gateway`
    ========================  ==================================================================

    A profile other than `default` has the same files under `profiles/NAME` in each.
    """

    config_root: Path
    state_root: Path

    @classmethod
    def locate(cls) -> Home:
        """The home that the environment names. Raises HermesError when that cannot be one."""
        chosen = os.environ.get("HERMES_HOME", "")
        if chosen:
            root = _resolve(Path(chosen))
            return cls(root, root)
        import platformdirs

        return cls(
            _resolve(platformdirs.user_config_path(_APPLICATION, appauthor=False)),
            _resolve(platformdirs.user_state_path(_APPLICATION, appauthor=False)),
        )

    def config_dir(self, profile: str = DEFAULT_PROFILE) -> Path:
        """Holds `config.toml` and `secrets.env`. Raises ConfigError for what is no profile name."""
        return _of_profile(self.config_root, profile)

    def state_dir(self, profile: str = DEFAULT_PROFILE) -> Path:
        """Holds `state.db` and `logs/`. Raises ConfigError for what is no profile name."""
        return _of_profile(self.state_root, profile)

    def config_file(self, profile: str = DEFAULT_PROFILE) -> Path:
        return self.config_dir(profile) / "config.toml"

    def secrets_file(self, profile: str = DEFAULT_PROFILE) -> Path:
        return self.config_dir(profile) / "secrets.env"

    def database(self, profile: str = DEFAULT_PROFILE) -> Path:
        return self.state_dir(profile) / "state.db"

    def log_dir(self, profile: str = DEFAULT_PROFILE) -> Path:
        return self.state_dir(profile) / "logs"

    @property
    def lock_path(self) -> Path:
        """The lock of the whole home: one gateway serves all profiles."""
        return self.state_root / LOCK_NAME

    @property
    def socket_path(self) -> Path:
        """Where a gateway started from this environment listens."""
        return socket_path(self.state_root)

    def ensure(self, profile: str = DEFAULT_PROFILE) -> None:
        """Make the profile's directories, for this user only. Existing ones keep their permissions.

        Raises HermesError when they cannot be made (read-only, full disk, a file in their place).
        """
        for directory in (self.config_dir(profile), self.state_dir(profile)):
            _make(directory)


def _resolve(path: Path) -> Path:
    try:
        return path.expanduser().resolve()
    except (OSError, RuntimeError, ValueError) as error:
        raise HermesError(
            f"not a usable directory: {error}", where="HERMES_HOME", remedy="name another one"
        ) from error


def _of_profile(root: Path, profile: str) -> Path:
    if profile == DEFAULT_PROFILE:
        return root
    if problem := profile_name_problem(profile):
        raise ConfigError(problem)
    return root / "profiles" / profile


def _make(directory: Path) -> None:
    missing = [path for path in (directory, *directory.parents) if not os.path.lexists(path)]
    try:
        for path in reversed(missing):
            path.mkdir(mode=0o700, exist_ok=True)
        # Exists already? Then it has to be a directory.
        directory.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise cannot("make the directory", directory, error) from error
