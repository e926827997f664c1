"""Text from outside, made safe to store."""

from __future__ import annotations

from typing import Any

import msgspec

from hermes_core.messages import Inbound, encode

REPLACEMENT = "\ufffd"


def clean(text: str) -> str:
    """`text` without NUL and lone surrogates, which databases refuse; each becomes U+FFFD."""
    text = text.replace("\x00", REPLACEMENT)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def has_clean_ids(event: Inbound) -> bool:
    """Whether every id in `event` can be stored as it is. Ids are compared: a repaired one could be
    somebody else's."""
    address = event.address
    ids = (address.chat_id, address.thread_id or "", event.sender.id, event.event_id)
    return all(clean(name) == name for name in (*ids, event.message_id))


def encode_clean(event: Inbound) -> bytes:
    """`event` as stored JSON, with every text in it cleaned."""
    try:
        payload = encode(event)
    except UnicodeEncodeError:
        payload = b"\\u0000"
    if b"\\u0000" not in payload:
        return payload
    return encode(_cleaned(msgspec.to_builtins(event)))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {key: _cleaned(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in value]
    return value
