"""What `hermes doctor` looks at: a check has a name and finds something out when it is run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warning", "failed"]


@dataclass(frozen=True)
class Finding:
    """What a check found out. Holds no secret.

    ``failed`` is what keeps Hermes, or a part of it, from working; `remedy` says what a person can
    do about it. ``warning`` is what may be meant.
    """

    verdict: Verdict
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Check:
    """Something to look at. `run` may read files and ask the network; it changes nothing, ends by
    itself, and may raise: a HermesError counts as failed, with its text and remedy."""

    name: str
    run: Callable[[], Finding]
