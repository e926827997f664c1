"""The four kinds of hook, as typed values.

A spec is declared once, in `hookspecs.py`, with one of the decorators below::

    @notify(since="1.0")
    def on_turn_end(turn: TurnEnd) -> None: ...

and used as a value: ``hooks.notify(specs.on_turn_end, turn=...)``. The parameters and the result of
the declared function are the types of the call, so a type checker sees a wrong argument or a wrong
kind. An implementation may be plain or ``async def``, and may leave out arguments it does not need.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Spec(Generic[P, R_co]):
    """One extension point. `function` holds the signature and the manual entry (its docstring)."""

    kind: ClassVar[str]

    def __init__(
        self, function: Callable[P, R_co], *, since: str, limit: float | None, closed: bool
    ) -> None:
        self.function = function
        self.name = function.__name__
        self.since = since
        self.limit = limit
        self.closed = closed

    @property
    def doc(self) -> str:
        return self.function.__doc__ or ""

    def __repr__(self) -> str:
        return f"<{self.kind} hook {self.name}>"


class Collect(Spec[P, R_co]):
    """Asked at load and at reload. Plain functions only, no I/O. A failure quarantines the
    plugin."""

    kind = "collect"


class AdapterHook(Spec[P, R_co]):
    """Called on exactly one adapter. A failure is a typed error to the caller."""

    kind = "adapter"


class Decide(Spec[P, R_co]):
    """Asked in order, awaited one by one. A closed spec refuses on failure, an open one passes
    on."""

    kind = "decide"


class Notify(Spec[P, R_co]):
    """Told afterwards, through a bounded queue and one worker per plugin: order kept, path
    untouched."""

    kind = "notify"


def collect(*, since: str) -> Callable[[Callable[P, R]], Collect[P, R]]:
    """Declare a collect hook. `since` is the version of the hook API that brought it."""
    return lambda function: Collect(function, since=since, limit=None, closed=True)


def adapter(
    *, since: str, limit: float | None = 30.0
) -> Callable[[Callable[P, R]], AdapterHook[P, R]]:
    """Declare an adapter hook. `limit` is the time limit of one call in seconds."""
    return lambda function: AdapterHook(function, since=since, limit=limit, closed=True)


def decide(
    *, since: str, closed: bool, limit: float = 10.0
) -> Callable[[Callable[P, R]], Decide[P, R]]:
    """Declare a decide hook. `closed` says what a failure means: refuse (True) or pass on
    (False)."""
    return lambda function: Decide(function, since=since, limit=limit, closed=closed)


def notify(*, since: str, limit: float = 30.0) -> Callable[[Callable[P, R]], Notify[P, R]]:
    """Declare a notify hook. `limit` is the time limit of one implementation in seconds."""
    return lambda function: Notify(function, since=since, limit=limit, closed=False)
