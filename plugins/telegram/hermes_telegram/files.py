"""The files of messages: from the Bot API server, or from the directory that a local one shares."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import httpx
from telegram import Bot
from telegram.error import TelegramError

from hermes_core import RateLimited, SendFailed, SendRejected
from hermes_telegram.failures import translate

_CHUNK = 65_536
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
"""A pipe does not hold us up."""


class Files:
    """Writes files to where they are wanted, piece by piece: their size is what their server says
    it is."""

    def __init__(self, bot: Bot, http: httpx.AsyncClient, directory: str) -> None:
        """`directory` is the one that a local server shares with us, "" when it shares none."""
        self._bot = bot
        self._http = http
        self._directory = directory

    async def fetch(self, file_id: str, target: BinaryIO, limit: int) -> None:
        """Write a file of at most `limit` bytes to `target`. Raises SendError."""
        try:
            file = await self._bot.get_file(file_id)
        except TelegramError as error:
            raise translate(error) from error
        if file.file_size is not None:
            _require(file.file_size, limit)
        # The library puts its address before every path but those of files that are here.
        path = (file.file_path or "").removeprefix(f"{self._bot.base_file_url}/")
        if "\0" in path or ".." in path.split("/"):
            raise SendRejected("the Bot API server names no path of a file")
        if not path.startswith("/"):
            await self._download(path, target, limit)
        elif self._directory:
            await asyncio.to_thread(_copy, path, self._directory, target, limit)
        else:
            raise SendRejected(
                "the Bot API server names a path of its own disk",
                remedy="set local_files to the directory that it shares",
            )

    async def _download(self, path: str, target: BinaryIO, limit: int) -> None:
        url = f"{self._bot.base_file_url}/{quote(path)}"
        size = 0
        try:
            async with self._http.stream("GET", url) as answer:
                _require_found(answer.status_code)
                async for chunk in answer.aiter_raw(_CHUNK):
                    size += len(chunk)
                    _require(size, limit)
                    await asyncio.to_thread(target.write, chunk)
        except httpx.HTTPError as error:
            raise SendFailed(f"the download broke off: {type(error).__name__}") from error


def _require(size: int, limit: int) -> None:
    if size > limit:
        raise SendRejected(f"the file has {size} bytes or more, and may have {limit}")


def _require_found(status: int) -> None:
    if status == httpx.codes.NOT_FOUND:
        raise SendRejected("Telegram has the file no more", kind="not_found")
    if status == httpx.codes.TOO_MANY_REQUESTS:
        raise RateLimited(1.0)
    if status != httpx.codes.OK:
        raise SendFailed(f"the download was answered with HTTP {status}")


def _copy(named: str, directory: str, target: BinaryIO, limit: int) -> None:
    """Copy a file that is in `directory`, wherever its name and the links in it lead."""
    try:
        path = Path(named).resolve(strict=True)
        if not path.is_relative_to(Path(directory).resolve(strict=True)):
            raise SendRejected("the file is not in the directory that local_files names")
        with os.fdopen(os.open(path, _FLAGS), "rb") as source:
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                raise SendRejected("the file is no regular file")
            size = 0
            while chunk := source.read(_CHUNK):
                size += len(chunk)
                _require(size, limit)
                target.write(chunk)
    except (OSError, RuntimeError) as error:  # the latter for links that go round in circles
        reason = error.strerror if isinstance(error, OSError) else "a circle of links"
        raise SendRejected(f"the file cannot be read: {reason}", kind="not_found") from error
