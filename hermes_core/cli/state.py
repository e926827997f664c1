"""The state database as a command uses it: read beside the gateway, changed through it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hermes_core.cli.streams import one_line
from hermes_core.errors import ControlError, HermesError

if TYPE_CHECKING:
    import peewee as pw

    from hermes_core.cli.invocation import Invocation
    from hermes_core.repair import Action, What

ANSWER_LIMIT = 15.0
"""Seconds that a gateway gets to commit a change: its disk may be slow."""
_EXCERPT = 60


@contextmanager
def reading(invocation: Invocation) -> Iterator[pw.SqliteDatabase]:
    """The profile's database, read-only. Raises StoreError when it is not there or unusable."""
    import sqlite3

    import peewee as pw

    from hermes_core.store.database import cannot_use, open_read_only

    path = invocation.home.database(invocation.profile)
    exists(invocation)
    database = open_read_only(path)
    try:
        yield database
    except (sqlite3.Error, pw.PeeweeException) as error:
        raise cannot_use(path, error) from error
    finally:
        database.close()


def exists(invocation: Invocation) -> bool:
    """Whether the profile has a database: it has none before its first start. Raises ConfigError
    when there is no such profile."""
    from hermes_core.profiles import require_profile

    if invocation.home.database(invocation.profile).exists():
        return True
    require_profile(invocation.home, invocation.profile)
    return False


def change(invocation: Invocation, what: What, action: Action, rows: Sequence[int]) -> list[int]:
    """Change rows by hand: by the gateway when one runs, else alone under the home's lock.

    Returns the sequences that the rows have now. Raises HermesError when the change was refused, or
    when nobody could say whether it was made.
    """
    from hermes_core.supervision.lock import HomeLock, holder

    home = invocation.home
    if holder(home.lock_path) is not None:
        return _ask(invocation, what, action, rows)
    from time import time

    from hermes_core.repair import Change, apply_alone

    with HomeLock(home.lock_path, runs=f"hermes {what} {action}"):
        path = home.database(invocation.profile)
        return list(apply_alone(path, Change(what, action, tuple(rows)), time()).rows)


def _ask(invocation: Invocation, what: What, action: Action, rows: Sequence[int]) -> list[int]:
    from hermes_core.supervision.control import request

    answer = request(
        invocation.home.state_root,
        "repair",
        ANSWER_LIMIT,
        profile=invocation.profile,
        what=what,
        action=action,
        rows=list(rows),
    )
    changed = answer.get("rows")
    if not isinstance(changed, list):
        raise ControlError("the gateway's answer makes no sense")
    return changed


def not_found(what: str, wanted: str, see: str) -> HermesError:
    """The error for an id that names nothing."""
    return HermesError(f"there is no {what} {wanted!r}", remedy=f"see `{see}`")


def ambiguous(wanted: str, candidates: Sequence[str]) -> HermesError:
    """The error for an id that names several things, with the things."""
    lines = "\n".join(f"  {candidate}" for candidate in candidates)
    return HermesError(f"{wanted!r} may be one of these; use the id in front:\n{lines}")


def when(seconds: float) -> str:
    """Local time, for people."""
    return datetime.fromtimestamp(seconds, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def excerpt(text: str, *, erased: bool = False) -> str:
    """How a text begins, on one line; a word in its place when it was `erased` by age."""
    if erased:
        return "(erased)"
    line = one_line(" ".join(text.split()))
    return line if len(line) <= _EXCERPT else f"{line[: _EXCERPT - 1]}…"
