"""The composition root: takes the home, builds the rooms, starts them, drains them, stops them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from hermes_core import hookspecs as specs
from hermes_core.errors import EXIT_NEVER, ConfigError, ControlError
from hermes_core.events import GatewayInfo
from hermes_core.home import Home
from hermes_core.served import ServedProfile
from hermes_core.startup import Plan, prepare
from hermes_core.store.database import require_ours
from hermes_core.supervision.control import ControlServer
from hermes_core.supervision.lock import HomeLock
from hermes_core.version import VERSION

if TYPE_CHECKING:
    from hermes_core.platforms import Channel

log = logging.getLogger(__name__)

HOOK_GRACE = 5.0
"""Seconds that observers get at the end to take in what they were told."""


class Gateway:
    """A running gateway. Whoever makes one holds the home's lock."""

    def __init__(self, home: Home, plan: Plan, wall: Callable[[], float] = time.time) -> None:
        self.home = home
        self.hooks = plan.hooks
        self._settings = plan.settings.gateway
        slots = asyncio.Semaphore(self._settings.max_running_turns)
        self.profiles = {
            scope.name: ServedProfile(
                scope=scope,
                settings=scope.settings,
                database=home.database(scope.name),
                hooks=plan.hooks,
                slots=slots,
                restart=self.request_restart,
                wall=wall,
            )
            for scope in plan.scopes
        }
        self._control = ControlServer(
            home.socket_path,
            {
                "status": self._status,
                "plugins.stats": self._plugin_stats,
                "attach": self._attach,
                "stop": self._stop_request,
            },
        )
        self.stop_requested = asyncio.Event()
        self.restart_wanted = False

    async def start(self) -> None:
        """Serve. On return everything runs; accounts may still be connecting."""
        if self.hooks.missing_required:
            names = ", ".join(self.hooks.missing_required)
            raise ConfigError(
                f"required plugins are missing or broken: {names}",
                where="[plugins] required",
                remedy="`hermes plugins list` says why",
            )
        await self.hooks.start()
        for profile in self.profiles.values():
            await profile.start()
        await self._control.start()
        self.hooks.notify(specs.on_gateway_start, gateway=self._info())
        log.info("the gateway is ready", extra={"home": str(self.home.state_root)})

    async def stop(self, grace: float | None = None) -> None:
        """Drain within `grace` seconds (default: the setting) and close everything."""
        limit = float(self._settings.shutdown_grace) if grace is None else grace
        await asyncio.gather(*(profile.stop(limit) for profile in self.profiles.values()))
        await self._control.stop()
        self.hooks.notify(specs.on_gateway_stop, gateway=self._info())
        await self.hooks.stop(HOOK_GRACE)
        log.info("the gateway has stopped")

    def request_restart(self) -> bool:
        """Ask for a drain and a new start. Returns at once; False when the gateway stops
        already."""
        if self.stop_requested.is_set():
            return False
        self.restart_wanted = True
        self.stop_requested.set()
        return True

    @property
    def failed_for_good(self) -> bool:
        """Every account failed in a way that no restart mends."""
        accounts = [account for profile in self.profiles.values() for account in profile.accounts]
        return bool(accounts) and all(account.state == "failed" for account in accounts)

    def _info(self) -> GatewayInfo:
        return GatewayInfo(version=VERSION, pid=os.getpid(), profiles=tuple(self.profiles))

    # ── control verbs ────────────────────────────────────────────────────────────────────────────

    async def _status(self, _: Channel) -> Mapping[str, object]:
        return {
            "version": VERSION,
            "pid": os.getpid(),
            "home": str(self.home.state_root),
            "profiles": [profile.status() for profile in self.profiles.values()],
            "quarantined": [
                {"plugin": broken.name, "reason": broken.reason}
                for broken in self.hooks.quarantined
            ],
        }

    async def _plugin_stats(self, _: Channel) -> Mapping[str, object]:
        return self.hooks.report()

    async def _attach(self, channel: Channel) -> Mapping[str, object] | None:
        """Hand a local client over to an adapter, until it leaves."""
        wanted = channel.parameters
        name = str(wanted.get("profile", "default"))
        profile = self.profiles.get(name)
        if profile is None:
            raise ControlError(f"this gateway does not serve the profile {name!r}")
        platform, account = str(wanted.get("platform")), str(wanted.get("account", "default"))
        key = platform if account == "default" else f"{platform}.{account}"
        found = profile.accounts.get(key)
        if found is None:
            raise ControlError(
                f"the profile {name} has no account {key!r}",
                remedy=f"is hermes-plugin-{platform} installed? `hermes plugins list` shows it",
            )
        await found.attach(channel)
        return None

    async def _stop_request(self, _: Channel) -> Mapping[str, object]:
        self.stop_requested.set()
        return {"stopping": True}


@asynccontextmanager
async def hosted(
    home: Home,
    *,
    extra: Sequence[object] = (),
    installed: bool = True,
    disabled: Sequence[str] = (),
    wall: Callable[[], float] = time.time,
    runs: str = "a gateway in another program",
) -> AsyncIterator[Gateway]:
    """A gateway in this process, as long as the context lasts; drained when it is left.

    `extra`, `installed` and `disabled` choose the plugins, as in `startup.prepare`. `runs` is how
    this process is named to others that want the home.

    Raises HomeLocked when another process is the gateway of `home`, ConfigError, StoreError.
    """
    _make(home)
    with HomeLock(home.lock_path, runs=runs):
        plan = prepare(home, extra=extra, installed=installed, disabled=disabled)
        gateway = Gateway(home, plan, wall)
        try:
            await gateway.start()
            yield gateway
        finally:
            await gateway.stop()


async def serve(home: Home, *, disabled: Sequence[str] = ()) -> int:
    """Run a gateway until SIGTERM, SIGINT or a stop request. Returns the exit code.

    A second signal ends the drain at once: what is left stays in the database.
    """
    loop = asyncio.get_running_loop()
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    _make(home)
    with HomeLock(home.lock_path, runs="hermes run"):
        gateway = Gateway(home, prepare(home, disabled=disabled))
        await gateway.start()
        await _first(signals.get(), gateway.stop_requested.wait())
        log.info("stopping: new turns are not started, running ones may finish")
        draining = asyncio.create_task(gateway.stop(), name="drain")
        await _first(signals.get(), asyncio.shield(draining))
        if not draining.done():
            log.warning("stopping at once")
            os._exit(1)
        await draining
        return EXIT_NEVER if gateway.failed_for_good else 0


def _make(home: Home) -> None:
    """Make the directories, unless they belong to another program, which keeps its `state.db` there
    too."""
    require_ours(home.database())
    home.ensure()


async def _first(*waits: object) -> None:
    """Wait until one of the awaitables is done; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]  # type: ignore[call-overload]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
