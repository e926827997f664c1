"""Which addresses a target may have: judged with the settings, and again at each connection.

Never allowed: link-local, metadata services, multicast, unspecified and reserved ranges. Loopback
and private ranges only with `allow_private`. An address that carries an IPv4 address inside is
judged by it too.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import urlsplit

Address = IPv4Address | IPv6Address

SCHEMES = ("https", "http")
_METADATA = tuple(
    map(
        ip_network,
        (
            "100.100.100.200",  # Alibaba
            "168.63.129.16",  # Azure
            "192.0.0.192",  # Oracle
            "fd00:ec2::/32",  # AWS: metadata, credentials of containers, names, time
            "fd20:ce::/32",  # Google
            "fd00:c1::/32",  # Oracle
            "fd00:42::42",  # Scaleway
        ),
    )
)
"""Where clouds answer with credentials; most do so at a link-local address."""
_NEVER = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",
            "169.254.0.0/16",
            "fe80::/10",
            "fec0::/10",
            "64:ff9b:1::/48",  # translated within a site: where its IPv4 part stands cannot be told
        ),
    )
)
_NAT64 = ip_network("64:ff9b::/96")
_HOST = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}")
_MAX_URL = 2048
_UNFIT = re.compile(r"[\s\x00-\x1f\x7f]")


class BadAddress(ValueError):
    """A URL or an address that a target may not have. The text holds no part of a secret."""


class Place(NamedTuple):
    """Where a URL leads, without its credentials, path and query."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"https": 443, "http": 80}[self.scheme] == self.port
        return f"{self.scheme}://{host}" if usual else f"{self.scheme}://{host}:{self.port}"


def check_url(url: str, *, allow_private: bool) -> Place:
    """Where `url` leads. Raises BadAddress when its text says that a target may not have it."""
    if len(url) > _MAX_URL or _UNFIT.search(url):
        raise BadAddress("the url has spaces or control characters, or is too long")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise BadAddress("the url cannot be understood") from error
    if parts.scheme not in SCHEMES:
        raise BadAddress("the url has to begin with https:// or http://")
    if not host or "\\" in url or "#" in url or "%" in host:
        raise BadAddress("the url has no host that can be used")
    if port == 0:
        raise BadAddress("the url has the port 0")
    check_host(host, allow_private=allow_private)
    return Place(parts.scheme, host, port or (443 if parts.scheme == "https" else 80))


def check_host(host: str, *, allow_private: bool) -> None:
    """Judge a host as it is written. A name passes here and is judged when it is resolved."""
    plain = _ascii(host).lower().removesuffix(".")
    if plain == "localhost" or plain.endswith(".localhost"):
        if not allow_private:
            raise BadAddress(_private("localhost"))
        return
    if (literal := literal_address(plain)) is not None:
        check_address(literal, allow_private=allow_private)
    elif not _HOST.fullmatch(plain):
        raise BadAddress("the url has no host that can be used")


def _ascii(host: str) -> str:
    """`host` as it goes out: every sign that stands for a digit, a letter or a dot as just that."""
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError as error:
        raise BadAddress("the url has no host that can be used") from error


def literal_address(host: str) -> Address | None:
    """The address that `host` is, in any spelling that a resolver takes; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host))
    except (OSError, ValueError):
        return None


def check_address(address: Address, *, allow_private: bool) -> None:
    """Raises BadAddress when no connection may be made to `address`."""
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise BadAddress(f"{address} names a network interface")
    for one in (address, *_inside(address)):
        if any(one in network for network in (*_METADATA, *_NEVER)):
            raise BadAddress(f"{address} is a link-local or metadata address")
        if (
            one.is_multicast
            or one.is_unspecified
            or (one.is_reserved and not (one.is_loopback or _is_nat64(one)))
        ):
            raise BadAddress(f"{address} is no address of a host")
        if not one.is_global and not _is_nat64(one) and not allow_private:
            raise BadAddress(_private(str(address)))


def _inside(address: Address) -> Iterator[Address]:
    """IPv4 addresses that an IPv6 address stands for."""
    if isinstance(address, IPv4Address):
        return
    for inner in (address.ipv4_mapped, address.sixtofour, *(address.teredo or ())):
        if inner is not None:
            yield inner
    if _is_nat64(address) or (int(address) >> 32 == 0 and int(address) > 1):
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def _is_nat64(address: Address) -> bool:
    return address in _NAT64


def _private(what: str) -> str:
    return f"{what} is a private address; allow_private = true opens loopback and private ranges"
