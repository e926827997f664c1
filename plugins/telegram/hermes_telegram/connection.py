"""One live connection of one bot: the client, the way in, the way out."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from telegram.error import InvalidToken, TelegramError

from hermes_core import AccountFailed, Action, Denied, SendError, SendFailed
from hermes_telegram import wire
from hermes_telegram.client import Client
from hermes_telegram.files import Files
from hermes_telegram.inbound import Event, Reader
from hermes_telegram.intake import Intake
from hermes_telegram.outbound import Sender
from hermes_telegram.poller import CONFLICT_REMEDY, Poller, explain
from hermes_telegram.settings import TelegramSettings, Timing
from hermes_telegram.webhook import WebhookServer

if TYPE_CHECKING:
    from hermes_core import AdapterContext

log = logging.getLogger(__name__)

MAX_PORT = 65_535
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Connection:
    """Opened once, closed once; a lost one is not repaired but replaced."""

    def __init__(self, settings: TelegramSettings, context: AdapterContext, timing: Timing) -> None:
        """Raises AccountFailed for settings that can never work."""
        self._settings = settings
        self._context = context
        self._timing = timing
        self._client = Client(settings)
        self.sender = Sender(
            self._client, link_previews=settings.link_previews, migrated=context.migrated
        )
        self.files = Files(self._client.bot, self._client.files, settings.local_files)
        self._intake: Intake | None = None
        self._poller: Poller | None = None
        self._webhook: WebhookServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, is_reconnect: bool) -> str:
        """Log in and begin to take updates in. Returns the bot's own id. Raises HermesError."""
        try:
            me = await self._client.bot.get_me()
            reader = Reader(
                own_id=me.id,
                username=me.username or "",
                address=lambda chat, kind, thread: self._context.address(
                    chat, kind=kind, thread_id=thread
                ),
            )
            self._intake = Intake(reader, self._receive, self.sender.moved, self._timing)
            drop = self._settings.pending == "drop" and not is_reconnect
            if drop:
                log.warning('messages that waited are thrown away: pending = "drop"')
            if self._settings.webhook_url:
                await self._open_webhook(self._intake, drop)
            else:
                await self._open_polling(self._intake, drop)
        except (TelegramError, TimeoutError, AttributeError, KeyError, TypeError) as error:
            raise explain(error) from error
        self._spawn(self._look_after(reader), "telegram watch")
        return str(me.id)

    async def close(self) -> None:
        """Take nothing in any more and hang up. Bounded, whatever state the network is in."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._webhook is not None:
            await self._briefly(self._webhook.stop())
        if self._intake is not None:
            await self._intake.stop()
        if self._poller is not None:
            await self._briefly(self._poller.confirm())
        await self._briefly(self._client.close())

    # ── the two ways in ──────────────────────────────────────────────────────────────────────────

    async def _open_polling(self, intake: Intake, drop: bool) -> None:
        """The first question is asked here: an account that cannot poll is not connected."""
        bot = self._client.bot
        webhook = await bot.get_webhook_info()
        if webhook.url or drop:
            if webhook.url:
                host = urlsplit(webhook.url).hostname
                log.warning("the bot had a webhook at %s; it is removed, we poll", host)
            await bot.delete_webhook(drop_pending_updates=drop)
        poller = Poller(self._client, intake, self._timing, self._context.lost)
        await poller.ask(0)
        self._poller = poller
        self._spawn(self._poll(poller), "telegram updates")

    async def _open_webhook(self, intake: Intake, drop: bool) -> None:
        """Listen first, then say where: a request may come at once."""
        url = urlsplit(self._settings.webhook_url)
        if url.scheme != "https" and url.hostname not in LOOPBACK:
            raise AccountFailed("webhook_url must begin with https://")
        host, port = _listen(self._settings.webhook_listen)
        secret = secrets.token_urlsafe(32)
        self._webhook = WebhookServer(
            intake.put, path=url.path or "/", secret=secret, timing=self._timing
        )
        await self._webhook.start(host, port)
        await self._client.bot.set_webhook(
            self._settings.webhook_url,
            secret_token=secret,
            allowed_updates=wire.UPDATE_KINDS,
            drop_pending_updates=drop,
        )

    async def _poll(self, poller: Poller) -> None:
        try:
            await poller.run()
        except Exception as error:  # whatever it is, nobody would hear us any more
            self._context.lost(error)
            raise

    async def _look_after(self, reader: Reader) -> None:
        """Notice what nobody tells us: another name of the bot, a webhook that others took away."""
        while True:
            await self._timing.sleep(self._timing.watch)
            try:
                reader.username = (await self._client.bot.get_me()).username or ""
                if self._webhook is not None:
                    await self._require_webhook()
            except (SendError, InvalidToken) as error:
                self._context.lost(explain(error))
                return
            except TelegramError as error:
                log.debug("the bot was not looked at: %s", type(error).__name__)

    async def _require_webhook(self) -> None:
        """Raises SendFailed when updates go elsewhere than to us."""
        webhook = await self._client.bot.get_webhook_info()
        if webhook.url != self._settings.webhook_url:
            raise SendFailed(
                "another program has taken the webhook of this bot away", remedy=CONFLICT_REMEDY
            )

    async def _receive(self, event: Event) -> None:
        outcome = await self._context.receive(event)
        if isinstance(event, Action) and not isinstance(outcome, Denied):
            self._spawn(self._answer(event.event_id[1:]), "telegram button")

    async def _answer(self, callback_id: str) -> None:
        """Stop the button from showing that it waits. Nobody misses it if that fails."""
        try:
            await self._client.bot.answer_callback_query(callback_id)
        except TelegramError as error:
            log.debug("a button was not answered: %s", type(error).__name__)

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s ended", task.get_name(), exc_info=error)

    async def _briefly(self, work: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._timing.goodbye):
                await work
        except (TelegramError, TimeoutError, OSError) as error:
            log.info("hanging up: %s", type(error).__name__)


def _listen(value: str) -> tuple[str, int]:
    host, colon, port = value.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) <= MAX_PORT):
        raise AccountFailed(f"webhook_listen is {value!r:.60}, not host:port")
    return host.strip("[]"), int(port)
