"""Pairing: a stranger gets a code in a direct chat, and the operator approves the code.

The one exception to "nothing is answered before the grant", off unless an account turns it on. A
code is given once an hour to a sender, to a few senders of an account at a time, and is kept as a
digest. Wrong codes lock approvals out for an hour.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from hermes_core.errors import ControlError
from hermes_core.messages import Address, Inbound, Message, encode
from hermes_core.store import pairings
from hermes_core.text import clean

if TYPE_CHECKING:
    import asyncio

    from hermes_core.policy import AccessList
    from hermes_core.store import Store, Tx

ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
"""32 symbols that are not taken for one another: no 0 and O, no 1 and I."""
CODE_LENGTH = 8
LIFETIME = 3600.0
"""Seconds that a code is good for, and in which a sender gets no second one."""
MAX_OPEN = 5
"""Codes of one account that are good at the same time."""
FULL_PAUSE = 60.0
"""Seconds until a sender who got none may ask again."""
MAX_FAILURES = 5
"""Wrong codes in `LOCK_OUT` seconds after which none is looked at."""
LOCK_OUT = 3600.0
_MAX_ASKED = 1000
_MAX_TEXT = 200


class PairingBook:
    """Who was paired, for one profile. The database has it; the memory answers the gate."""

    def __init__(self, store: Store, wall: Callable[[], float]) -> None:
        self._store = store
        self._wall = wall
        self._granted: set[tuple[str, str]] = set()
        self._asked: OrderedDict[tuple[str, str], float] = OrderedDict()

    async def load(self) -> None:
        """Learn what the database says."""
        rows = await self._store.write(pairings.approved)
        self._granted = {(account, sender_id) for account, sender_id, _, _ in rows}

    def has(self, account: str, sender_id: str) -> bool:
        """Whether a sender was approved on an account."""
        return (account, sender_id) in self._granted

    def request(
        self, event: Inbound, access: AccessList, tell: Callable[[str], None]
    ) -> asyncio.Future[bool] | None:
        """Give a stranger a code, if this is the place and the time for one.

        `tell` is called with the text for the sender once the code is committed. The future says
        whether one was given; None when nothing is written at all.
        """
        if not (access.pairing and isinstance(event, Message) and event.address.kind == "dm"):
            return None
        sender_id = access.normalize(event.sender.id)
        key, now = (access.account, sender_id), self._wall()
        if event.sender.is_bot or now < self._asked.get(key, float("-inf")):
            return None
        self._asked[key] = now + LIFETIME
        self._asked.move_to_end(key)
        if len(self._asked) > _MAX_ASKED:
            self._asked.popitem(last=False)
        code = "".join(secrets.choice(ALPHABET) for _ in range(CODE_LENGTH))
        salt = secrets.token_bytes(16)
        request = pairings.Request(
            access.account,
            sender_id,
            clean(event.sender.name[:_MAX_TEXT]),
            encode(event.address),
            salt,
            _digest(salt, code),
            now,
            now + LIFETIME,
        )

        def committed(given: bool) -> None:
            if given:
                tell(_offer(access.account, code))
            elif key in self._asked:
                self._asked[key] = now + FULL_PAUSE

        return self._store.write(lambda tx: pairings.add_request(tx, request, MAX_OPEN), committed)

    async def approve(self, account: str, code: str) -> pairings.Request:
        """Let the sender in who was given this code. Raises ControlError when there is none."""
        now = self._wall()

        def committed(found: pairings.Request | str) -> None:
            if not isinstance(found, str):
                self._granted.add((found.account, found.sender_id))

        found = await self._store.write(lambda tx: approve(tx, account, code, now), committed)
        if isinstance(found, str):
            raise ControlError(found, where=account)
        return found

    async def revoke(self, account: str, sender_id: str) -> bool:
        """Take back an approval, or a code. False when there is none. In force at once."""
        key = (account, sender_id)

        def committed(_: bool) -> None:
            self._granted.discard(key)
            self._asked.pop(key, None)

        return await self._store.write(
            lambda tx: pairings.revoke(tx, account, sender_id), committed
        )


def approve(tx: Tx, account: str, code: str, now: float) -> pairings.Request | str:
    """The request that was approved, or why none was. A wrong code is counted."""
    if len(pairings.failures(tx, account, now - LOCK_OUT)) >= MAX_FAILURES:
        return "too many wrong codes: approvals are locked for an hour"
    wanted = "".join(code.split()).replace("-", "").upper()
    for request in pairings.open_requests(tx, account, now):
        if hmac.compare_digest(_digest(request.salt, wanted), request.digest):
            pairings.approve(tx, request, now)
            return request
    pairings.fail(tx, account, now)
    return "no code like this is good: it is wrong, used, or more than an hour old"


def listing(tx: Tx, now: float) -> dict[str, list[dict[str, object]]]:
    """Who was approved and who waits with a code, as plain values."""
    names = ("account", "user", "name")
    return {
        "approved": [
            dict(zip((*names, "approved_at"), row, strict=True)) for row in pairings.approved(tx)
        ],
        "waiting": [
            dict(zip((*names, "expires_at"), row, strict=True))
            for row in pairings.requests(tx, now)
        ],
    }


def address_of(request: pairings.Request) -> Address:
    """Where the sender of a request is."""
    return msgspec.json.decode(request.address, type=Address)


def _digest(salt: bytes, code: str) -> bytes:
    return hashlib.sha256(salt + code.encode()).digest()


def _offer(account: str, code: str) -> str:
    half = CODE_LENGTH // 2
    return (
        f"I do not know you yet. Your code is {code[:half]}-{code[half:]}, good for an hour. The"
        f" operator lets you in with: hermes pairing approve {account} {code}"
    )
