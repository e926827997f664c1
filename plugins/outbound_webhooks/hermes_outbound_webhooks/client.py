"""POST one body to one target: the checked address, the deadline, the bounded answer.

The only module that imports aiohttp; import it where a service starts.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from hermes_outbound_webhooks.addresses import (
    BadAddress,
    check_address,
    check_host,
    literal_address,
)
from hermes_outbound_webhooks.retry import Outcome, judge

if TYPE_CHECKING:
    from hermes_outbound_webhooks.targets import Target

USER_AGENT = "Hermes-Outbound-Webhook"
MAX_ANSWER = 65_536
"""Bytes of an answer that are read before the connection is closed instead of used again."""

_FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}

Lookup = Callable[[str, int], Awaitable[list[str]]]
"""Resolves a name: host and port to addresses as texts. Raises OSError."""


class CheckedResolver(AbstractResolver):
    """Gives aiohttp the addresses of a name, and only if every one of them is allowed.

    aiohttp connects to what is returned here and resolves nothing again, so what was checked is
    what is used.
    """

    def __init__(self, *, allow_private: bool, lookup: Lookup | None = None) -> None:
        self._allow_private = allow_private
        self._looking: asyncio.Future[list[str]] | None = None
        self._lookup = lookup or self._getaddrinfo

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002 - both are looked up
    ) -> list[ResolveResult]:
        found = await self._lookup(host, port)
        results: list[ResolveResult] = []
        for text in dict.fromkeys(found):
            address = literal_address(text)
            if address is None:
                raise OSError(f"{host} does not resolve to an address")
            check_address(address, allow_private=self._allow_private)
            results.append(
                ResolveResult(
                    hostname=host,
                    host=str(address),
                    port=port,
                    family=_FAMILY[address.version],
                    proto=0,
                    flags=socket.AI_NUMERICHOST,
                )
            )
        if not results:
            raise OSError(f"{host} has no address")
        return results

    async def close(self) -> None:
        """Nothing is held: a lookup that hangs is left to its thread."""

    async def _getaddrinfo(self, host: str, port: int) -> list[str]:
        # There is one name: a lookup that outlasted an attempt is the next one's too.
        if self._looking is None or self._looking.done():
            self._looking = _looked_up(host, port)
        return await asyncio.shield(self._looking)


def _looked_up(host: str, port: int) -> asyncio.Future[list[str]]:
    """The addresses of a name, found in a thread that delays nobody: no other target, and not the
    end of the process, which would wait for a thread of a pool. Raises OSError."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[list[str]] = loop.create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())  # may go unheard

    def settle(found: list[str], error: Exception | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(found)
            else:
                future.set_exception(error)

    def look() -> None:
        found: list[str] = []
        error: Exception | None = None
        try:
            entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found = [str(entry[4][0]) for entry in entries]
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, found, error)

    try:
        threading.Thread(target=look, name="hermes-webhook-dns", daemon=True).start()
    except RuntimeError as error:
        raise OSError("no thread can be started") from error
    return future


class Client:
    """The connections to one target."""

    def __init__(
        self,
        target: Target,
        *,
        lookup: Lookup | None = None,
        tls: ssl.SSLContext | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._target = target
        self._wall = wall
        self._url, self._refused = _understood(
            target.settings.url, allow_private=target.settings.allow_private
        )
        proxy = target.settings.proxy
        self._proxy: URL | None = None
        if proxy:
            self._proxy, refused = _understood(proxy, allow_private=True)
            self._refused = self._refused or refused
        # Behind a proxy only the proxy's own address is resolved here, and the operator chose it.
        allow_private = target.settings.allow_private or bool(proxy)
        self._resolver = CheckedResolver(allow_private=allow_private, lookup=lookup)
        if tls is None and "https" in (self._url.scheme, self._proxy and self._proxy.scheme):
            tls = ssl.create_default_context()
        connector = aiohttp.TCPConnector(
            resolver=self._resolver, use_dns_cache=False, limit=0, ssl=tls or True
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=float(target.settings.timeout)),
            trust_env=False,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Outcome:
        """One attempt. Raises nothing; the reason of a failure names no part of the url."""
        if self._refused:
            return Outcome("failed", self._refused)
        try:
            return await self._post(body, headers)
        except TimeoutError:
            return Outcome("retry", "no answer in time")
        except (aiohttp.ClientError, OSError, ValueError, asyncio.IncompleteReadError) as error:
            refused = _bad_address(error)
            if refused is not None:
                return Outcome("failed", str(refused))
            return Outcome("retry", _reason(error))

    async def close(self) -> None:
        await self._session.close()
        await self._resolver.close()

    async def _post(self, body: bytes, headers: Mapping[str, str]) -> Outcome:
        async with self._session.post(
            self._url,
            data=body,
            headers={
                **self._target.headers,
                **headers,
                "Content-Type": "application/json",
                "User-Agent": USER_AGENT,
            },
            allow_redirects=False,
            proxy=self._proxy,
        ) as response:
            await _discard(response)
            retry_after = response.headers.get("Retry-After", "")
            return judge(response.status, retry_after, self._wall())


def _understood(url: str, *, allow_private: bool) -> tuple[URL, str]:
    """The url as aiohttp understands it, and why nothing is sent there, "" for nothing.

    aiohttp asks the resolver about names only, so a literal address has to be judged here."""
    try:
        understood = URL(url)
        check_host(understood.raw_host or "", allow_private=allow_private)
    except BadAddress as error:
        return URL(), str(error)
    except ValueError:  # a host that no name server could have
        return URL(), "the url has no host that can be used"
    return understood, ""


async def _discard(response: aiohttp.ClientResponse) -> None:
    """Read the answer's body up to a bound. It decides nothing: the status came first."""
    left = MAX_ANSWER
    try:
        while chunk := await response.content.read(min(left, 16_384)):
            left -= len(chunk)
            if left <= 0:
                break
        else:
            return
    except (aiohttp.ClientError, TimeoutError, OSError):
        pass
    response.close()


def _bad_address(error: BaseException) -> BadAddress | None:
    """The reason of ours behind what aiohttp raised, if there is one."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, BadAddress):
            return seen
        seen = seen.__cause__ or seen.__context__
    return None


def _reason(error: BaseException) -> str:
    """What went wrong, in words that hold nothing of the url or of what was received."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"the certificate is not trusted: {error.certificate_error.__class__.__name__}"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the name cannot be resolved"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection: {error.os_error.strerror or type(error.os_error).__name__}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "closed without an answer"
    if isinstance(error, OSError):
        return f"the connection failed: {error.strerror or type(error).__name__}"
    return f"the connection failed: {type(error).__name__}"
