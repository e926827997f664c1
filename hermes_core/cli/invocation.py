"""What the global options say, for every command (`click.pass_obj`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_core.home import Home


@dataclass(frozen=True)
class Invocation:
    """One call of `hermes`. `profile` is the name given, not yet known to exist."""

    profile: str = "default"

    @cached_property
    def home(self) -> Home:
        """The home that the environment names. Raises HermesError when it names none."""
        from hermes_core.home import Home

        return Home.locate()
