"""Which session an event belongs to: one pure function, used by everybody.

The key is ``agent:<profile>:<platform>:<kind>:<chat>[:<thread>][:<user>]`` where the default
profile is written ``main``, a non-default account ``<platform>.<account>``, and ``:`` and ``%``
inside a part are escaped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from hermes_core.messages import Address

Sharing = Literal["per_user", "shared"]


@dataclass(frozen=True)
class SessionPolicy:
    """Who shares a session: the people of a group, and the people of a thread."""

    group: Sharing = "per_user"
    thread: Sharing = "shared"


def session_key(profile: str, address: Address, user_id: str, policy: SessionPolicy) -> str:
    """The key of the session that `user_id` speaks to at `address`.

    A thread of a group is of kind ``thread``, so that a thread and a person with equal ids never
    share a key.
    """
    threaded = address.thread_id is not None
    kind = "thread" if threaded and address.kind != "dm" else address.kind
    parts = _chat_parts(profile, address.account_key, kind, address.chat_id)
    if address.thread_id is not None:
        parts.append(address.thread_id)
    if kind != "dm" and (policy.thread if kind == "thread" else policy.group) == "per_user":
        parts.append(user_id)
    return ":".join(map(_escaped, parts))


def chat_prefixes(profile: str, account: str, chat_id: str) -> tuple[str, ...]:
    """What the keys of a chat that many people share begin with. Each is a key, or the beginning of
    keys that go on with a colon; ``account`` is the account's key."""
    return tuple(
        ":".join(map(_escaped, _chat_parts(profile, account, kind, chat_id)))
        for kind in ("group", "channel", "thread")
    )


def _chat_parts(profile: str, account: str, kind: str, chat_id: str) -> list[str]:
    return ["agent", "main" if profile == "default" else profile, account, kind, chat_id]


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")


def idle_limit(
    reset: Literal["none", "idle", "daily"], idle: float, hour: int
) -> Callable[[float], tuple[float, str] | None]:
    """When a session is over by its age: a function of the time now.

    It gives the time since when a session must have been idle to be over, and the reason to note;
    None when sessions do not age. `idle` is in seconds; `hour` is an hour of the local day.
    """

    def since(now: float) -> tuple[float, str] | None:
        if reset == "idle":
            return now - idle, "idle"
        if reset == "daily":
            return _last(hour, now), "daily"
        return None

    return since


def _last(hour: int, now: float) -> float:
    """When it last was that hour of the local day, whatever the clocks were set to since."""
    local = datetime.fromtimestamp(now).astimezone()
    boundary = local.replace(hour=hour, minute=0, second=0, microsecond=0, tzinfo=None)
    if boundary.astimezone() > local:
        boundary -= timedelta(days=1)
    return boundary.astimezone().timestamp()
