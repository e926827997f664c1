"""Settings that change while the gateway runs: watch, wait until whole, check, say what to do.

A file that is being written may be valid TOML at every moment and still be half of what its author
means. So a change counts only when size, times and content of every file have stayed the same for
`settle` seconds, and when what was read is still what is there afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from hermes_core.config import AccountSettings, ProfileSettings
from hermes_core.config.document import MAX_SETTINGS_FILE
from hermes_core.errors import ConfigError, HermesError
from hermes_core.files import UnusableFile, read_bounded
from hermes_core.threads import in_thread

log = logging.getLogger(__name__)

SETTLE = 1.0
"""Seconds without a change after which a file counts as written. Editors take milliseconds."""
POLL = 15.0
"""Seconds after which the files are looked at even though no change was reported."""

_LIVE_GATEWAY = ("max_running_turns", "max_waiting", "shutdown_grace", "start_grace")

FileState: TypeAlias = tuple[int, int, int, str]
"""Time of change, size, file number, digest of the content."""
Snapshot: TypeAlias = tuple[FileState, ...]


@dataclass(frozen=True)
class Plan:
    """What a change of one profile's settings means.

    `apply` names what takes effect at once, `restart_accounts` the accounts to start, stop or
    connect anew, `needs_restart` what waits for the next start of the gateway.
    """

    settings: ProfileSettings
    apply: tuple[str, ...] = ()
    restart_accounts: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.apply or self.restart_accounts or self.needs_restart)

    def __str__(self) -> str:
        parts = (
            ("apply", self.apply),
            ("restart the accounts", self.restart_accounts),
            ("needs a restart of the gateway", self.needs_restart),
        )
        return "; ".join(f"{what}: {', '.join(names)}" for what, names in parts if names) or "none"


def make_plan(old: ProfileSettings, new: ProfileSettings) -> Plan:
    """Compare two settings of one profile."""
    gateway = [f"gateway.{name}" for name in _changed(old.gateway, new.gateway)]
    live = [name for name in gateway if name.removeprefix("gateway.") in _LIVE_GATEWAY]
    apply = [*live]
    apply += [f"sessions.{name}" for name in _changed(old.sessions, new.sessions)]
    apply += [f"retention.{name}" for name in _changed(old.retention, new.retention)]
    apply += [f"authorization.{name}" for name in _changed(old.authorization, new.authorization)]
    if old.agent.use != new.agent.use:
        apply.append("agent.use")
    if old.agent.send_files_from != new.agent.send_files_from:
        apply.append("agent.send_files_from")
    apply += [f"agent.{name}" for name in _changed_keys(old.agent.tables, new.agent.tables)]
    apply += _changed_keys(old.sections, new.sections)
    restart_accounts: list[str] = []
    before = {account.name: account for account in old.accounts}
    after = {account.name: account for account in new.accounts}
    for name in dict.fromkeys((*before, *after)):
        changed = _changed_account(before.get(name), after.get(name))
        # An adapter was built from its plugin's settings. All else is read at each message.
        if changed is None or "settings" in changed:
            restart_accounts.append(name)
        else:
            apply += [f"platforms.{name}.{key}" for key in changed]
    needs_restart = [name for name in gateway if name not in live]
    needs_restart += [f"plugins.{name}" for name in _changed(old.plugins, new.plugins)]
    return Plan(new, tuple(apply), tuple(restart_accounts), tuple(needs_restart))


def _changed(old: object, new: object) -> list[str]:
    names = getattr(type(old), "__struct_fields__", ())
    return [name for name in names if getattr(old, name) != getattr(new, name)]


def _changed_keys(old: Mapping[str, object], new: Mapping[str, object]) -> list[str]:
    return [key for key in dict.fromkeys((*old, *new)) if old.get(key) != new.get(key)]


def _changed_account(old: AccountSettings | None, new: AccountSettings | None) -> list[str] | None:
    """The keys that differ; None when the account came or went."""
    return None if old is None or new is None else _changed(old, new)


async def watch(
    paths: Sequence[Path],
    current: ProfileSettings,
    load: Callable[[], ProfileSettings],
    on_plan: Callable[[Plan], Awaitable[None]],
    on_refused: Callable[[HermesError], Awaitable[None]],
    *,
    settle: float = SETTLE,
    poll: float = POLL,
) -> None:
    """Follow the settings of one profile until cancelled.

    `load` reads and checks everything anew (in a thread). `on_plan` gets each change that is valid
    and means something, and raises HermesError when it cannot be had; `on_refused` gets the reason
    then, and each time the files become invalid, and `current` stays in force. A good edit after a
    bad one is taken like any other.
    """
    refused = False
    async with contextlib.aclosing(changes(paths, settle=settle, poll=poll)) as settled:
        async for state in settled:
            try:
                settings = await in_thread(load)
            except ConfigError as error:
                log.error("the settings are refused, the old ones stay in force: %s", error)
                refused = True
                await on_refused(error)
                continue
            if await in_thread(snapshot, paths) != state:
                continue  # changed while it was read: `changes` will say so
            plan = make_plan(current, settings)
            if not (plan or refused):
                continue
            log.info("the settings changed: %s", plan)
            try:
                await on_plan(plan)
            except HermesError as error:
                log.error("the settings cannot be put in force, the old ones stay: %s", error)
                refused = True
                await on_refused(error)
            else:
                refused, current = False, settings


async def changes(
    paths: Sequence[Path], *, settle: float = SETTLE, poll: float = POLL
) -> AsyncGenerator[Snapshot, None]:
    """The state of the files whenever they have come to rest in a new one, and once at the start.

    The first one covers what changed while nobody watched.
    """
    known: Snapshot | None = None
    async with _Nudges(paths) as nudges:
        while True:
            state = await in_thread(snapshot, paths)
            while state != known:
                await asyncio.sleep(settle)
                rested = await in_thread(snapshot, paths)
                if rested == state:
                    known = state
                    yield state
                state = rested
            await nudges.wait(poll)


def snapshot(paths: Iterable[Path]) -> Snapshot:
    """What the files look like now; a file that cannot be read counts with the reason."""
    return tuple(_file_state(path) for path in paths)


def _file_state(path: Path) -> FileState:
    try:
        content = read_bounded(path, limit=MAX_SETTINGS_FILE)
        status = path.stat()
    except FileNotFoundError:
        return (0, 0, 0, "absent")
    except (UnusableFile, OSError) as error:
        return (0, 0, 0, str(error))
    digest = hashlib.sha256(content).hexdigest()
    return (status.st_mtime_ns, status.st_size, status.st_ino, digest)


class _Nudges:
    """Wakes up when something happens to the files. It may miss things: its user looks anyway."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._happened = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> _Nudges:
        self._task = asyncio.create_task(self._listen(), name="watch the settings")
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])

    async def wait(self, seconds: float) -> None:
        """Return when something happened, after `seconds` at the latest."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._happened.wait()
        self._happened.clear()

    async def _listen(self) -> None:
        import watchfiles

        while True:
            names = self._names()
            # An editor replaces the file, so what is watched is its directory.
            directories = sorted({path.parent for path in names if path.parent.is_dir()})
            ours = _Ours(names)
            try:
                async for _ in watchfiles.awatch(
                    *directories, watch_filter=ours, debounce=100, recursive=False
                ):
                    self._happened.set()
            except (OSError, RuntimeError, ValueError) as error:
                log.warning("cannot watch the settings, looking from time to time: %s", error)
            await asyncio.sleep(POLL)

    def _names(self) -> frozenset[Path]:
        """The files, and where symbolic links lead to."""
        return frozenset(self._paths).union(path.resolve() for path in self._paths)


class _Ours:
    def __init__(self, names: frozenset[Path]) -> None:
        self._names = names

    def __call__(self, _: object, path: str) -> bool:
        return Path(path) in self._names
