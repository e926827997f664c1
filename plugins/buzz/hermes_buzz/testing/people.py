"""People with keys, whose events `nostr-sdk` signs."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from typing import Any

sdk: Any = importlib.import_module("nostr_sdk")


class Person:
    """A key pair and a name."""

    def __init__(self, name: str, secret: str = "") -> None:
        """A new key unless `secret` (hex or nsec) is given."""
        self.name = name
        self._keys = sdk.Keys.parse(secret) if secret else sdk.Keys.generate()
        self.key: str = self._keys.public_key().to_hex()
        self.npub: str = self._keys.public_key().to_bech32()
        self.nsec: str = self._keys.secret_key().to_bech32()

    def event(
        self, kind: int, content: str = "", tags: Sequence[Sequence[str]] = (), *, at: int
    ) -> dict[str, Any]:
        """A signed event, as JSON reads it."""
        builder = sdk.EventBuilder(sdk.Kind(kind), content)
        builder = builder.tags([sdk.Tag.parse(list(tag)) for tag in tags])
        builder = builder.custom_created_at(sdk.Timestamp.from_secs(at))
        event: dict[str, Any] = json.loads(builder.finalize(self._keys).as_json())
        return event


def is_authentic(event: dict[str, Any]) -> bool:
    """What `nostr-sdk` says about id and signature."""
    try:
        return bool(sdk.Event.from_json(json.dumps(event)).verify())
    except sdk.NostrSdkError:
        return False
