"""What a service manager is told that asks for it in NOTIFY_SOCKET: sd_notify(3), without its
library."""

from __future__ import annotations

import contextlib
import os
import socket

READY = "READY=1"


def stopping(seconds: float) -> str:
    """That the stop has begun and may take so long. The manager's own limit counts again after
    that."""
    return f"STOPPING=1\nEXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}"


def tell(address: str | None, text: str) -> None:
    """Send `text` to the manager that listens at `address`, if there is one. Never fails."""
    if not address:
        return
    # A name in the abstract namespace is written with an @ in front.
    target = f"\0{address[1:]}" if address.startswith("@") else address
    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender,
    ):
        sender.setblocking(False)
        sender.sendto(text.encode(), target)


def manager() -> str | None:
    """The address of the service manager that started this process."""
    return os.environ.get("NOTIFY_SOCKET")
