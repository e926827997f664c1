"""Real processes beside the test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import hermes_core

Start = Callable[..., "subprocess.Popen[str]"]
"""start(script, *arguments): a Python process whose standard streams are pipes."""

_ROOT = str(Path(hermes_core.__file__).parents[1])


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python scripts; whatever is left of them is killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": _ROOT},
        )
        started.append(process)
        assert isinstance(process, subprocess.Popen)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
