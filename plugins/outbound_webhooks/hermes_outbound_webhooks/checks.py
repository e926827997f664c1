"""What `hermes doctor` looks at: whether each target is one that something can be sent to."""

from __future__ import annotations

from functools import partial

from hermes_core import Check, Finding, ProfileScope
from hermes_outbound_webhooks.targets import Target, targets_of


def checks(scope: ProfileScope) -> list[Check]:
    """One for each target of a profile."""
    return [Check(f"webhook {each.name}", partial(_target, each)) for each in targets_of(scope)]


def _target(target: Target) -> Finding:
    if target.refused:
        return Finding("failed", f"nothing is sent to it: {target.refused}", "set the secret")
    if target.notes:
        remedy = "fine on your own machine; otherwise see the README of the plugin"
        return Finding("warning", "; ".join(target.notes), remedy)
    return Finding("ok", target.line())
