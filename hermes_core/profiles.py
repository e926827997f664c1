"""Profiles: isolated identities, each with its own settings, secrets, state and files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hermes_core.errors import ConfigError, Fault
from hermes_core.files import UnusableFile, read_bounded, shown
from hermes_core.names import DEFAULT_PROFILE, did_you_mean, profile_name_problem
from hermes_core.secrets import ProfileSecrets, SecretSource, UnresolvedSecret

if TYPE_CHECKING:
    from hermes_core.config.document import Document
    from hermes_core.config.sections import ProfileSettings

__all__ = [
    "DEFAULT_PROFILE",
    "ProfileScope",
    "ProfileSecrets",
    "SecretSource",
    "UnresolvedSecret",
    "absent_profiles",
    "check_profile_name",
    "create_uuid",
    "existing_profiles",
    "identify",
    "identity_file",
    "no_profile",
    "read_uuid",
    "renew",
    "require_profile",
]

_UUID_FILE = "profile-id"


@dataclass(frozen=True, eq=False)
class ProfileScope:
    """What code of one profile may use. Handed over explicitly; never looked up.

    `hidden` are the names of all secrets that any profile has or refers to; `variables` are what
    children of this profile find in their environment besides what the gateway inherited.
    """

    name: str
    uuid: str
    config_dir: Path
    state_dir: Path
    settings: ProfileSettings
    secrets: SecretSource
    hidden: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict)

    def child_environment(self) -> dict[str, str]:
        """The environment for a child process: no secret of any profile, and `HERMES_PROFILE`."""
        inherited = {key: value for key, value in os.environ.items() if key not in self.hidden}
        return {**inherited, **self.variables, "HERMES_PROFILE": self.name}


def check_profile_name(name: str) -> str:
    """`name` itself. Raises ConfigError when it cannot name a profile."""
    if problem := profile_name_problem(name):
        raise ConfigError(problem)
    return name


def identity_file(state_dir: Path) -> Path:
    """Where the identity of the profile is kept whose state is in `state_dir`."""
    return state_dir / _UUID_FILE


def read_uuid(state_dir: Path) -> str | None:
    """The identity of the profile whose state is in `state_dir`, None before its first start.

    A profile that is deleted and made again under the same name has another one. Raises ConfigError
    when the file is there and holds something else.
    """
    import uuid

    path = state_dir / _UUID_FILE
    try:
        text = read_bounded(path, limit=64).decode("ascii").strip()
        return str(uuid.UUID(text))
    except FileNotFoundError:
        return None
    except (UnusableFile, ValueError) as error:
        fault = Fault(file=shown(path), problem=f"not the identity of a profile: {error}")
        raise ConfigError.of([fault]) from None


def create_uuid(state_dir: Path, value: str = "") -> str:
    """The identity of the profile, made now if it has none, or set to `value`. `state_dir` must
    exist.

    Raises OSError when it cannot be written, ConfigError when it cannot be read.
    """
    import uuid

    fresh = value or str(uuid.uuid4())
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(state_dir / _UUID_FILE, flags, 0o600)
    except FileExistsError:
        return read_uuid(state_dir) or create_uuid(state_dir)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{fresh}\n")
        file.flush()
        os.fsync(file.fileno())
    return fresh


def identify(config_dir: Path, state_dir: Path) -> str:
    """The identity of a profile other than the default one, whose settings directory is there.

    It is written in both directories, so that a state that belongs to an earlier profile of the
    same name, and a state that is gone, are found instead of being taken for this profile's. Raises
    ConfigError then, OSError when nothing can be written.
    """
    known = read_uuid(config_dir)
    if known is not None and not state_dir.is_dir():
        raise ConfigError(
            "the profile's state directory is gone",
            where=shown(state_dir),
            remedy="bring it back, or delete the profile and create it again",
        )
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = read_uuid(state_dir)
    if None not in (known, kept) and known != kept:
        raise ConfigError(
            "the state belongs to another profile, which had the same name before",
            where=shown(state_dir),
            remedy="move it away",
        )
    uuid = known or kept or create_uuid(state_dir)
    for directory, found in ((config_dir, known), (state_dir, kept)):
        if found is None and read_uuid(directory) is None:
            create_uuid(directory, uuid)
    return uuid


def renew(scope: ProfileScope, settings: ProfileSettings, secrets: SecretSource) -> None:
    """Let `scope` say what the profile's files say now. For the core alone, after a reload: it is
    the one thing about a scope that changes, and it changes whole."""
    object.__setattr__(scope, "settings", settings)
    object.__setattr__(scope, "secrets", secrets)


def no_profile(name: str) -> ConfigError:
    """The error of a profile that the settings want served and that is not there."""
    return ConfigError(
        f"there is no profile {name}, though [gateway] profiles names it",
        remedy=f"bring it back, `hermes profiles create {name}`, or take the name out",
    )


class Directories(Protocol):
    """Where the files of a profile are. `hermes_core.home.Home` is one."""

    def config_dir(self, profile: str = DEFAULT_PROFILE) -> Path: ...

    def state_dir(self, profile: str = DEFAULT_PROFILE) -> Path: ...


def existing_profiles(home: Directories) -> list[str]:
    """The names of the profiles that are there: the default one first, the others sorted.

    What cannot be a profile (a file, an impossible name) is left out.
    """
    found: set[str] = set()
    for root in {home.config_dir(), home.state_dir()}:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            found.update(entry.name for entry in os.scandir(root / "profiles") if entry.is_dir())
    return [
        DEFAULT_PROFILE,
        *sorted(name for name in found - {DEFAULT_PROFILE} if not profile_name_problem(name)),
    ]


def require_profile(home: Directories, name: str) -> str:
    """`name` itself. Raises ConfigError when it is not there, or shares files with another one."""
    check_profile_name(name)
    names = existing_profiles(home)
    if name not in names:
        raise ConfigError(
            f"there is no profile {name}",
            remedy=did_you_mean(name, names) or "`hermes profiles list`",
        )
    for kind in (home.config_dir, home.state_dir):
        mine = kind(name)
        for other in names:
            if other != name and mine.exists() and _same(mine, kind(other)):
                raise ConfigError(
                    f"the profiles {name} and {other} share one directory",
                    where=shown(mine),
                    remedy="a profile needs files of its own: remove the symbolic link",
                )
    return name


def absent_profiles(home: Directories, profile: str, document: Document) -> tuple[Fault, ...]:
    """Faults for the names in ``[gateway] profiles`` that no profile has."""
    names = document.at(("gateway", "profiles"))
    if profile != DEFAULT_PROFILE or not isinstance(names, list):
        return ()
    known = existing_profiles(home)
    return tuple(
        document.fault(
            ("gateway", "profiles", place),
            problem=no_profile(name).what,
            hint=f"{did_you_mean(name, known)}; {no_profile(name).remedy}",
        )
        for place, name in enumerate(names)
        if isinstance(name, str) and name not in known and not profile_name_problem(name)
    )


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except FileNotFoundError:
        return False
