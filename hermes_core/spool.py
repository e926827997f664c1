"""Files on their way out: copied when they are promised, so that nobody changes them before they
are sent.

An agent names files. Only regular files inside the allowed directories are taken, of a bounded
size, through a descriptor that was checked. The copy belongs to the outbox row and goes when the
row is over.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from hermes_core.ids import new_id
from hermes_core.messages import Attach, OutboundAttachment

log = logging.getLogger(__name__)

_CHUNK = 1 << 20


class NotTaken(Exception):
    """A file that is not sent. The text says why and may be shown to the person."""


class Spool:
    """The directory of copies, one per profile. Its methods block: call them in a thread."""

    def __init__(self, directory: Path, roots: Sequence[Path]) -> None:
        """`roots` are the directories that files may come from."""
        self._directory = directory
        self.roots = tuple(roots)

    def is_used(self) -> bool:
        """Whether a file was ever taken."""
        return self._directory.is_dir()

    def take(self, wanted: Attach, limit: int) -> OutboundAttachment:
        """Copy a file of at most `limit` bytes. Raises NotTaken."""
        path = self._resolve(wanted.path)
        name = wanted.name or path.name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                self._check(os.fstat(descriptor), name, limit)
                copy = self._copy(descriptor, name, limit)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise NotTaken(f"{name}: {error.strerror}") from error
        return OutboundAttachment(path=str(copy), name=name, media_type=wanted.media_type)

    def discard(self, attachments: Iterable[OutboundAttachment]) -> None:
        """The row is over: its copies go. What cannot be deleted goes at the next start."""
        for attachment in attachments:
            path = Path(attachment.path)
            if path.parent == self._directory:
                _delete(path)

    def sweep(self, kept: Iterable[OutboundAttachment]) -> None:
        """After a crash: copies that no row refers to go."""
        names = {attachment.path for attachment in kept}
        for path in self._directory.iterdir():
            if str(path) not in names:
                _delete(path)

    def _resolve(self, text: str) -> Path:
        try:
            path = Path(text).resolve(strict=True)
        except (OSError, RuntimeError, ValueError) as error:
            raise NotTaken(f"{Path(text).name}: there is no such file") from error
        if not any(path.is_relative_to(root.resolve()) for root in self.roots):
            raise NotTaken(f"{path.name}: not in a directory that files may be sent from")
        return path

    @staticmethod
    def _check(facts: os.stat_result, name: str, limit: int) -> None:
        if not stat.S_ISREG(facts.st_mode):
            raise NotTaken(f"{name}: not a regular file")
        if facts.st_size > limit:
            raise NotTaken(f"{name}: larger than {limit / 1_000_000:g} MB")

    def _copy(self, source: int, name: str, limit: int) -> Path:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = self._directory / new_id("f")
        left = limit
        try:
            with os.fdopen(
                os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
            ) as file:
                while chunk := os.read(source, _CHUNK):
                    left -= len(chunk)
                    if left < 0:
                        raise NotTaken(f"{name}: grew while it was copied")
                    file.write(chunk)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        return target


def _delete(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("a copy that nobody needs was not deleted: %s", error)
