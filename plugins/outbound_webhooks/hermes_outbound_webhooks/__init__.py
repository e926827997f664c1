"""Outbound webhooks: other systems learn what Hermes does.

The hooks of this module only queue. Everything heavy is imported when the service starts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from hermes_core import NOTIFY_HOOKS, ProfileScope, hookimpl
from hermes_outbound_webhooks.names import EVENTS

if TYPE_CHECKING:
    from hermes_core import (
        Check,
        Description,
        RunningService,
        Schema,
        Section,
        Service,
        ServiceContext,
    )

SERVICE = "webhooks"


@hookimpl
def settings() -> list[Section]:
    """``[[hooks.outbound]]``."""
    from hermes_core import Section, TableArray
    from hermes_outbound_webhooks.targets import SECTION, TargetSettings

    return [Section(SECTION, TableArray(TargetSettings))]


@hookimpl
def models() -> list[Schema]:
    """The deliveries of durable targets."""
    from hermes_outbound_webhooks.schema import SCHEMA

    return [SCHEMA]


@hookimpl
def services() -> list[Service]:
    """The emitter of each profile."""
    from hermes_core import Service

    return [Service(SERVICE, _service)]


@hookimpl
def describe(scope: ProfileScope) -> list[Description]:
    """The targets, each with what `hermes hooks list` says of it."""
    from hermes_core import Description
    from hermes_outbound_webhooks.targets import targets_of

    return [
        Description(target.name, tuple(target.events), target.line())
        for target in targets_of(scope)
    ]


@hookimpl
def on_housekeeping(scope: ProfileScope) -> None:
    """Let go of deliveries that are too old."""
    from hermes_outbound_webhooks.service import keep_house

    keep_house(scope.uuid)


@hookimpl
def doctor_checks(scope: ProfileScope) -> list[Check]:
    """Look whether something can be sent to every target."""
    from hermes_outbound_webhooks.checks import checks

    return checks(scope)


def _service(context: ServiceContext) -> RunningService:
    from hermes_outbound_webhooks.service import Webhooks

    return Webhooks(context)


def _observer(hook: str) -> Callable[..., None]:
    """An implementation of a notify hook, with the arguments of its spec."""

    def observe(**values: object) -> None:
        from hermes_outbound_webhooks.service import tell

        tell(hook, values)

    signature = inspect.signature(NOTIFY_HOOKS[hook])
    observe.__signature__ = signature  # type: ignore[attr-defined]
    observe.__name__ = hook
    observe.__doc__ = f"Queue `{hook}` for the targets that want it."
    return observe


# The same hooks as everybody's, one for each event that a target may ask for.
globals().update({hook: hookimpl(_observer(hook)) for hook in EVENTS})
