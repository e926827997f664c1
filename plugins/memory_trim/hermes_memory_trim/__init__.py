"""Give memory that is free back to the system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from hermes_core import HousekeepingInfo, ProfileScope, Section, Service, Settings, hookimpl

if TYPE_CHECKING:
    from hermes_core import RunningService, ServiceContext

SERVICE = "memory"


class TrimSettings(Settings):
    """``[memory_trim]``. Seconds, and megabytes of 1,048,576 bytes."""

    enabled: bool = True
    cooldown_seconds: Annotated[float, Meta(ge=5, le=86_400)] = 60
    log_every_n: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    info_log_min_delta_mb: Annotated[float, Meta(ge=0)] = 0


@hookimpl
def settings() -> list[Section]:
    """``[memory_trim]``."""
    return [Section("memory_trim", TrimSettings)]


@hookimpl
def services() -> list[Service]:
    """The trimmer's part in each profile."""
    return [Service(SERVICE, _service)]


@hookimpl
def on_housekeeping(scope: ProfileScope, load: HousekeepingInfo) -> None:
    """Trim, busy or idle: whoever waits for the idle hour of a busy day waits for ever."""
    _trim(scope, "idle" if load.running_turns == 0 else "busy")


@hookimpl
def on_turn_end(scope: ProfileScope) -> None:
    """A turn has let go of what it held."""
    _trim(scope, "turn end")


def _service(context: ServiceContext) -> RunningService:
    from hermes_memory_trim.service import Trimming

    return Trimming(context)


def _trim(scope: ProfileScope, reason: str) -> None:
    from hermes_memory_trim.service import trim

    trim(scope.uuid, reason)
