#!/usr/bin/env python3
"""An agent in a few lines: it counts words, and shows what it is doing."""

import json
import sys


def say(**event: object) -> None:
    """Write one event on one line."""
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


turn = json.load(sys.stdin)
say(type="commentary", text="counting")
for message in turn["messages"]:
    say(type="text", text=f"{len(message['text'].split())} words. ")
say(type="usage", model="counts")
