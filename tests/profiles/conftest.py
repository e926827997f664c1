"""The declarations of a few plugins."""

from __future__ import annotations

import pytest

from hermes_core.config import Declarations
from tests.config.support import declare


@pytest.fixture
def declarations() -> Declarations:
    return declare()
