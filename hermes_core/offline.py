"""A profile as a command sees it that works beside the gateway, or without one."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

from hermes_core.errors import ConfigError
from hermes_core.names import DEFAULT_PROFILE

if TYPE_CHECKING:
    from hermes_core.profiles import ProfileScope


def profile_scope(profile: str = DEFAULT_PROFILE) -> ProfileScope:
    """The scope of a profile, as a gateway of the home that the environment names would serve it.

    Its settings are checked, with what all installed plugins declare, and its secrets are at hand;
    as in a gateway, they leave the environment of the process. Nothing is made, connected or
    locked. `uuid` is "" for a profile that was never served. Raises ConfigError with every fault.
    """
    from hermes_core.home import Home
    from hermes_core.startup import prepare

    # What a plugin prints while it is imported is not the answer to the command.
    with contextlib.redirect_stdout(sys.stderr):
        plan = prepare(Home.locate(), only=profile)
    for scope in plan.scopes:
        if scope.name == profile:
            return scope
    raise ConfigError(plan.unserved[profile])
