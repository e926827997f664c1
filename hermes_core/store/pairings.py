"""Operations on pairings: codes that were given out, and who was approved by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hermes_core.store.database import Tx


@dataclass(frozen=True, slots=True)
class Request:
    """A code that was given to a sender. The code itself is not kept, only its digest."""

    account: str
    sender_id: str
    sender_name: str
    address: bytes
    salt: bytes
    digest: bytes
    created_at: float
    expires_at: float


_REQUEST = "account, sender_id, sender_name, address, salt, digest, created_at, expires_at"


def open_requests(tx: Tx, account: str, now: float) -> list[Request]:
    """The requests whose codes are good, oldest first. Those that are not are deleted."""
    tx.execute("DELETE FROM pairing_request WHERE expires_at <= ?", (now,))
    rows = tx.execute(
        f"SELECT {_REQUEST} FROM pairing_request WHERE account = ? ORDER BY created_at",  # noqa: S608
        (account,),
    ).fetchall()
    return [Request(*row) for row in rows]


def add_request(tx: Tx, request: Request, limit: int) -> bool:
    """Keep a request. False when its sender has one already, or the account has `limit` of them."""
    waiting = open_requests(tx, request.account, request.created_at)
    if len(waiting) >= limit or any(one.sender_id == request.sender_id for one in waiting):
        return False
    values = tuple(getattr(request, name) for name in _REQUEST.split(", "))
    tx.execute(
        f"INSERT INTO pairing_request ({_REQUEST}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
        values,
    )
    return True


def approve(tx: Tx, request: Request, now: float) -> None:
    """The sender of a request may speak from now on."""
    key = (request.account, request.sender_id)
    tx.execute("DELETE FROM pairing_request WHERE account = ? AND sender_id = ?", key)
    tx.execute("DELETE FROM pairing_failure WHERE account = ?", (request.account,))
    tx.execute(
        "INSERT INTO pairing (account, sender_id, sender_name, approved_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (account, sender_id) DO UPDATE SET approved_at = excluded.approved_at",
        (*key, request.sender_name, now),
    )


def revoke(tx: Tx, account: str, sender_id: str) -> bool:
    """Take an approval, or a code that was given out, back. False when there is none."""
    gone = 0
    for table in ("pairing", "pairing_request"):
        gone += tx.execute(
            f"DELETE FROM {table} WHERE account = ? AND sender_id = ?",  # noqa: S608
            (account, sender_id),
        ).rowcount
    return gone > 0


def approved(tx: Tx) -> list[tuple[str, str, str, float]]:
    """Who was approved: account, sender id, name, time."""
    return tx.execute(
        "SELECT account, sender_id, sender_name, approved_at FROM pairing"
        " ORDER BY account, approved_at"
    ).fetchall()


def requests(tx: Tx, now: float) -> list[tuple[str, str, str, float]]:
    """Who waits with a code: account, sender id, name, when the code expires."""
    return tx.execute(
        "SELECT account, sender_id, sender_name, expires_at FROM pairing_request"
        " WHERE expires_at > ? ORDER BY account, created_at",
        (now,),
    ).fetchall()


def failures(tx: Tx, account: str, since: float) -> Sequence[float]:
    """When wrong codes were tried, since a time. Older ones are deleted."""
    tx.execute("DELETE FROM pairing_failure WHERE tried_at <= ?", (since,))
    rows = tx.execute(
        "SELECT tried_at FROM pairing_failure WHERE account = ? ORDER BY tried_at", (account,)
    ).fetchall()
    return [tried_at for (tried_at,) in rows]


def fail(tx: Tx, account: str, now: float) -> None:
    """A wrong code was tried."""
    tx.execute("INSERT INTO pairing_failure (account, tried_at) VALUES (?, ?)", (account, now))
