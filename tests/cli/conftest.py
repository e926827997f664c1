"""The `hermes` command as a process, with plugins made on the spot."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hermes_core

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]
"""hermes(*arguments, **environment) runs the command to its end."""
Install = Callable[..., None]
"""install(name, {command: target}, source) makes a distribution that adds commands."""

_ROOT = Path(hermes_core.__file__).parents[1]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A directory of installed distributions."""
    path = tmp_path / "site"
    path.mkdir()
    return path


@pytest.fixture
def environment(tmp_path: Path, site: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        "HOME": str(tmp_path / "user"),
        "HERMES_HOME": str(tmp_path / "home"),
        "PYTHONPATH": os.pathsep.join([str(site), str(_ROOT)]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@pytest.fixture
def hermes(environment: dict[str, str]) -> Hermes:
    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hermes_core.cli", *arguments],
            env={**environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def install(site: Path) -> Install:
    def install(name: str, commands: dict[str, str], source: str = "") -> None:
        package = name.replace("-", "_")
        (site / f"{package}.py").write_text(source)
        info = site / f"{package}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        lines = [f"{command} = {target}" for command, target in commands.items()]
        (info / "entry_points.txt").write_text("\n".join(["[hermes.cli]", *lines, ""]))

    return install
