"""Tests that need a relay are left out where `nostr-sdk`, which brings one, is not installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

NEED_A_RELAY = {
    "events",
    "conversation",
    "faults",
    "recovery",
    "attachments",
    "second",
    "conformance",
    "changes",
    "hostile",
    "news",
    "secrecy",
    "shapes",
}

collect_ignore = (
    []
    if importlib.util.find_spec("nostr_sdk")
    else [str(Path(__file__).parent / f"test_{name}.py") for name in sorted(NEED_A_RELAY)]
)
