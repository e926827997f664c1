"""The relay over HTTP: what it says about itself, queries, and files."""

from __future__ import annotations

import base64
import logging
import re
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, BinaryIO

import aiohttp
import msgspec

from hermes_buzz.events import Draft, Event, Kind, read_event
from hermes_buzz.pacing import retry_after
from hermes_buzz.subscriptions import Filter
from hermes_buzz.trouble import RelayError, clock_remedy, skew_from
from hermes_core import RateLimited, SendFailed, SendRejected

if TYPE_CHECKING:
    from hermes_buzz.keys import Signer
    from hermes_buzz.ownership import OwnerTag

log = logging.getLogger(__name__)

INFO_LIMIT = aiohttp.ClientTimeout(total=5)
LIMIT = aiohttp.ClientTimeout(total=15)
FILE_LIMIT = aiohttp.ClientTimeout(total=120, sock_read=30)
MAX_ANSWER = 32 << 20
"""Bytes of an answer to a query: 200 events of 64 KiB, and the tags."""
MAX_FILE = 20 << 20
"""Bytes of a file that is fetched."""
_ABSENT = (404, 405, 501)
_TOO_LARGE, _TOO_MANY, _SERVER = 413, 429, 500
_MEDIA = r"/media/(?P<sha256>[0-9a-f]{64})(?:\.[A-Za-z0-9]{1,10})?"
_MEDIA_PATH = re.compile(_MEDIA, re.ASCII)


class RelayInfo(msgspec.Struct, frozen=True):
    """What the relay says about itself (NIP-11), as far as it is used."""

    self: str = ""
    limitation: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def auth_required(self) -> bool:
        return self.limitation.get("auth_required") is True


class Blob(msgspec.Struct, frozen=True):
    """A file as the relay has it (Blossom)."""

    url: str
    sha256: str = ""
    size: int = 0
    type: str = ""
    mime: str = ""
    """The same as `type`; relays differ."""
    dim: str = ""


