"""The Bot API client: the library's `Bot`, with our own requests and without its updater.

Its updater acknowledges updates before anybody has processed them, and so is not used.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import re
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import msgspec
from telegram import Bot
from telegram.error import BadRequest, TelegramError
from telegram.request import BaseRequest, HTTPXRequest, RequestData

from hermes_core import AccountFailed
from hermes_telegram.settings import TelegramSettings
from hermes_telegram.wire import UPDATE_KINDS, Update, decode_answer

CONNECT_TIMEOUT = 10.0
READ_TIMEOUT = 15.0
"""Below the 30 seconds that `connect` has, which asks two or three questions."""
UPLOAD_TIMEOUT = 45.0
"""Below the 60 seconds that `send` has."""
CONNECTIONS = 64
_TOKEN = re.compile(r"[!-.0-~]+")
"""Anything visible but a slash; more is for the server to judge."""
_Default = BaseRequest.DEFAULT_NONE
_SOMEWHERE = {"id": 0, "type": "private"}


class NotBotApi(TelegramError):
    """An answer came, but not from a Bot API server: a gateway's error page, say. Nothing of it is
    kept: such pages repeat the address, and that has the token in it."""


class Flood(TelegramError):
    """Telegram wants a pause of `seconds`.

    The library's own error for it warns on every use about a coming change of its type.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(f"flood control for {seconds:g} s")
        self.seconds = seconds


class _Parameters(msgspec.Struct, frozen=True):
    migrate_to_chat_id: int | None = None
    retry_after: float | None = None


class _Refusal(msgspec.Struct, frozen=True):
    """What a Bot API server says when it does not do something."""

    ok: Literal[False]
    description: str
    parameters: _Parameters | None = None


_refusals = msgspec.json.Decoder(_Refusal)


class Request(HTTPXRequest):
    """Sends requests; says what a bad answer was, without printing it."""

    async def do_request(  # noqa: PLR0917 - the signature is the library's
        self,
        url: str,
        method: str,
        request_data: RequestData | None = None,
        read_timeout: Any = _Default,
        write_timeout: Any = _Default,
        connect_timeout: Any = _Default,
        pool_timeout: Any = _Default,
    ) -> tuple[int, bytes]:
        code, payload = await super().do_request(
            url, method, request_data, read_timeout, write_timeout, connect_timeout, pool_timeout
        )
        if code == httpx.codes.TOO_MANY_REQUESTS:
            raise Flood(_retry_after(payload))
        if code == httpx.codes.REQUEST_ENTITY_TOO_LARGE:
            raise BadRequest("too long for the server, or for a proxy before it")
        if code != httpx.codes.OK:
            _require_refusal(code, payload)
        return code, payload

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        """The answer as an object. The library would log one that is none, whatever it holds."""
        try:
            answer = msgspec.json.decode(payload)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or "ok" not in answer:
            raise NotBotApi("the answer is not one of a Bot API server")
        if answer["ok"] is not False and "result" not in answer:
            raise NotBotApi("the answer has no result")
        result = answer.get("result")
        if isinstance(result, dict) and isinstance(result.get("message_id"), int):
            # Of what was sent only the id is wanted. An odd shape of the rest would make a failure
            # of what was done.
            answer["result"] = {"message_id": result["message_id"], "date": 0, "chat": _SOMEWHERE}
        return answer


class _UpdatesRequest(Request):
    """Keeps the body of an answer for ourselves and shows the library an empty one."""

    body = b""

    async def do_request(self, *args: Any, **kwargs: Any) -> tuple[int, bytes]:
        code, payload = await super().do_request(*args, **kwargs)
        if code != httpx.codes.OK:
            return code, payload
        self.body = payload
        return code, b'{"ok":true,"result":[]}'


