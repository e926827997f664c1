"""What every test of the core and of the plugins stands on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest

# A shared machine may stall for longer than any deadline.
hypothesis.settings.register_profile("hermes", deadline=None)
hypothesis.settings.load_profile("hermes")


@pytest.fixture(scope="session", autouse=True)
def _strangers_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test finds the settings, the state or the running gateway of whoever runs it."""
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="hermes-") as runtime,  # short: it will hold sockets
    ):
        for name in [name for name in os.environ if name.startswith(("HERMES_", "XDG_"))]:
            patch.delenv(name)
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("XDG_RUNTIME_DIR", runtime)
        yield
