"""What a relay may do to a client."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Faults:
    """Set these while a test runs; they hold for what happens afterwards.

    `deaf`: nothing is answered, not even a ping, though the sockets stay open. `refuse`: new
    connections get HTTP 503. `rate_limited`: so many EVENT frames are dropped with a NOTICE only.
    `unanswered`: so many EVENT frames are stored, but get no OK. `lost`: so many EVENT frames are
    stored, and then the socket is cut. `late_targets`: so many replies, edits and reactions are
    refused because their target is not there yet. `closed_requests`: channels whose next REQ is
    answered by CLOSED with that reason. `clock`: seconds by which the relay's clock is ahead.
    `silent_auth`: AUTH gets no OK. `empty_ids`: refusals name no event. `no_bridge`: no HTTP.
    `auth_reason`: every AUTH is refused with it. `hang_ups`: so many connections end before
    anything is said. `closed_news`: so many requests for news about membership are closed with a
    passing reason. `dead`: so many live events are not given to anybody. `lookups`: so many
    requests by id are closed with a passing reason. `no_queries`: queries over HTTP get a 429.
    """

    deaf: bool = False
    refuse: bool = False
    rate_limited: int = 0
    retry_in: str = "retry in 0s"
    unanswered: int = 0
    lost: int = 0
    late_targets: int = 0
    closed_requests: dict[str, str] = field(default_factory=dict)
    clock: float = 0.0
    silent_auth: bool = False
    empty_ids: bool = False
    no_bridge: bool = False
    auth_reason: str = ""
    hang_ups: int = 0
    closed_news: int = 0
    dead: int = 0
    lookups: int = 0
    no_queries: bool = False

    def spend(self, name: str) -> bool:
        """Use one of a counted fault; False when there is none left."""
        count: int = getattr(self, name)
        if count:
            setattr(self, name, count - 1)
        return count > 0
