"""One bot, one account: the same identity on a network must not be used twice on a machine.

Two accounts with the same token are found in the settings, before anything connects. The same bot
behind different secrets, or in two homes, is found when it has connected and told its own user id:
a file per (platform, own id), locked by the operating system as long as the account is in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from hermes_core.errors import EXIT_NEVER, AccountFailed, ConfigError
from hermes_core.files import UnusableFile, read_bounded
from hermes_core.settings import Secret

if TYPE_CHECKING:
    from hermes_core.config import AccountSettings
    from hermes_core.profiles import ProfileScope

DIRECTORY_VARIABLE = "HERMES_LOCK_DIR"
_MAX_RECORD = 4096


class SameBotTwice(ConfigError):
    """Two accounts are the same bot: valid, and can never work."""

    exit_code = EXIT_NEVER


def require_distinct(scopes: Sequence[ProfileScope]) -> None:
    """Raises SameBotTwice, naming both, when two accounts of a platform have the same secrets."""
    seen: dict[tuple[str, frozenset[str]], str] = {}
    for scope in scopes:
        for account in scope.settings.accounts:
            secrets = frozenset(_required_secrets(account))
            name = f"{account.name}@{scope.name}"
            other = seen.setdefault((account.platform, secrets), name) if secrets else name
            if other != name:
                raise SameBotTwice(
                    f"the accounts {other} and {name} are the same bot",
                    where=f"[platforms.{account.name}]",
                    remedy="give each account a bot of its own, or remove one of the two",
                )


def _required_secrets(account: AccountSettings) -> Iterator[str]:
    """The secrets without which the account cannot be: those that make it who it is."""
    for item in msgspec.structs.fields(type(account.settings)):
        value = getattr(account.settings, item.name)
        if item.required and isinstance(value, Secret):
            yield value.reveal()


class IdentityLock:
    """The claim of one account to its identity. Released when the process ends, whatever way."""

    def __init__(self, directory: Path, *, holder: str) -> None:
        """`holder` names the account to others: profile, account and home."""
        self._directory = directory
        self._holder = holder
        self._held: tuple[tuple[str, str], int] | None = None

    def claim(self, platform: str, own_id: str) -> None:
        """Take the identity, instead of the one that was held. Raises AccountFailed, naming the
        holder, when another account has it, OSError when the file cannot be used."""
        if self._held is not None and self._held[0] == (platform, own_id):
            return
        self.release()
        digest = hashlib.sha256(f"{platform}\0{own_id}".encode()).hexdigest()[:32]
        path = self._directory / f"{platform}-{digest}.lock"
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise AccountFailed(
                f"this bot ({own_id}) is in use already by {_holder(path)}",
                remedy="stop the other one, or give this account a bot of its own",
            ) from None
        record = json.dumps({"holder": self._holder, "pid": os.getpid()}).encode()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, record[:_MAX_RECORD], 0)
        self._held = ((platform, own_id), descriptor)

    def release(self) -> None:
        """Give the identity back. Does nothing when none is held."""
        if self._held is not None:
            os.close(self._held[1])
            self._held = None


def lock_directory() -> Path:
    """Where the locks of this machine's user are, whatever home is in use."""
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    if chosen:
        return Path(chosen)
    import platformdirs

    return platformdirs.user_state_path("hermes-gateway", appauthor=False) / "identities"


def _holder(path: Path) -> str:
    with contextlib.suppress(OSError, UnusableFile, ValueError):
        record = json.loads(read_bounded(path, limit=_MAX_RECORD))
        if isinstance(record, dict):
            return f"{record.get('holder')} (pid {record.get('pid')})"
    return "another account"
