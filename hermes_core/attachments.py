"""Files that people send: fetched after the grant and the commit, for the agent to read.

A file is fetched by the account it came from, as soon as its message is committed, since links die.
It is kept under the digest of its content, in a directory of the profile with a quota. What cannot
be had becomes a note for the agent; it never costs the message.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import BinaryIO, Protocol, cast

import msgspec

from hermes_core.authorization import Admitted
from hermes_core.errors import HermesError
from hermes_core.messages import Attachment, Inbound, Message
from hermes_core.threads import in_thread

log = logging.getLogger(__name__)

MAX_BYTES = 25_000_000
"""Of one file. Networks let bots fetch about as much (Telegram: 20 MB)."""
MAX_FILES = 20
"""Of one message."""
QUOTA = 1 << 30
"""Bytes that a profile keeps; the files that were used least recently go first."""
AT_ONCE = 4
PATIENCE = 180.0
"""Seconds that a turn waits for the files of a message; it begins without them then."""
_MAX_EARLY = 1000
"""Messages whose files are fetched before their turn comes; the others are fetched then."""
_SUFFIX = re.compile(r"\.[A-Za-z0-9]{1,10}", re.ASCII)

Spawn = Callable[[Coroutine[object, object, None], str], "asyncio.Task[None]"]
Key = tuple[str, str, str]


class Source(Protocol):
    """The account that a message came from."""

    async def fetch(self, attachment: Attachment, target: BinaryIO, limit: int) -> None: ...


class Attachments:
    """The files of one profile's messages."""

    def __init__(
        self, directory: Path, source: Callable[[str], Source | None], spawn: Spawn
    ) -> None:
        """`directory` is made when the first file comes; its parent has to be there. `source` finds
        an account by its key."""
        self._directory = directory
        self._source = source
        self._spawn = spawn
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._early: OrderedDict[Key, asyncio.Future[tuple[Attachment, ...]]] = OrderedDict()

    def begin(self, admitted: Admitted[Inbound]) -> None:
        """Begin to fetch the files of an event that was committed. Returns at once."""
        event = admitted.event
        if not (isinstance(event, Message) and event.attachments):
            return
        if _key(event) in self._early:
            return
        if len(self._early) >= _MAX_EARLY:
            self._early.popitem(last=False)
        fetched: asyncio.Future[tuple[Attachment, ...]] = asyncio.get_running_loop().create_future()
        self._early[_key(event)] = fetched

        async def work() -> None:
            try:
                fetched.set_result(await self._all(event))
            finally:
                fetched.cancel()  # no effect once it has a result

        self._spawn(work(), f"fetch files of {event.event_id}")

    async def of(self, admitted: Admitted[Message]) -> Message:
        """The message with its files: each attachment has a path to read, or says why not."""
        event = admitted.event
        if not event.attachments:
            return event
        early = self._early.pop(_key(event), None)
        files: tuple[Attachment, ...] = ()
        try:
            async with asyncio.timeout(PATIENCE):
                if early is not None:
                    await asyncio.wait([early])
                    files = () if early.cancelled() else early.result()
                # Once more for what failed at first, as its account may be back, and for what is
                # gone by now, by its age or for newer files.
                if not files or not await in_thread(_all_there, files):
                    files = await self._all(event)
        except TimeoutError:
            late = tuple(_without(one, "it took too long") for one in event.attachments)
            files = files or late
        return msgspec.structs.replace(event, attachments=files)

    def expire(self, before: float) -> int:
        """Delete the files that were last fetched before a time. How many there were. Blocks."""
        expired = [path for used, _, path in self._files() if used < before]
        try:
            for path in expired:
                path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("a file that is too old was not deleted: %s", error)
        return len(expired)

    async def _all(self, event: Message) -> tuple[Attachment, ...]:
        account = event.address.account_key
        files = [await self._one(account, one) for one in event.attachments[:MAX_FILES]]
        files += [
            _without(one, f"more than {MAX_FILES} files") for one in event.attachments[MAX_FILES:]
        ]
        return tuple(files)

    async def _one(self, account: str, attachment: Attachment) -> Attachment:
        if attachment.size is not None and attachment.size > MAX_BYTES:
            return _without(attachment, f"larger than {MAX_BYTES // 1_000_000} MB")
        source = self._source(account)
        if source is None:
            return _without(attachment, "its account is gone")
        async with self._slots:
            try:
                path, size = await self._fetch(source, attachment)
            except Exception as error:
                log.warning(
                    "an attachment could not be fetched: %s", error, extra={"account": account}
                )
                reason = error.what if isinstance(error, HermesError) else type(error).__name__
                return _without(attachment, f"it could not be fetched: {reason}")
        return msgspec.structs.replace(attachment, path=str(path), size=size, problem="")

    async def _fetch(self, source: Source, attachment: Attachment) -> tuple[Path, int]:
        self._directory.mkdir(mode=0o700, exist_ok=True)
        with _Target(self._directory) as target:
            await source.fetch(attachment, cast("BinaryIO", target), MAX_BYTES)
            path = target.keep(_suffix(attachment.name))
        await in_thread(self._trim)
        return path, target.size

    def _trim(self) -> None:
        """Delete what was used least recently until the quota is kept."""
        found = self._files()
        total = sum(size for _, size, _ in found)
        for _, size, path in found[:-1]:
            if total <= QUOTA:
                break
            path.unlink(missing_ok=True)
            total -= size

    def _files(self) -> list[tuple[float, int, Path]]:
        """Time of the last use, size and path of each file, the oldest first."""
        found: list[tuple[float, int, Path]] = []
        with contextlib.suppress(FileNotFoundError):  # no file was ever fetched
            for path in self._directory.iterdir():
                with contextlib.suppress(FileNotFoundError):
                    status = path.stat()
                    found.append((status.st_mtime, status.st_size, path))
        return sorted(found)


def _all_there(files: Iterable[Attachment]) -> bool:
    return all(file.path and Path(file.path).exists() for file in files)


class _Target:
    """A file that is being fetched. Gone at the end of the context unless it was kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / f".{os.urandom(8).hex()}"
        self._digest = hashlib.sha256()
        self._file: BinaryIO | None = None
        self.size = 0

    def __enter__(self) -> _Target:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self._path, flags, 0o600), "wb")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._file is not None:
            self._file.close()
        self._path.unlink(missing_ok=True)

    def write(self, data: bytes) -> int:
        """Raises ValueError when it would be too much, and after the end."""
        if self._file is None or self._file.closed:
            raise ValueError("the fetch is over")
        self.size += len(data)
        if self.size > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES // 1_000_000} MB")
        self._digest.update(data)
        return self._file.write(data)

    def keep(self, suffix: str) -> Path:
        """Give the file its name, which is that of its content."""
        assert self._file is not None
        self._file.close()
        path = self._directory / f"{self._digest.hexdigest()}{suffix}"
        self._path.replace(path)
        return path


def _key(event: Message) -> Key:
    return (event.address.account_key, event.address.chat_id, event.event_id)


def _without(attachment: Attachment, problem: str) -> Attachment:
    return msgspec.structs.replace(attachment, path="", problem=problem)


def _suffix(name: str) -> str:
    """The end of a file's name, if it is an ordinary one: programs go by it."""
    found = Path(name).suffix if "\0" not in name else ""
    return found.lower() if _SUFFIX.fullmatch(found) else ""
