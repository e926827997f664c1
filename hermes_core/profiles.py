"""Profiles: isolated identities, each with its own settings, secrets, state and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class SecretSource(Protocol):
    """Looks secrets up for one profile only."""

    def get(self, name: str) -> str | None: ...


@dataclass(frozen=True)
class ProfileScope:
    """What code of one profile may use. Handed over explicitly; never looked up."""

    name: str
    uuid: str
    config_dir: Path
    state_dir: Path
    secrets: SecretSource

    def child_environment(self) -> dict[str, str]:
        raise NotImplementedError

    @property
    def settings(self) -> Mapping[str, object]:
        raise NotImplementedError
