"""A home with one profile on the platform `wire`."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes_core.home import Home


@pytest.fixture(autouse=True)
def _locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_LOCK_DIR", str(tmp_path / "locks"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home", tmp_path / "home")
    home.ensure()
    return home
