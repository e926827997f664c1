"""Sign and verify: `X-Hermes-Signature-256` over the body, and the Standard Webhooks headers.

The first proves who sent the body; the second binds the delivery id and the time as well, so that a
receiver can refuse replays. A receiver verifies one of them.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping, Sequence

PREFIX = "whsec_"
TOLERANCE = 300.0
"""Seconds that `webhook-timestamp` may be off, to either side."""
_MAX_HEADER = 4096


def sign(
    body: bytes, *, delivery_id: str, timestamp: int, secrets: Sequence[str]
) -> dict[str, str]:
    """The signature headers of a body, one signature for each secret. `timestamp` is in seconds."""
    ours = ", ".join(f"sha256={_hex(secret, body)}" for secret in secrets)
    content = _standard_content(delivery_id, str(timestamp), body)
    standard = " ".join(f"v1,{_base64(secret, content)}" for secret in secrets)
    return {
        "X-Hermes-Signature-256": ours,
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": standard,
    }


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secrets: Sequence[str],
    *,
    now: float | None = None,
    tolerance: float = TOLERANCE,
) -> bool:
    """Whether the headers prove that a holder of one of `secrets` sent `body`. Never raises.

    With Standard Webhooks headers they decide, and the time has to be within `tolerance` seconds of
    `now` (default: the clock); otherwise `X-Hermes-Signature-256` does. Without a secret nothing is
    proved.
    """
    usable = [secret for secret in secrets if secret]
    known = {name.lower(): value for name, value in headers.items() if len(value) <= _MAX_HEADER}
    if not usable:
        return False
    if "webhook-signature" in known:
        clock = time.time() if now is None else now
        return _verify_standard(body, known, usable, clock, tolerance)
    claimed = known.get("x-hermes-signature-256", "").split(",")
    right = [f"sha256={_hex(secret, body)}" for secret in usable]
    return any(_equal(part.strip(), one) for part in claimed for one in right)


def _verify_standard(
    body: bytes, headers: Mapping[str, str], secrets: Sequence[str], now: float, tolerance: float
) -> bool:
    delivery_id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not delivery_id or not (timestamp.isascii() and timestamp.isdigit()):
        return False
    if abs(now - float(timestamp)) > tolerance:
        return False
    content = _standard_content(delivery_id, timestamp, body)
    right = [f"v1,{_base64(secret, content)}" for secret in secrets]
    claimed = headers["webhook-signature"].split(" ")
    return any(_equal(part, one) for part in claimed for one in right)


def standard_key(secret: str) -> bytes:
    """The key of the Standard Webhooks signature: what ``whsec_`` encodes, else the text itself."""
    if secret.startswith(PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


def _standard_content(delivery_id: str, timestamp: str, body: bytes) -> bytes:
    return f"{delivery_id}.{timestamp}.".encode("utf-8", "replace") + body


def _hex(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def _base64(secret: str, content: bytes) -> str:
    digest = hmac.new(standard_key(secret), content, hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode())
