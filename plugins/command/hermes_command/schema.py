"""The JSON Schemas in `docs/`: ``python -m hermes_command.schema turn > docs/turn.schema.json``."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec

from hermes_command.document import TurnDocument
from hermes_command.events import EventLine

TYPES: dict[str, Any] = {"turn": TurnDocument, "event": EventLine}


def schema(name: str) -> str:
    """The schema of the document ``turn`` or of an output line ``event``, as it is in `docs/`."""
    content = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    content |= msgspec.json.schema(TYPES[name])
    return json.dumps(content, indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema(sys.argv[1]))
