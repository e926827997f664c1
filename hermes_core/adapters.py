"""Accounts: build the adapter, connect it, watch it, connect it again, disconnect it."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, BinaryIO, Literal

from hermes_core import hookspecs as specs
from hermes_core.authorization import AccessList
from hermes_core.budget import Budget
from hermes_core.errors import (
    AccountFailed,
    ConfigError,
    HermesError,
    NotReady,
    OutcomeUnknown,
    PluginError,
    RateLimited,
    StoreError,
    StoreFault,
    described,
)
from hermes_core.events import PlatformInfo
from hermes_core.identity_locks import IdentityLock, lock_directory
from hermes_core.messages import Address, Attachment, ChatKind, Inbound, Outbound, Receipt, Received
from hermes_core.plugins import normalizer
from hermes_core.text import clean

if TYPE_CHECKING:
    from hermes_core.config import AccountSettings
    from hermes_core.config.sections import OnUnknown, Progress
    from hermes_core.moves import Moves
    from hermes_core.platforms import Adapter, AdapterContext, Channel, Platform
    from hermes_core.plugins import Hooks, Owned
    from hermes_core.profiles import ProfileScope
    from hermes_core.settings import Settings

log = logging.getLogger(__name__)

MAX_PAUSE = 60.0
"""Seconds between two attempts to connect at most; the first pause is one second, each next twice
as long. A connection that lasts as long as this begins the count anew."""

FETCH_PATIENCE = 30.0
"""Seconds that a fetch waits for its account to be connected: after a start, for instance."""

State = Literal["new", "connecting", "connected", "waiting", "failed", "stopped"]
Receive = Callable[[Inbound, AccessList, str], Awaitable[Received]]
Migrate = Callable[[str, str, str], Awaitable[None]]


class Account:
    """One account of one profile: what delivery sends by, and what admission receives from."""

    def __init__(
        self,
        *,
        scope: ProfileScope,
        settings: AccountSettings,
        owned: Owned[Platform],
        hooks: Hooks,
        receive: Receive,
        resume: Callable[[str, str | None], None],
        migrate: Migrate,
        moves: Moves,
    ) -> None:
        """`resume(account_key, chat_id or None)` is told what can be reached (again),
        `migrate(account_key, old, new)` lets what is stored of a chat follow it. `moves` are the
        chats of the profile that have moved.

        Raises PluginError when the adapter breaks the contract, ConfigError for an id that can be
        none.
        """
        self.platform = owned.value
        self.settings = settings
        self.name = settings.name
        self.state: State = "new"
        self.reason = ""
        self.own_id = ""
        self._moves = moves
        self._owned = owned
        self._resolved: dict[str, str] = {}
        self.access = self._lists(settings)
        self.budget = Budget(self.platform.rate, self.platform.chat_rate)
        self._scope = scope
        self._hooks = hooks
        self._receive = receive
        self._resume = resume
        self._migrate = migrate
        self._first: dict[str, str] = {}
        self._live = asyncio.Event()
        self._over = False
        home = "/".join((str(scope.config_dir), self.name))
        self._identity = IdentityLock(lock_directory(), holder=f"{self.name}@{scope.name} ({home})")
        self._lost: asyncio.Future[Exception] | None = None
        where = f"{self.name}@{scope.name}"
        adapter = _made(self.platform, settings, _Context(self), where)
        self._calls = hooks.adapter_calls(owned.plugin, adapter, where=where)

    def change(self, settings: AccountSettings) -> None:
        """Take over new settings of the core, from the next message on. The adapter stays as it is:
        `settings.settings` has to be the same.

        Raises ConfigError for an id that can be none.
        """
        self.access = self._lists(settings)
        self.settings = settings

    async def resolve(self) -> None:
        """Ask the platform for the ids behind names on lists. What goes wrong is logged.

        A name matches nobody while it leads nowhere, and for good once it led to two users.
        """
        names = tuple(sorted(self.access.unresolved.union(self._resolved)))
        if not names or not self._calls.has(specs.resolve_user_ids):
            return
        try:
            found = dict(await self._calls.call(specs.resolve_user_ids, names=names))
        except Exception as error:
            log.warning("names on lists were not resolved: %s", error, extra=self._place)
            return
        ids = {name: found[name] for name in names if self._is_id(found.get(name))}
        for name, user_id in ids.items():
            if self._first.setdefault(name, user_id) != user_id:
                log.error("%s leads to another user than before", name, extra=self._place)
                self._first[name] = ""
        self._resolved = {name: ids[name] for name in ids if self._first[name] == ids[name]}
        self.access = self._lists(self.settings)
        for name in sorted(self.access.unresolved):
            log.warning("%s on a list leads to no user", name, extra=self._place)

    def _lists(self, settings: AccountSettings) -> AccessList:
        lists = _access(settings, self._owned, self._resolved)
        return lists.following(self._moves.of(settings.name))

    def _is_id(self, value: object) -> bool:
        try:
            return isinstance(value, str) and bool(self.access.normalize(value))
        except (ValueError, PluginError):
            return False

    @property
    def _place(self) -> dict[str, str]:
        return {"account": self.name, "profile": self._scope.name}

    @property
    def on_unknown(self) -> OnUnknown:
        return self.settings.on_unknown

    @property
    def progress(self) -> Progress:
        return self.settings.progress

    @property
    def streams(self) -> bool:
        return self.settings.streaming and self.platform.edit

    @property
    def types(self) -> bool:
        return self.settings.progress != "none" and self._calls.has(specs.set_typing)

    @property
    def connected(self) -> bool:
        return self.state == "connected"

    @property
    def scope(self) -> ProfileScope:
        return self._scope

    # ── for delivery and local clients ───────────────────────────────────────────────────────────

    async def send(self, message: Outbound) -> Receipt:
        return _receipt(await self._calls.call(specs.send, message=message), self.name)

    async def edit(self, message_id: str, message: Outbound) -> Receipt:
        call = self._calls.call(specs.edit, message_id=message_id, message=message)
        return _receipt(await call, self.name)

    async def draft(self, message: Outbound) -> None:
        await self._calls.call(specs.draft, message=message)

    async def reconcile(self, message: Outbound) -> Receipt | None:
        """What became of an earlier attempt. Raises when the platform cannot tell."""
        if not self._calls.has(specs.reconcile):
            raise OutcomeUnknown("this platform cannot tell", where=self.name)
        found = await self._calls.call(specs.reconcile, message=message)
        return None if found is None else _receipt(found, self.name)

    async def set_typing(self, address: Address, active: bool) -> None:
        """Show that an answer is being written. What goes wrong is logged and forgotten."""
        now = asyncio.get_running_loop().time()
        if not self.connected:
            return
        if active and self.budget.delay(address.chat_id, now) > 0:
            return
        try:
            await self._calls.call(specs.set_typing, address=address, active=active)
        except Exception as error:
            log.debug("typing was not shown: %s", error, extra={"account": self.name})

    async def fetch(self, attachment: Attachment, target: BinaryIO, limit: int) -> None:
        """Have the content of a file written to `target`. Raises whatever goes wrong."""
        if not self._calls.has(specs.fetch_attachment):
            raise PluginError("this platform cannot fetch files", where=self.name)
        async with asyncio.timeout(FETCH_PATIENCE):
            while not self.connected and not self._over:
                await self._live.wait()
        call = self._calls.call(
            specs.fetch_attachment, attachment=attachment, target=target, limit=limit
        )
        await call

    @property
    def quotes(self) -> bool:
        """Whether the platform can look an earlier message up."""
        return self._calls.has(specs.quote)

    async def quote(self, address: Address, message_id: str) -> str:
        """The text of an earlier message. Raises whatever goes wrong."""
        text = await self._calls.call(specs.quote, address=address, message_id=message_id)
        if not isinstance(text, str):
            raise PluginError(f"quote returned {type(text).__name__}, not str", where=self.name)
        return text

    async def attach(self, channel: Channel) -> None:
        """Let the adapter serve a local client. Raises PluginError when it has no use for one."""
        if not self._calls.has(specs.attach):
            raise PluginError("this platform serves no local clients", where=self.name)
        await self._calls.call(specs.attach, channel=channel)

    # ── for the adapter ──────────────────────────────────────────────────────────────────────────

    async def receive(self, event: Inbound) -> Received:
        """Take an event from the adapter, once the account is live and knows who it is itself.

        Raises NotReady when that will not be: the account is stopped, or failed for good.
        """
        address = event.address
        if (address.platform, address.account) != (self.platform.name, self.settings.account):
            raise PluginError("an adapter gave an event of another account", where=self.name)
        while not self.connected:
            if self._over:
                what = self.reason or "the account is not in use any more"
                raise NotReady(what, where=self.name)
            await self._live.wait()
        return await self._receive(event, self.access, self.own_id)

    def reachable(self, chat_id: str) -> None:
        self._resume(self.name, chat_id)

    async def migrated(self, old: str, new: str) -> None:
        """Follow a chat to its new id. Raises NotReady when that cannot be stored now.

        Only the first word about a chat counts: a later one that leads elsewhere is refused, so
        that permissions cannot be led on to a chat of somebody's choice.
        """
        for chat in (old, new):
            if not chat or chat != clean(chat):
                raise PluginError("an adapter moved a chat that has no valid id", where=self.name)
        first = old not in self._moves.of(self.name)
        if not self._moves.add(self.name, old, new):
            log.error("the chat %s is said to be %s now: refused", old, new, extra=self._place)
            return
        if first:
            self.access = self._lists(self.settings)
            self._warn_of_move(old, new)
        try:
            await self._migrate(self.name, old, self._moves.of(self.name)[old])
        except (StoreError, StoreFault) as error:
            raise NotReady(error.what, where=error.where, remedy=error.remedy) from error

    def _warn_of_move(self, old: str, new: str) -> None:
        log.warning("the chat %s has become %s", old, new, extra=self._place)
        if old in self.settings.allowed_groups or old in self.settings.groups:
            log.warning(
                "the settings speak of the chat %s, which is %s now: write the new id in"
                " [platforms.%s]. Until the next start it counts as the old one",
                old,
                new,
                self.name,
                extra=self._place,
            )

    def lost(self, error: Exception) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(error)

    def shut(self, reason: str) -> None:
        """Never connect, and tell whoever offers an event why."""
        self.state, self.reason = "stopped", reason
        self._over = True
        self._live.set()

    # ── the life of the connection ───────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Keep the account connected until cancelled, or until it can never work."""
        try:
            await self._keep_connected()
        finally:
            self._over = True
            self._live.set()  # whoever waits for the account learns that it does not come
            self._identity.release()

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        reconnect = False
        failures = 0
        lost: Exception
        while True:
            self.state = "connecting"
            self._lost = loop.create_future()
            try:
                self.own_id = await self._connect(reconnect)
            except AccountFailed as error:
                self._down("failed", error)
                return
            except Exception as error:
                lost = error
                self._down("waiting", error)
            else:
                since = loop.time()
                lost = await self._while_connected(reconnect, self._lost)
                reconnect = True
                if loop.time() - since >= MAX_PAUSE:
                    failures = 0
            failures += 1
            wanted = lost.retry_after if isinstance(lost, RateLimited) else 0.0
            await asyncio.sleep(max(_pause(failures), wanted))

    async def _connect(self, reconnect: bool) -> str:
        """Connect. Returns the account's own user id, in the form in which senders are compared."""
        own_id = await self._calls.call(specs.connect, is_reconnect=reconnect)
        try:
            return self._claimed(own_id)
        except BaseException:
            await self._disconnect()
            raise

    def _claimed(self, own_id: str) -> str:
        """The account's own user id in that form, which no other account uses."""
        if not own_id:
            return ""
        try:
            own_id = self.access.normalize(own_id)
        except ValueError as error:
            raise PluginError(f"connect returned no user id: {error}", where=self.name) from error
        if not self.platform.implicit:
            self._identity.claim(self.platform.name, own_id)
        return own_id

    async def _while_connected(self, reconnect: bool, lost: asyncio.Future[Exception]) -> Exception:
        try:
            await self.resolve()
            self._up(reconnect)
            self._down("waiting", await lost)
            return lost.result()
        finally:
            self._live.clear()
            if self.connected:
                self._down("stopped", None)
            await self._disconnect()

    def _up(self, reconnect: bool) -> None:
        self.state, self.reason = "connected", ""
        self._live.set()
        log.info("connected", extra={"account": self.name, "profile": self._scope.name})
        self._hooks.notify(
            specs.on_platform_connected,
            scope=self._scope,
            platform=PlatformInfo(
                platform=self.platform.name,
                account=self.settings.account,
                is_reconnect=reconnect,
            ),
        )
        self._resume(self.name, None)

    def _down(self, state: State, error: Exception | None) -> None:
        was_connected = self.connected
        self.state = state
        self.reason = "" if error is None else described(error)
        if error is not None:
            log.warning(
                "the account is not connected: %s",
                self.reason,
                extra={"account": self.name, "profile": self._scope.name},
            )
            log.debug("where the account failed", extra=self._place, exc_info=error)
        if was_connected:
            info = PlatformInfo(
                platform=self.platform.name, account=self.settings.account, reason=self.reason
            )
            self._hooks.notify(specs.on_platform_disconnected, scope=self._scope, platform=info)

    async def _disconnect(self) -> None:
        if not self._calls.has(specs.disconnect):
            return
        try:
            await self._calls.call(specs.disconnect)
        except Exception as error:
            log.warning(
                "disconnect failed: %s",
                error,
                extra={"account": self.name, "profile": self._scope.name},
            )