class Bridge:
    """The HTTP side of one relay. `skew` is by how much this machine's clock is behind."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        *,
        url: str,
        signer: Signer,
        owner: OwnerTag | None,
        wall: Callable[[], float],
    ) -> None:
        self._http = http
        self._url = url
        self._signer = signer
        self._owner = owner
        self._wall = wall
        self.skew: float | None = None
        self.absent = False
        """The relay has no such bridge, or it does not answer: ask over the socket."""

    async def info(self) -> RelayInfo:
        """The relay's own description; an empty one when it has none."""
        headers = {"Accept": "application/nostr+json"}
        try:
            async with self._request("GET", "/", headers=headers, timeout=INFO_LIMIT) as response:
                return msgspec.json.decode(await _body(response, 1 << 20), type=RelayInfo)
        except (RelayError, msgspec.DecodeError, UnicodeDecodeError):
            return RelayInfo()

    async def query(self, filters: Sequence[Filter]) -> list[Event]:
        """Authentic stored events. Raises RelayError; sets `absent` when there is no bridge."""
        body = msgspec.json.encode(filters)
        headers = self._authorization("POST", f"{self._url}/query", body)
        async with self._request("POST", "/query", headers=headers, data=body) as response:
            if response.status in _ABSENT:
                self.absent = True
                raise RelayError("the relay has no HTTP bridge", where=self._url)
            content = await _body(response, MAX_ANSWER)
            if response.status != 200:  # noqa: PLR2004
                raise self._refusal(response.status, content)
        try:
            raw = msgspec.json.decode(content, type=list[msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise RelayError("the answer to a query makes no sense", where=self._url) from None
        return [event for event in map(read_event, raw) if event is not None]

    async def upload(self, content: bytes, media_type: str) -> Blob:
        """Store a file. The same bytes again are the same file. Raises SendError."""
        digest = sha256(content).hexdigest()
        headers = {
            "Authorization": self._file_authorization("upload", digest),
            "X-SHA-256": digest,
            "Content-Type": media_type,
            **self._owner_header(Kind.UPLOAD_AUTH),
        }
        for path in ("/upload", "/media/upload"):
            try:
                async with self._request(
                    "PUT", path, headers=headers, data=content, timeout=FILE_LIMIT
                ) as response:
                    answer = await _body(response, 1 << 20)
            except RelayError as error:
                raise SendFailed(error.what, where=error.where) from error
            if response.status not in _ABSENT:
                blob = self._stored(response.status, answer, digest)
                found = blob.type or blob.mime or media_type
                return msgspec.structs.replace(
                    blob, type=found, sha256=digest, size=blob.size or len(content)
                )
        raise SendRejected("the relay takes no files", where=self._url)

    async def download(self, url: str, target: BinaryIO, limit: int = MAX_FILE) -> None:
        """Write the file at `url` to `target`. Raises RelayError, also when it was written and is
        not the file that the address names."""
        digest = media_hash(url, self._url)
        if not digest:
            raise RelayError("not a file of this relay", where=self._url)
        headers = {
            "Authorization": self._file_authorization("get", digest),
            **self._owner_header(Kind.UPLOAD_AUTH),
        }
        path = url.removeprefix(self._url)
        async with self._request("GET", path, headers=headers, timeout=FILE_LIMIT) as response:
            if response.status != 200:  # noqa: PLR2004
                raise self._refusal(response.status, b"")
            found = await _copy(response, target, min(limit, MAX_FILE))
        if found != digest:
            raise RelayError("the file is not the one that was described", where=self._url)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        data: bytes | None = None,
        timeout: aiohttp.ClientTimeout = LIMIT,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request, no redirects: what belongs to this relay goes nowhere else."""
        try:
            async with self._http.request(
                method,
                self._url + path,
                headers=headers,
                data=data,
                timeout=timeout,
                allow_redirects=False,
            ) as response:
                skew = skew_from(response.headers.get("Date"), self._wall())
                self.skew = self.skew if skew is None else skew
                yield response
        except aiohttp.ServerDisconnectedError:
            self.absent = True
            raise RelayError("the relay does not answer over HTTP", where=self._url) from None
        except TimeoutError:
            self.absent = True
            raise RelayError("the relay does not answer in time", where=self._url) from None
        except (aiohttp.ClientError, OSError) as error:
            self.absent = True
            raise RelayError(f"the request failed: {error!r}", where=self._url) from None

    def _authorization(self, method: str, url: str, body: bytes) -> dict[str, str]:
        """NIP-98. The nonce keeps two equal requests of one second apart."""
        tags = (
            ("u", url),
            ("method", method),
            ("nonce", secrets.token_hex(16)),
            ("payload", sha256(body).hexdigest()),
        )
        draft = Draft(kind=Kind.HTTP_AUTH, created_at=int(self._wall()), tags=tags)
        event = draft.signed(self._signer).as_json()
        token = base64.b64encode(event.encode()).decode()
        return {
            "Authorization": f"Nostr {token}",
            "Content-Type": "application/json",
            **self._owner_header(Kind.HTTP_AUTH),
        }

    def _file_authorization(self, verb: str, digest: str) -> str:
        """Blossom, in the form that the strict servers want: good for a minute, for one server."""
        now = int(self._wall())
        tags = (
            ("t", verb),
            ("x", digest),
            ("expiration", str(now + 60)),
            ("server", self._url.partition("://")[2]),
        )
        draft = Draft(kind=Kind.UPLOAD_AUTH, created_at=now, tags=tags, content=f"{verb} a file")
        event = draft.signed(self._signer).as_json()
        return f"Nostr {base64.urlsafe_b64encode(event.encode()).decode().rstrip('=')}"

    def _owner_header(self, kind: Kind) -> dict[str, str]:
        if self._owner is None or not self._owner.covers(kind, int(self._wall())):
            return {}
        return {"x-auth-tag": msgspec.json.encode(self._owner.tag).decode()}

    def _refusal(self, status: int, content: bytes) -> RelayError:
        text = content[:200].decode("utf-8", "replace")
        remedy = clock_remedy(self.skew) if status in (401, 403) else ""
        return RelayError(f"HTTP {status} {text}".strip(), where=self._url, remedy=remedy)

    def _stored(self, status: int, answer: bytes, digest: str) -> Blob:
        text = answer[:200].decode("utf-8", "replace")
        if status == _TOO_MANY:
            raise RateLimited(retry_after(text), scope="account", where=self._url)
        if status >= _SERVER:
            raise SendFailed(f"the relay failed to store a file: HTTP {status}", where=self._url)
        if status == _TOO_LARGE:
            raise SendRejected("the file is too large", kind="too_long", where=self._url)
        if status not in (200, 201):
            remedy = clock_remedy(self.skew)
            raise SendRejected(
                f"the relay refused a file: HTTP {status} {text}", where=self._url, remedy=remedy
            )
        try:
            blob = msgspec.json.decode(answer, type=Blob)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise SendFailed("the answer to an upload makes no sense", where=self._url) from None
        if blob.sha256 not in ("", digest):
            raise SendFailed("the relay stored another file than was sent", where=self._url)
        return blob


def media_hash(url: str, origin: str) -> str:
    """The SHA-256 in the address of a file of the relay at `origin`, "" for any other address."""
    if not url.startswith(f"{origin}/"):
        return ""
    match = _MEDIA_PATH.fullmatch(url.removeprefix(origin))
    return match["sha256"] if match else ""


def media_in(text: str, origin: str) -> list[str]:
    """The addresses of files of the relay at `origin` that stand in a text."""
    pattern = re.compile(re.escape(origin) + _MEDIA + r"(?!\.?[0-9A-Za-z]|[/?#])", re.ASCII)
    return [match[0] for match in pattern.finditer(text)]


async def _copy(response: aiohttp.ClientResponse, target: BinaryIO, limit: int) -> str:
    """Copy at most `limit` bytes; their SHA-256."""
    digest, left = sha256(), limit
    async for piece in response.content.iter_chunked(1 << 16):
        left -= len(piece)
        if left < 0:
            raise RelayError(f"more than {limit} bytes", where=str(response.url))
        digest.update(piece)
        target.write(piece)
    return digest.hexdigest()


async def _body(response: aiohttp.ClientResponse, limit: int) -> bytes:
    content = bytearray()
    async for piece in response.content.iter_chunked(1 << 16):
        content += piece
        if len(content) > limit:
            raise RelayError(f"more than {limit} bytes", where=str(response.url))
    return bytes(content)
