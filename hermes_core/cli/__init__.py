"""The `hermes` command. This package's modules are imported when a command needs them."""

from __future__ import annotations


def main() -> int:
    """Run the command line and return its exit code (docs/cli.md lists them)."""
    try:
        from hermes_core.cli import frame

        return frame.run()
    except KeyboardInterrupt:
        return 130
