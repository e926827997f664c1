"""Keys as people write them: 64 hexadecimal digits, or bech32 with a prefix (NIP-19, BIP-173).

Upper case and lower case are one and the same; a bech32 text that mixes them is invalid.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_ALPHABET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_VALUES = {symbol: value for value, symbol in enumerate(_ALPHABET)}
_GENERATOR = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_CHECKSUM = 6
_HEX = re.compile(r"[0-9a-f]{64}|[0-9A-F]{64}", re.ASCII)
MAX_TEXT = 200
"""No key in either form is as long; longer texts are refused before they are looked at."""
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
"""Order of secp256k1 (SEC 2, 2.4.1): a secret key is between 1 and this, exclusive."""


def public_key(text: str) -> str:
    """The public key in `text`, npub or hex, as 64 lower-case digits. Raises ValueError."""
    return _key(text, "npub").hex()


def secret_key(text: str) -> bytes:
    """The 32 bytes of the secret key in `text`, nsec or hex. Raises ValueError, without the
    text."""
    key = _key(text, "nsec")
    if not 0 < int.from_bytes(key) < ORDER:
        raise ValueError("not a secret key: the number is out of range")
    return key


def npub(key: str) -> str:
    """A public key of 64 hexadecimal digits as an npub."""
    return encode("npub", bytes.fromhex(key))


def nsec(key: bytes) -> str:
    """A secret key of 32 bytes as an nsec."""
    return encode("nsec", key)


def encode(prefix: str, data: bytes) -> str:
    """Bytes as bech32."""
    values = _regroup(data, 8, 5, pad=True)
    checksum = _polymod([*_expanded(prefix), *values, *[0] * _CHECKSUM]) ^ 1
    values += [checksum >> 5 * (_CHECKSUM - 1 - i) & 31 for i in range(_CHECKSUM)]
    return f"{prefix}1{''.join(_ALPHABET[value] for value in values)}"


def decode(text: str) -> tuple[str, bytes]:
    """Prefix and bytes of a bech32 text, all upper or all lower case. Raises ValueError."""
    if text not in (text.lower(), text.upper()) or not text.isascii():
        raise ValueError("upper and lower case are mixed")
    prefix, separator, rest = text.lower().rpartition("1")
    if not separator or not prefix or len(rest) < _CHECKSUM:
        raise ValueError("not bech32")
    try:
        values = [_VALUES[symbol] for symbol in rest]
    except KeyError:
        raise ValueError("a character that bech32 does not have") from None
    if _polymod([*_expanded(prefix), *values]) != 1:
        raise ValueError("the checksum is wrong: mistyped?")
    return prefix, bytes(_regroup(values[:-_CHECKSUM], 5, 8, pad=False))


def _key(text: str, prefix: str) -> bytes:
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    expected = f"expected {prefix}1… or 64 hexadecimal digits"
    if len(text) > MAX_TEXT or not text.lower().startswith(f"{prefix}1"):
        raise ValueError(expected)
    try:
        _, key = decode(text)
    except ValueError as error:
        raise ValueError(f"{expected}: {error}") from None
    if len(key) != 32:  # noqa: PLR2004 - bytes of a key
        raise ValueError(f"{expected}: it holds {len(key)} bytes")
    return key


def _polymod(values: Iterable[int]) -> int:
    checksum = 1
    for value in values:
        top = checksum >> 25
        checksum = (checksum & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(_GENERATOR):
            if top >> bit & 1:
                checksum ^= generator
    return checksum


def _expanded(prefix: str) -> list[int]:
    return [*(ord(ch) >> 5 for ch in prefix), 0, *(ord(ch) & 31 for ch in prefix)]


def _regroup(values: Iterable[int], width: int, wanted: int, *, pad: bool) -> list[int]:
    """Bits of `values`, `width` each, as numbers of `wanted` bits. Raises ValueError on a rest."""
    pending, bits, result = 0, 0, []
    for value in values:
        pending = pending << width | value
        bits += width
        while bits >= wanted:
            bits -= wanted
            result.append(pending >> bits & (1 << wanted) - 1)
        pending &= (1 << bits) - 1
    if pad and bits:
        result.append(pending << wanted - bits & (1 << wanted) - 1)
    elif bits >= width or pending:
        raise ValueError("bits are left over")
    return result
