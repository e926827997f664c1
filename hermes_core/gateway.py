"""The composition root: takes the home, builds the rooms, starts them, drains them, stops them."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from hermes_core import hookspecs as specs
from hermes_core.administration import Administration
from hermes_core.config import user_config_ignored
from hermes_core.drains import Drain
from hermes_core.errors import ControlError, HermesError
from hermes_core.events import GatewayInfo
from hermes_core.following import Follower
from hermes_core.home import Home
from hermes_core.ids import new_id
from hermes_core.logs import recent_errors
from hermes_core.names import DEFAULT_PROFILE
from hermes_core.plugins.discovery import scan
from hermes_core.reload import SETTLE, make_plan
from hermes_core.repair import Change
from hermes_core.served import ServedProfile
from hermes_core.slots import Slots
from hermes_core.startup import Plan, prepare
from hermes_core.store import Store
from hermes_core.store.database import require_ours
from hermes_core.supervision.control import ControlServer
from hermes_core.supervision.lock import HomeLock
from hermes_core.threads import in_thread
from hermes_core.version import VERSION

if TYPE_CHECKING:
    from hermes_core.platforms import Channel
    from hermes_core.profiles import ProfileScope
    from hermes_core.redaction import Redactor

log = logging.getLogger(__name__)

HOUSEKEEPING = 60.0
"""Seconds between two rounds of what can wait."""
HOOK_GRACE = 5.0
"""Seconds that observers get at the end to take in what they were told."""


class Gateway:
    """A running gateway. Whoever makes one holds the home's lock."""

    def __init__(
        self,
        home: Home,
        plan: Plan,
        wall: Callable[[], float] = time.time,
        *,
        settle: float = SETTLE,
    ) -> None:
        """`settle` is how long, in seconds, files of settings must be at rest to count."""
        self.home = home
        self.hooks = plan.hooks
        self._settings = plan.settings.gateway
        self._slots = Slots(self._settings.max_running_turns)
        self._wall = wall
        self.unserved = dict(plan.unserved)
        self.profiles: dict[str, ServedProfile] = {}
        for scope in plan.scopes:
            try:
                self.profiles[scope.name] = self._serve(scope)
            except HermesError as error:
                self._leave_out(scope.name, error)
        self._control = ControlServer(
            home.socket_path,
            {
                "status": self._status,
                "plugins.stats": self._plugin_stats,
                "attach": self._attach,
                "service": self._service,
                "repair": self._repair,
                "stop": self._stop,
                "restart": self._restart,
                "drain": self._drain,
                **Administration(self).verbs,
            },
        )
        self.instance = new_id("g")
        self.grace = float(self._settings.shutdown_grace)
        self.drain = Drain(self._pause, self._resume, wall)
        self._plan = plan
        self._settle = settle
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._housekeeper: asyncio.Task[None] | None = None
        self.held: Callable[[], Mapping[str, object] | None] = lambda: None
        self.stop_requested = asyncio.Event()
        self.restart_wanted = False

    async def start(self) -> None:
        """Serve. On return everything runs; accounts may still be connecting.

        While a required plugin is missing nothing is taken in: no account is connected.
        """
        if self.blocked:
            log.error("nothing is taken in: %s", self.blocked)
        await self.hooks.start()
        for profile in list(self.profiles.values()):
            try:
                await self._start(profile)
            except HermesError as error:
                self._leave_out(profile.scope.name, error)
        await self._control.start()
        self._housekeeper = asyncio.create_task(self._housekeep(), name="housekeeping")
        self._housekeeper.add_done_callback(_report)
        if not user_config_ignored():
            for name in (*self.profiles, *self.unserved):
                self._follow(name)
        self.hooks.notify(specs.on_gateway_start, gateway=self._info())
        log.info("the gateway is ready", extra={"home": str(self.home.state_root)})

    async def stop(self) -> None:
        """Drain within the grace period and close everything."""
        await self._end_housekeeping()
        for name in list(self._followers):
            await self._unfollow(name)
        limit = self.grace
        await asyncio.gather(*(profile.stop(limit) for profile in self.profiles.values()))
        self.drain.end()  # not before: turns would begin again
        await self._control.stop()
        self.hooks.notify(specs.on_gateway_stop, gateway=self._info())
        await self.hooks.stop(HOOK_GRACE)
        await asyncio.gather(*(profile.close() for profile in self.profiles.values()))
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
    def blocked(self) -> str:
        """Why nothing may be taken in, "" when everything that is required is there."""
        names = ", ".join(self.hooks.missing_required)
        return f"required plugins are missing or broken: {names}" if names else ""

    @property
    def lingering(self) -> list[str]:
        """What did not end when it was told to, after `stop`."""
        turns = [
            f"turn {run.turn_id}"
            for profile in self.profiles.values()
            for run in profile.lanes.abandoned
        ]
        return turns + [f"{call.plugin}.{call.hook}" for call in self.hooks.abandoned]

    def _serve(self, scope: ProfileScope) -> ServedProfile:
        return ServedProfile(
            scope=scope,
            settings=scope.settings,
            store=Store(self.home.database(scope.name), scope.settings.gateway.durability),
            hooks=self.hooks,
            slots=self._slots,
            restart=self.request_restart,
            wall=self._wall,
        )

    async def _start(self, profile: ServedProfile) -> None:
        """Start a profile. One whose start fails, or is cancelled, leaves nothing running."""
        try:
            await profile.start(self.blocked)
        except BaseException:
            await profile.stop(0.0)
            await profile.close()
            raise

    # ── profiles that come, change and go ────────────────────────────────────────────────────────

    @property
    def scopes(self) -> list[ProfileScope]:
        return [profile.scope for profile in self.profiles.values()]

    def profile(self, name: object) -> ServedProfile:
        """The profile of that name. Raises ControlError, saying why, when it is not served."""
        profile = self.profiles.get(str(name))
        if profile is None:
            reason = self.unserved.get(str(name), "`[gateway] profiles` does not name it")
            raise ControlError(f"this gateway does not serve the profile {name!r}: {reason}")
        return profile

    async def begin(self, scope: ProfileScope) -> ServedProfile:
        """Serve one more profile. Raises HermesError: it is not served."""
        profile = self._serve(scope)
        if self.drain.status() is not None:
            profile.pause()
        await self._start(profile)
        self.profiles[scope.name] = profile
        self.unserved.pop(scope.name, None)
        log.info("the profile is served", extra={"profile": scope.name})
        return profile

    async def end(self, name: str, reason: str, grace: float) -> None:
        """Drain a profile and serve it no more."""
        profile = self.profiles.pop(name, None)
        self.unserved[name] = reason
        log.warning("the profile is not served any more: %s", reason, extra={"profile": name})
        if profile is not None:
            await profile.stop(grace)
            await profile.close()

    async def changed(self, name: str) -> None:
        """The settings of a profile changed. Those of the process are the default profile's."""
        if name != DEFAULT_PROFILE:
            return
        self._settings = settings = self.profiles[name].settings.gateway
        self.grace = float(settings.shutdown_grace)
        await self._slots.resize(settings.max_running_turns)
        for profile in self.profiles.values():
            if profile.settings.gateway != settings:
                new = replace(profile.settings, gateway=settings)
                await profile.apply(make_plan(profile.settings, new), profile.scope.secrets)

    async def look_again(self, name: str) -> bool:
        """Look at the files of a profile at once. False when the settings do not name it."""
        if name in self.profiles:
            return True
        if name not in self._settings.profiles:
            return False
        await self._unfollow(name)
        self.unserved.setdefault(name, "it was not looked at yet")
        self._follow(name)
        return True

    async def leave(self, name: str, reason: str) -> bool:
        """Drain a profile and do not serve it until it is asked for. False when it was not
        served. Raises ControlError for the default profile."""
        if name == DEFAULT_PROFILE:
            raise ControlError("the default profile is always served")
        await self._unfollow(name)
        served = name in self.profiles
        if served:
            await self.end(name, reason, self.grace)
        return served

    def _follow(self, name: str) -> None:
        follower = Follower(name, self._plan.profiles, self, settle=self._settle)
        self._followers[name] = asyncio.create_task(
            follower.run(self.profiles.get(name)), name=f"follow the settings of {name}"
        )
        self._followers[name].add_done_callback(_report)

    async def _unfollow(self, name: str) -> None:
        task = self._followers.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _leave_out(self, name: str, error: HermesError) -> None:
        """Do not serve a profile, and say why. The default profile is not left out: raises
        `error`."""
        if name == DEFAULT_PROFILE:
            raise error
        self.profiles.pop(name, None)
        self.unserved[name] = str(error)
        log.error("the profile is not served: %s", error, extra={"profile": name})

    async def _housekeep(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING)
            for profile in list(self.profiles.values()):
                try:
                    await profile.housekeep()
                except HermesError as error:
                    log.warning("housekeeping: %s", error)
                except Exception:  # the other profiles, and the next minute, are kept in order
                    log.exception("housekeeping broke", extra={"profile": profile.scope.name})

    async def _end_housekeeping(self) -> None:
        if self._housekeeper is not None:
            self._housekeeper.cancel()
            await asyncio.wait([self._housekeeper])

    def _pause(self) -> None:
        for profile in self.profiles.values():
            profile.pause()

    def _resume(self) -> None:
        for profile in self.profiles.values():
            profile.resume()

    @property
    def failed_for_good(self) -> bool:
        """It can never work as it is configured: a required plugin is missing, or every account
        failed in a way that no restart mends."""
        if self.blocked:
            return True
        accounts = [account for profile in self.profiles.values() for account in profile.accounts]
        return bool(accounts) and all(account.state == "failed" for account in accounts)

    def _info(self) -> GatewayInfo:
        return GatewayInfo(version=VERSION, pid=os.getpid(), profiles=tuple(self.profiles))

    # ── control verbs ────────────────────────────────────────────────────────────────────────────

    async def _status(self, _: Channel) -> Mapping[str, object]:
        return {
            "version": VERSION,
            "pid": os.getpid(),
            "instance": self.instance,
            "home": str(self.home.state_root),
            "blocked": self.blocked,
            "draining": "stopping" if self.stop_requested.is_set() else "",
            "drain": self.drain.status(),
            "profiles": await asyncio.gather(
                *(profile.facts() for profile in self.profiles.values())
            ),
            "held": self.held(),
            "errors": recent_errors(),
            "breakers": [
                {"plugin": tally.plugin, "hook": tally.hook}
                for tally in self.hooks.stats.values()
                if tally.suspended
            ],
            "changed": await in_thread(self._changed_plugins),
            "unserved": [
                {"profile": name, "reason": reason} for name, reason in self.unserved.items()
            ],
            "quarantined": [
                {"plugin": broken.name, "reason": broken.reason}
                for broken in self.hooks.quarantined
            ],
        }

    def _changed_plugins(self) -> list[dict[str, str]]:
        """Plugins that run as they were, while something else is installed now."""
        here = {found.distribution.name: found.distribution.version for found in scan().candidates}
        return [
            {
                "plugin": plugin.name,
                "runs": plugin.version,
                "installed": here.get(plugin.distribution, ""),
            }
            for plugin in self.hooks.plugins
            if plugin.distribution and here.get(plugin.distribution, "") != plugin.version
        ]

    async def _plugin_stats(self, _: Channel) -> Mapping[str, object]:
        return self.hooks.report()

    async def _service(self, channel: Channel) -> Mapping[str, object]:
        """Hand a request to a service of a plugin: {profile, name, request}."""
        wanted = channel.parameters
        profile = self.profile(wanted.get("profile", DEFAULT_PROFILE))
        request = wanted.get("request")
        return await profile.services.request(
            str(wanted.get("name")), request if isinstance(request, dict) else {}
        )

    async def _repair(self, channel: Channel) -> Mapping[str, object]:
        """Make a change by hand: {profile, what, action, rows}."""
        wanted = channel.parameters
        done = await self.profile(wanted.get("profile", DEFAULT_PROFILE)).repair(
            Change.parse(wanted)
        )
        return {"rows": list(done.rows)}

    async def _attach(self, channel: Channel) -> Mapping[str, object] | None:
        """Hand a local client over to an adapter, until it leaves."""
        wanted = channel.parameters
        profile = self.profile(wanted.get("profile", DEFAULT_PROFILE))
        platform, account = str(wanted.get("platform")), str(wanted.get("account", "default"))
        key = platform if account == "default" else f"{platform}.{account}"
        found = profile.accounts.get(key)
        if found is None:
            raise ControlError(
                f"the profile {profile.scope.name} has no account {key!r}",
                remedy=f"is hermes-plugin-{platform} installed? `hermes plugins list` shows it",
            )
        await found.attach(channel)
        return None

    async def _stop(self, channel: Channel) -> Mapping[str, object]:
        grace = channel.parameters.get("grace")
        if isinstance(grace, int | float) and not isinstance(grace, bool):
            self.grace = float(grace)
        self.stop_requested.set()
        return {"stopping": True, "grace": self.grace}

    async def _restart(self, _: Channel) -> Mapping[str, object]:
        """Answered at once: whoever asks may be part of a turn that the drain waits for."""
        return {"restarting": self.request_restart(), "instance": self.instance}

    async def _drain(self, channel: Channel) -> Mapping[str, object]:
        """Begin no turn for some time, or begin them again. A drain has an owner and an end."""
        wanted = channel.parameters
        seconds = wanted.get("seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds < 0:
            raise ControlError("a drain needs a number of seconds")
        self.drain.begin(str(wanted.get("owner", "somebody")), float(seconds))
        return {"drain": self.drain.status()}


@asynccontextmanager
async def hosted(
    home: Home,
    *,
    extra: Sequence[object] = (),
    installed: bool = True,
    disabled: Sequence[str] = (),
    redactor: Redactor | None = None,
    settle: float = SETTLE,
    wall: Callable[[], float] = time.time,
    runs: str = "a gateway in another program",
) -> AsyncIterator[Gateway]:
    """A gateway in this process, as long as the context lasts; drained when it is left.

    `extra`, `installed`, `disabled` and `redactor` are those of `startup.prepare`, `settle` and
    `wall` are those of `Gateway`. `runs` is how this process is named to others that want the home.

    Raises HomeLocked when another process is the gateway of `home`, ConfigError, StoreError.
    """
    make_home(home)
    with HomeLock(home.lock_path, runs=runs):
        plan = prepare(home, extra=extra, installed=installed, disabled=disabled, redactor=redactor)
        gateway = Gateway(home, plan, wall, settle=settle)
        try:
            await gateway.start()
            async with _until_stop(gateway):
                yield gateway
        finally:
            await gateway.stop()


@asynccontextmanager
async def _until_stop(gateway: Gateway) -> AsyncIterator[None]:
    """Cancel the body when a local command asks the gateway to stop. Raises HermesError then."""
    body = asyncio.current_task()
    assert body is not None

    async def watch() -> None:
        await gateway.stop_requested.wait()
        body.cancel()

    watching = asyncio.create_task(watch(), name="wait for a stop request")
    try:
        yield
    except asyncio.CancelledError:
        if not gateway.stop_requested.is_set():
            raise
        body.uncancel()
        raise HermesError("the gateway was told to stop") from None
    finally:
        watching.cancel()


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("a task of the gateway ended: %s", task.get_name(), exc_info=error)


def make_home(home: Home) -> None:
    """Make the directories, unless they belong to another program, which keeps its `state.db` there
    too."""
    require_ours(home.database())
    home.ensure()
