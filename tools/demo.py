"""`make demo`: a conversation through the whole pipeline, in a home of its own.

On a terminal it is a chat. Without one it is scripted: what was said and answered is compared with
what `hermes sessions show` then reads from SQLite; the exit code says whether they are the same.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HERMES = Path(sysconfig.get_path("scripts"), "hermes")
SAYS = ["hello", "what do you do?", "slow 1 one word after the other", "good bye"]
ANSWERS = ["hello", "what do you do?", "one word after the other", "good bye"]


def hermes(home: str, *arguments: str, said: str = "") -> str:
    """Run the installed `hermes` in `home` and return its output."""
    done = subprocess.run(
        [HERMES, *arguments],
        env={**os.environ, "HERMES_HOME": home},
        input=said,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def scripted(home: str) -> bool:
    """Hold the conversation and compare the three accounts of it."""
    print(f"$ hermes chat    (a new home: {home})")
    answers = hermes(home, "chat", said="\n".join(SAYS)).splitlines()
    for said, answer in zip(SAYS, answers, strict=False):
        print(f"> {said}\n{answer}")
    print("\n$ hermes sessions show    (from the database)")
    print(hermes(home, "sessions", "show"))
    transcript = json.loads(hermes(home, "sessions", "show", "--json"))["transcript"]
    stored = [(line["role"], line["text"]) for line in transcript]
    lines = zip(SAYS, ANSWERS, strict=True)
    expected = [line for said, answer in lines for line in (("user", said), ("assistant", answer))]
    return answers == ANSWERS and stored == expected


def interactive(home: str) -> int:
    """Let a person talk. Returns the exit code of the chat."""
    print("You are talking to the echo agent. Try `slow 5 hello there`, `long 500`, `fail`.")
    print("Ctrl-C stops an answer, Ctrl-D leaves.\n")
    signal.signal(signal.SIGINT, lambda *_: None)  # it is meant for the chat, which has it too
    return subprocess.call([HERMES, "chat"], env={**os.environ, "HERMES_HOME": home})


def main() -> int:
    """0 when the conversation was held and stored as it was held, else 1."""
    with tempfile.TemporaryDirectory(prefix="hermes-demo-") as home:
        if sys.stdin.isatty() and sys.stdout.isatty():
            return interactive(home)
        try:
            same = scripted(home)
        except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
            print(f"demo: {error}", file=sys.stderr)
            return 1
    print("The database holds what was said." if same else "demo: this is not what was said")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
