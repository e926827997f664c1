"""Signatures (BIP-340), behind a seam of three names: `Signer.public_key`, `Signer.sign`, `verify`.

Everything else in this plugin knows signatures by these names only, so that another library, or a
signer in another process, is a change of this file.
"""

from __future__ import annotations

from typing import Protocol

from coincurve import PrivateKey, PublicKeyXOnly

from hermes_buzz import nip19


class Signer(Protocol):
    """Holds one secret key and does not show it."""

    @property
    def public_key(self) -> str:
        """64 lower-case hexadecimal digits."""

    def sign(self, digest: bytes) -> str:
        """The signature of 32 bytes, as 128 hexadecimal digits."""


class LocalSigner:
    """A signer in this process."""

    def __init__(self, secret: str) -> None:
        """`secret` is an nsec or 64 hexadecimal digits. Raises ValueError, without showing it."""
        self._key = PrivateKey(nip19.secret_key(secret))
        self.public_key = PublicKeyXOnly.from_secret(self._key.secret).format().hex()

    def sign(self, digest: bytes) -> str:
        return self._key.sign_schnorr(digest).hex()

    def __repr__(self) -> str:
        return f"<LocalSigner {self.public_key}>"


def verify(public_key: str, digest: bytes, signature: str) -> bool:
    """Whether `signature` (128 digits) is that of `digest` (32 bytes) by the key (64 digits)."""
    try:
        key = PublicKeyXOnly(bytes.fromhex(public_key))
        return key.verify(bytes.fromhex(signature), digest)
    except ValueError:
        return False
