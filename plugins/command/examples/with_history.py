#!/usr/bin/env python3
"""Gives a program that reads one plain prompt the conversation so far."""

import json
import subprocess
import sys

turn = json.load(sys.stdin)
lines = ["Continue this conversation: write the assistant's next answer and nothing else."]
lines += [f"{line['role']}: {line['text']}" for line in turn["history"]]
lines += [f"user: {message['text']}" for message in turn["messages"]]
prompt = "\n\n".join(lines)
sys.exit(subprocess.run(sys.argv[1:], input=prompt, text=True, check=False).returncode)
