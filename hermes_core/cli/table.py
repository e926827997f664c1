"""The commands of the core. One line each; no command's module is imported to show its help."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """`attribute` of `hermes_core.cli.<module>` is the click command."""

    module: str
    attribute: str
    help: str


COMMANDS: dict[str, Entry] = {
    "setup": Entry("setup", "setup", "Write a settings file from a few questions."),
    "run": Entry("run", "run", "Run the gateway until it is told to stop."),
    "stop": Entry("lifecycle", "stop", "Stop the gateway."),
    "restart": Entry("lifecycle", "restart", "Restart the gateway."),
    "drain": Entry("lifecycle", "drain", "Begin no new turn for some time."),
    "status": Entry("status", "status", "Show whether the gateway runs and what it does."),
    "logs": Entry("logs", "logs", "Show the gateway's log file."),
    "explain": Entry("explain", "explain", "Tell what became of a message, and why."),
    "inbox": Entry("inbox", "inbox", "Show what waits and what was given up."),
    "deliveries": Entry("deliveries", "deliveries", "Show what was sent; send again what failed."),
    "sessions": Entry("sessions", "sessions", "Show and find what was said."),
    "profiles": Entry("profiles", "profiles", "List, show, make, copy and delete profiles."),
    "auth": Entry("auth", "auth", "Explain who may speak, and list who was denied."),
    "pairing": Entry("pairing", "pairing", "Let strangers in by the codes they were given."),
    "plugins": Entry("plugins", "plugins", "Show which plugins run, which do not and why."),
    "hooks": Entry("hooks", "hooks", "Show the hooks of plugins and who implements them."),
    "config": Entry("config", "config", "Look at settings, check them, change them."),
    "doctor": Entry("doctor", "doctor", "Check everything and say how to mend it."),
    "paths": Entry("paths", "paths", "Show where Hermes keeps its files."),
    "completion": Entry("completion", "completion", "Print the completion script for a shell."),
}
