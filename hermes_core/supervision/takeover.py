"""End the gateway that holds a home: ask it, then tell it, then make it."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from hermes_core.errors import ControlError, HermesError
from hermes_core.supervision.control import request
from hermes_core.supervision.lock import Holder, holder

if TYPE_CHECKING:
    from hermes_core.home import Home

_POLL = 0.05
_TERM_GRACE = 2.0
_KILL_GRACE = 5.0


def end_holder(home: Home, grace: float) -> Holder | None:
    """Make the process that holds `home` stop, and wait until it has. Who it was; None if nobody
    did.

    It gets `grace` seconds to drain after it was asked; one that does not answer, or does not come
    to an end, is sent SIGTERM and at last SIGKILL. Raises HermesError when it cannot be ended or
    verified.
    """
    found = holder(home.lock_path)
    if found is None:
        return None
    deadline = time.monotonic() + grace
    try:
        request(home.state_root, "stop", timeout=min(5.0, grace), grace=grace)
    except ControlError:
        _signal(home, found, signal.SIGTERM)
    if _gone(home, found, deadline):
        return found
    for number, patience in ((signal.SIGTERM, _TERM_GRACE), (signal.SIGKILL, _KILL_GRACE)):
        _signal(home, found, number)
        if _gone(home, found, time.monotonic() + patience):
            return found
    raise HermesError(f"the gateway (pid {found.pid}) does not end", where=str(home.state_root))


def _signal(home: Home, found: Holder, number: signal.Signals) -> None:
    if found.identity is None:
        raise HermesError(
            "something holds this home that cannot be verified, so it is not signalled",
            where=str(home.lock_path),
        )
    found.identity.signal(number)


def _gone(home: Home, found: Holder, deadline: float) -> bool:
    """Wait until the home is free, or in other hands."""
    while True:
        now = holder(home.lock_path)
        if now is None or (now.identity is not None and now.identity != found.identity):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL)
