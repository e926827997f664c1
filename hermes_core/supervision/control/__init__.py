"""The control socket: how local commands talk to the gateway that holds the home.

Both sides exchange JSON objects, one a line. The first one names the ``verb``; a client sends
whatever the verb's handler expects after that, and the handler's result is the last answer. An
object with the key ``error`` is a failure and nothing else: ``{"error": what, "where": ...,
"remedy": ..., "code": exit code}``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_core.supervision.control.address import socket_path
    from hermes_core.supervision.control.ask import request
    from hermes_core.supervision.control.client import ClientChannel, open_channel
    from hermes_core.supervision.control.server import ControlServer, Handler, ServerChannel

__all__ = [
    "ClientChannel",
    "ControlServer",
    "Handler",
    "ServerChannel",
    "open_channel",
    "request",
    "socket_path",
]

_HOMES = {
    "ClientChannel": "client",
    "ControlServer": "server",
    "Handler": "server",
    "ServerChannel": "server",
    "open_channel": "client",
    "request": "ask",
    "socket_path": "address",
}


def __getattr__(name: str) -> object:
    """Import on first use: a short command needs a plain socket and no event loop."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