class _Context:
    """`platforms.AdapterContext` for one account: the only way from an adapter into the core."""

    def __init__(self, account: Account) -> None:
        self._account = account

    @property
    def scope(self) -> ProfileScope:
        return self._account.scope

    @property
    def platform(self) -> str:
        return self._account.platform.name

    @property
    def account(self) -> str:
        return self._account.settings.account

    def address(
        self, chat_id: str, *, kind: ChatKind = "dm", thread_id: str | None = None
    ) -> Address:
        return Address(
            platform=self.platform,
            account=self.account,
            chat_id=chat_id,
            thread_id=thread_id,
            kind=kind,
        )

    async def receive(self, inbound: Inbound) -> Received:
        return await self._account.receive(inbound)

    def reachable(self, chat_id: str) -> None:
        self._account.reachable(chat_id)

    async def migrated(self, old_chat_id: str, new_chat_id: str) -> None:
        await self._account.migrated(old_chat_id, new_chat_id)

    def lost(self, error: Exception) -> None:
        self._account.lost(error)


def _made(
    platform: Platform, settings: AccountSettings, context: AdapterContext, where: str
) -> Adapter[Settings]:
    try:
        return platform.adapter(settings.settings, context)
    except HermesError:
        raise
    except BaseException as error:
        raise PluginError(f"its adapter cannot be made: {described(error)}", where=where) from error


def _access(
    settings: AccountSettings, owned: Owned[Platform], resolved: Mapping[str, str] | None = None
) -> AccessList:
    try:
        return AccessList.build(
            settings, owned.plugin.distribution, normalizer(owned.value), resolved
        )
    except ValueError as error:
        raise ConfigError(str(error), where=f"[platforms.{settings.name}]") from error


def _receipt(value: object, where: str) -> Receipt:
    if not isinstance(value, Receipt):
        raise OutcomeUnknown(
            f"the adapter returned {type(value).__name__}, not a Receipt", where=where
        )
    message_id: object = value.message_id
    if not isinstance(message_id, str) or clean(message_id) != message_id:
        raise OutcomeUnknown(f"the adapter returned a Receipt with id {message_id!a}", where=where)
    return value


def _pause(failures: int) -> float:
    """Doubling, with jitter so that many accounts do not come back at the same instant."""
    doublings = min(failures - 1, 10)  # a float has an end, an outage has none
    return min(MAX_PAUSE, 2.0**doublings) * random.uniform(0.75, 1.25)  # noqa: S311
