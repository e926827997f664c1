"""Brings a running gateway in line with its files: one follower for each profile.

A profile that is served follows its settings; one that cannot be served yet (its directory is not
there, its file has faults) is tried again whenever its files change.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hermes_core.config import ProfileSettings
from hermes_core.errors import ConfigError, HermesError
from hermes_core.identity_locks import require_distinct
from hermes_core.profiles import ProfileScope, identity_file, read_uuid, renew
from hermes_core.reload import POLL, SETTLE, Plan, changes, make_plan, watch
from hermes_core.threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_core.profiles import ProfileSecrets
    from hermes_core.served import ServedProfile
    from hermes_core.startup import Profiles

GONE = "its directory was deleted: bring it back, or take it out of [gateway] profiles"


class Host(Protocol):
    """The gateway, as its followers see it."""

    @property
    def scopes(self) -> Sequence[ProfileScope]:
        """Those that are served."""

    async def begin(self, scope: ProfileScope) -> ServedProfile:
        """Serve one more profile. Raises HermesError: it is not served."""

    async def end(self, name: str, reason: str, grace: float) -> None:
        """Serve a profile no more."""

    async def changed(self, name: str) -> None:
        """The settings of a profile are in force."""

    unserved: dict[str, str]


class Follower:
    """Follows the files of one profile, until cancelled."""

    def __init__(
        self, name: str, profiles: Profiles, host: Host, *, settle: float = SETTLE
    ) -> None:
        self._name = name
        self._profiles = profiles
        self._host = host
        self._settle = settle
        self._poll = min(POLL, settle * POLL / SETTLE)
        self._secrets: ProfileSecrets | None = None

    async def run(self, profile: ServedProfile | None) -> None:
        """`profile` is what is served now; None when it cannot be served yet."""
        while True:
            if profile is None:
                profile = await self._wait_for_it()
            await self._follow(profile)
            profile = None

    async def _wait_for_it(self) -> ServedProfile:
        while True:
            async for _ in changes(self._paths, settle=self._settle, poll=self._poll):
                try:
                    scope = await in_thread(self._profiles.scope, self._name)
                    require_distinct([*self._host.scopes, scope])
                    return await self._host.begin(scope)
                except HermesError as error:
                    self._host.unserved[self._name] = str(error)

    @property
    def _paths(self) -> list[Path]:
        home = self._profiles.home
        files = (home.config_file(self._name), home.secrets_file(self._name))
        return [*files, identity_file(home.state_dir(self._name))]

    async def _follow(self, profile: ServedProfile) -> None:
        """Keep a served profile in line with its files until its directory is gone."""
        gone = asyncio.Event()
        scope = profile.scope

        def load() -> ProfileSettings:
            if read_uuid(scope.state_dir) != scope.uuid or not scope.config_dir.is_dir():
                gone.set()
                raise ConfigError(GONE, where=f"profile {self._name}")
            in_force = profile.settings.plugins
            settings, secrets = self._profiles.read(self._name, in_force.disabled)
            require_distinct(
                [
                    *(other for other in self._host.scopes if other is not scope),
                    replace(scope, settings=settings),
                ]
            )
            self._secrets = secrets
            if not make_plan(profile.settings, settings):
                renew(scope, scope.settings, secrets)
            return settings

        async def apply(plan: Plan) -> None:
            assert self._secrets is not None
            await profile.apply(plan, self._secrets)
            await self._host.changed(self._name)

        async def refuse(error: HermesError) -> None:
            profile.refused = str(error)
            if gone.is_set():
                raise _Gone

        try:
            await watch(
                self._paths,
                profile.settings,
                load,
                apply,
                refuse,
                settle=self._settle,
                poll=self._poll,
            )
        except _Gone:
            await self._host.end(self._name, GONE, 0.0)


class _Gone(Exception):
    """Leaves the loop of `watch`."""