class Client:
    """One bot's connections: `bot` for calls, `files` for downloads, `updates` for the one question
    that stays open."""

    def __init__(self, settings: TelegramSettings) -> None:
        """Raises AccountFailed for settings that can never work."""
        token = settings.token.reveal()
        if not _TOKEN.fullmatch(token):
            raise AccountFailed("the token is empty or has characters that no token has")
        _quieten()
        root, proxy = _root(settings), _proxy(settings)
        # One for all connections: to read the certificates takes a tenth of a second.
        shared = {"verify": httpx.create_ssl_context()}
        self._updates = _UpdatesRequest(
            connection_pool_size=1,
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            proxy=proxy,
            httpx_kwargs=shared,
        )
        self._calls = Request(
            connection_pool_size=CONNECTIONS,
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=READ_TIMEOUT,
            write_timeout=READ_TIMEOUT,
            media_write_timeout=UPLOAD_TIMEOUT,
            pool_timeout=READ_TIMEOUT,
            proxy=proxy,
            httpx_kwargs=shared,
        )
        self.bot = Bot(
            token,
            base_url=f"{root}/bot",
            base_file_url=f"{root}/file/bot",
            request=self._calls,
            get_updates_request=self._updates,
        )
        self.files = httpx.AsyncClient(
            proxy=proxy,
            verify=shared["verify"],
            timeout=httpx.Timeout(READ_TIMEOUT, connect=CONNECT_TIMEOUT),
            headers={"Accept-Encoding": "identity"},
        )

    async def updates(
        self, offset: int | None, timeout: int, limit: int | None = None
    ) -> Sequence[Update]:
        """Ask for updates; Telegram waits up to `timeout` seconds for the first one.

        One question at a time. Everything below `offset` is confirmed by it, and gone. Raises
        TelegramError.
        """
        await self.bot.get_updates(
            offset=offset, timeout=timeout, limit=limit, allowed_updates=UPDATE_KINDS
        )
        try:
            return decode_answer(self._updates.body)
        except ValueError as error:
            raise NotBotApi("the answer is not a list of updates") from error

    async def renew_updates(self) -> None:
        """Give up the connection that questions are asked on; the next one makes another."""
        await self._updates.shutdown()
        await self._updates.initialize()

    async def close(self) -> None:
        """Close every connection."""
        await asyncio.gather(self._updates.shutdown(), self._calls.shutdown(), self.files.aclose())


def _require_refusal(code: int, payload: bytes) -> None:
    try:
        _refusals.decode(payload)
    except (ValueError, RecursionError):
        raise NotBotApi(f"HTTP {code}, and not from a Bot API server") from None


def _retry_after(payload: bytes) -> float:
    """The pause that a 429 names; a second if it does not (a proxy's own limit, say)."""
    try:
        parameters = _refusals.decode(payload).parameters
    except (ValueError, RecursionError):
        return 1.0
    seconds = None if parameters is None else parameters.retry_after
    return 1.0 if seconds is None else min(max(seconds, 0.0), 86_400.0)


def _root(settings: TelegramSettings) -> str:
    try:
        parts = urlsplit(settings.base_url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        usable = False
    if not usable:
        raise AccountFailed("base_url is not the address of a Bot API server")
    return settings.base_url.rstrip("/")


def _proxy(settings: TelegramSettings) -> httpx.Proxy | None:
    if not settings.proxy:
        return None
    auth = None
    if settings.proxy_auth is not None:
        user, _, password = settings.proxy_auth.reveal().partition(":")
        auth = (user, password)
    try:
        proxy = httpx.Proxy(settings.proxy, auth=auth)
    except (ValueError, httpx.InvalidURL) as error:
        raise AccountFailed("proxy is not the address of a proxy") from error
    if not proxy.url.host:
        raise AccountFailed("proxy is not the address of a proxy")
    if proxy.url.scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
        raise AccountFailed(
            "what speaks SOCKS is not installed",
            remedy="pip install 'python-telegram-bot[socks]'",
        )
    return proxy


def _quieten() -> None:
    """URLs of the Bot API hold the token, and these libraries log them below WARNING."""
    for name in ("httpx", "httpcore", "telegram"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
