"""What an error of the client means for the message that was to be sent."""

from __future__ import annotations

from typing import Literal

import httpx
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    TelegramError,
)

from hermes_core import (
    AccountFailed,
    OutcomeUnknown,
    RateLimited,
    SendError,
    SendFailed,
    SendRejected,
)
from hermes_telegram.client import Flood, NotBotApi

NEVER_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
    httpx.UnsupportedProtocol,
)
"""Failures from before the request was written."""

_REFUSALS: tuple[tuple[str, Literal["too_long", "not_found", "forbidden", "bad_format"]], ...] = (
    ("too long", "too_long"),
    ("entit", "bad_format"),
    ("too_long", "too_long"),
    ("chat not found", "not_found"),
    ("peer_id_invalid", "not_found"),
    ("to edit not found", "not_found"),
    ("can't be edited", "not_found"),
    ("message_id_invalid", "not_found"),
    ("to delete not found", "not_found"),
    ("not enough rights", "forbidden"),
    ("have no rights", "forbidden"),
    ("_forbidden", "forbidden"),
    ("need administrator rights", "forbidden"),
    ("chat_admin_required", "forbidden"),
    ("chat_restricted", "forbidden"),
    ("topic_closed", "forbidden"),
)
"""Parts of descriptions, in lower case: the Bot API has no codes for them."""
_UNFIT = ("photo_", "image_process_failed", "video_", "audio_", "voice_messages_forbidden")


def translate(error: Exception) -> SendError:
    """The error of the contract that says the same as `error`. It holds no part of a URL."""
    if isinstance(error, Flood):
        return RateLimited(error.seconds)
    if isinstance(error, NotBotApi):
        return OutcomeUnknown(str(error))
    if isinstance(error, InvalidToken):
        return AccountFailed(
            "the Bot API does not know this token",
            remedy="ask @BotFather for the token, or correct base_url",
        )
    if isinstance(error, ChatMigrated | Forbidden | BadRequest):
        return _refusal(error)
    if isinstance(error, Conflict):
        return SendFailed(str(error))
    return _network(error)


def _refusal(error: ChatMigrated | Forbidden | BadRequest) -> SendRejected:
    if isinstance(error, Forbidden):
        return SendRejected(str(error), kind="forbidden")
    if isinstance(error, ChatMigrated):
        return SendRejected(f"the group has moved to {error.new_chat_id}", kind="not_found")
    text = str(error).lower()
    for part, kind in _REFUSALS:
        if part in text:
            return SendRejected(str(error), kind=kind)
    return SendRejected(str(error))


def _network(error: Exception) -> SendError:
    cause = error.__cause__
    if isinstance(cause, NEVER_SENT):
        return SendFailed(f"no connection: {type(cause).__name__}")
    if isinstance(error, NetworkError) and cause is None:
        return SendFailed(str(error))  # the server's own words: it has not done it
    if isinstance(error, TelegramError):
        return OutcomeUnknown(f"no answer: {type(cause or error).__name__}")
    return OutcomeUnknown(f"no answer: {type(error).__name__}")


def is_unchanged(error: Exception) -> bool:
    """An edit to what the message says already."""
    return isinstance(error, BadRequest) and "not modified" in str(error).lower()


def is_thread_gone(error: Exception) -> bool:
    """The topic was deleted, or never was one."""
    text = str(error).lower()
    return isinstance(error, BadRequest) and (
        "thread not found" in text or "topic_deleted" in text or "topic_closed" in text
    )


def is_bad_format(error: Exception) -> bool:
    """The entities were refused, not the text."""
    return isinstance(error, BadRequest) and "entit" in str(error).lower()


def is_unfit(error: Exception) -> bool:
    """A file cannot be shown as what it is: a picture with odd sides, a voice message to somebody
    who wants none. It may still be sent as a document."""
    text = str(error).lower()
    return isinstance(error, BadRequest) and any(part in text for part in _UNFIT)
