"""Settings that change while they are in force."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from hermes_core.config import Declarations, ProfileSettings, load_profile
from hermes_core.errors import ConfigError, HermesError
from hermes_core.profiles import ProfileSecrets
from hermes_core.reload import Plan, make_plan, watch
from tests.config.support import Load

LINE = '[platforms.line]\ntoken = "env:LINE_TOKEN"\nallowed_users = ["1"]\n'

# ── plans ────────────────────────────────────────────────────────────────────────────────────────


class Expected(NamedTuple):
    apply: tuple[str, ...] = ()
    restart_accounts: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("", "", Expected()),
        (LINE, LINE + "\n# a comment\n", Expected()),
        ("", "[sessions]\nbusy = 'steer'", Expected(apply=("sessions.busy",))),
        ("", "[gateway]\nmax_running_turns = 1", Expected(apply=("gateway.max_running_turns",))),
        ("", "[gateway]\ndurability = 'normal'", Expected(needs_restart=("gateway.durability",))),
        (
            "",
            "[gateway]\nprofiles = ['default', 'work']",
            Expected(needs_restart=("gateway.profiles",)),
        ),
        ("", "[plugins]\nrequired = ['x']", Expected(needs_restart=("plugins.required",))),
        (
            "",
            "[authorization]\nauthorizers = ['x']",
            Expected(apply=("authorization.authorizers",)),
        ),
        ("", "[agent]\nuse = 'llm'", Expected(apply=("agent.use",))),
        ("", "[agent]\nsend_files_from = ['/x']", Expected(apply=("agent.send_files_from",))),
        ("", "[agent.command]\nargv = ['x']", Expected(apply=("agent.command",))),
        ("", "[memory_trim]\nenabled = false", Expected(apply=("memory_trim",))),
        ("", "[[hooks.outbound]]\nname='x'\nurl='y'", Expected(apply=("hooks.outbound",))),
        ("", LINE, Expected(restart_accounts=("line",))),
        (LINE, "", Expected(restart_accounts=("line",))),
        (LINE, LINE + "enabled = false", Expected(restart_accounts=("line",))),
        (LINE, LINE + "mode = 'push'", Expected(restart_accounts=("line",))),
        (LINE, LINE + "admins = ['1']", Expected(apply=("platforms.line.admins",))),
        (LINE, LINE.replace('"1"', '"2"'), Expected(apply=("platforms.line.allowed_users",))),
        (LINE, LINE + "agent = 'llm'", Expected(apply=("platforms.line.agent",))),
    ],
)
def test_what_a_change_means(load: Load, before: str, after: str, expected: Expected) -> None:
    plan = make_plan(load(before), load(after))
    assert Expected(plan.apply, plan.restart_accounts, plan.needs_restart) == expected
    assert bool(plan) is any(expected)
    for name in (*expected.apply, *expected.restart_accounts, *expected.needs_restart):
        assert name in str(plan)


def test_only_the_touched_account_is_restarted(load: Load) -> None:
    ops = '[platforms.line.accounts.ops]\ntoken = "env:AUDIT_HOOK_SECRET"\n'
    plan = make_plan(load(LINE + ops), load(LINE + ops + "mode = 'push'\n"))
    assert plan.restart_accounts == ("line.ops",)


def test_a_changed_secret_restarts_its_account(
    config_file: Path, declarations: Declarations
) -> None:
    config_file.write_text(LINE)

    def with_token(token: str) -> ProfileSettings:
        return _load(config_file, declarations, ProfileSecrets({"LINE_TOKEN": token}))

    plan = make_plan(with_token("old-token"), with_token("new-token"))
    assert plan.restart_accounts == ("line",)
    assert "token" not in str(plan)


def _load(path: Path, declarations: Declarations, secrets: ProfileSecrets) -> ProfileSettings:
    return load_profile(
        path,
        "default",
        platforms=declarations.platforms,
        agents=declarations.agents,
        sections=declarations.sections,
        secrets=secrets,
    )


# ── watching ─────────────────────────────────────────────────────────────────────────────────────

SETTLE = 0.2
PATIENCE = 30.0


class Follower:
    """What the watcher reports, in order."""

    def __init__(self, path: Path, load: Callable[[], ProfileSettings]) -> None:
        self.path = path
        self.load = load
        self.reports: asyncio.Queue[Plan | HermesError] = asyncio.Queue()

    async def next(self) -> Plan | HermesError:
        async with asyncio.timeout(PATIENCE):
            return await self.reports.get()

    async def next_plan(self) -> Plan:
        report = await self.next()
        assert isinstance(report, Plan)
        return report

    @contextlib.asynccontextmanager
    async def following(self, current: ProfileSettings) -> AsyncIterator[None]:
        task = asyncio.create_task(
            watch(
                [self.path],
                current,
                self.load,
                self.reports.put,
                self.reports.put,
                settle=SETTLE,
                poll=1.0,
            )
        )
        try:
            yield
            assert not task.done()
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
def follower(config_file: Path, declarations: Declarations, secrets: ProfileSecrets) -> Follower:
    return Follower(config_file, lambda: _load(config_file, declarations, secrets))


def busy(mode: str) -> str:
    return f"[sessions]\nbusy = '{mode}'\n"


@pytest.mark.case("CF-05")
def test_a_bad_edit_keeps_the_last_good_one_and_the_next_good_one_is_taken(
    follower: Follower,
) -> None:
    async def act() -> None:
        follower.path.write_text(busy("queue"))
        async with follower.following(follower.load()):
            follower.path.write_text("[sessions]\nbusy = \n")
            error = await follower.next()
            assert isinstance(error, ConfigError)
            assert error.faults[0].line == 2
            follower.path.write_text(busy("nonsense"))
            error = await follower.next()
            assert isinstance(error, ConfigError)
            assert error.faults[0].key == "sessions.busy"
            follower.path.write_text(busy("steer"))
            plan = await follower.next_plan()
            assert plan.apply == ("sessions.busy",)
            assert plan.settings.sessions.busy == "steer"

    asyncio.run(act())


def test_going_back_after_a_bad_edit_is_reported_as_good(follower: Follower) -> None:
    async def act() -> None:
        follower.path.write_text(busy("queue"))
        async with follower.following(follower.load()):
            follower.path.write_text("=")
            assert isinstance(await follower.next(), ConfigError)
            follower.path.write_text(busy("queue"))
            assert not await follower.next_plan()

    asyncio.run(act())


@pytest.mark.case("CF-03")
def test_a_file_that_is_written_slowly_counts_when_it_is_whole(follower: Follower) -> None:
    tables = [f"[memory_{number}]\nx = {number}\n" for number in range(40)]
    lines = "".join(tables).splitlines(keepends=True)

    async def write_slowly(last: str) -> None:
        with follower.path.open("w") as file:
            for line in [*lines, *last.splitlines(keepends=True)]:
                file.write(line)
                file.flush()
                await asyncio.sleep(SETTLE / 20)

    async def act() -> None:
        follower.path.write_text("".join(lines) + LINE)
        async with follower.following(follower.load()):
            for mode in ("push", "poll", "push"):
                await write_slowly(f"{LINE}mode = '{mode}'\n{busy('steer')}")
                plan = await follower.next_plan()
                account = plan.settings.account("line")
                assert account is not None
                assert account.allowed_users == ("1",)
                if mode == "push":
                    assert plan.restart_accounts == ("line",)
            assert follower.reports.empty()

    asyncio.run(act())


def test_a_file_that_is_replaced_by_renaming(follower: Follower) -> None:
    async def act() -> None:
        follower.path.write_text(busy("queue"))
        async with follower.following(follower.load()):
            for mode in ("steer", "coalesce"):
                new = follower.path.with_suffix(".new")
                new.write_text(busy(mode))
                new.replace(follower.path)
                assert (await follower.next_plan()).settings.sessions.busy == mode

    asyncio.run(act())


def test_a_file_behind_a_link(follower: Follower, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere" / "file.toml"
    target.parent.mkdir()
    target.write_text(busy("queue"))
    follower.path.symlink_to(target)

    async def act() -> None:
        async with follower.following(follower.load()):
            target.write_text(busy("steer"))
            assert (await follower.next_plan()).settings.sessions.busy == "steer"

    asyncio.run(act())


def test_what_changed_while_nobody_watched_is_found(follower: Follower) -> None:
    async def act() -> None:
        follower.path.write_text(busy("queue"))
        current = follower.load()
        follower.path.write_text(busy("steer"))
        async with follower.following(current):
            plan = await follower.next_plan()
        follower.path.write_text(busy("coalesce"))
        async with follower.following(plan.settings):
            assert (await follower.next_plan()).settings.sessions.busy == "coalesce"

    asyncio.run(act())


def test_a_file_that_comes_later_and_goes_again(follower: Follower) -> None:
    async def act() -> None:
        async with follower.following(follower.load()):
            follower.path.write_text(busy("steer"))
            assert (await follower.next_plan()).settings.sessions.busy == "steer"
            follower.path.unlink()
            assert (await follower.next_plan()).settings.sessions.busy == "queue"

    asyncio.run(act())


def test_a_directory_that_is_not_there_yet(
    tmp_path: Path, declarations: Declarations, secrets: ProfileSecrets
) -> None:
    path = tmp_path / "later" / "config.toml"
    follower = Follower(path, lambda: _load(path, declarations, secrets))

    async def act() -> None:
        async with follower.following(follower.load()):
            path.parent.mkdir()
            path.write_text(busy("steer"))
            assert (await follower.next_plan()).settings.sessions.busy == "steer"

    asyncio.run(act())


def test_a_comment_changes_nothing(follower: Follower) -> None:
    async def act() -> None:
        follower.path.write_text(busy("queue"))
        async with follower.following(follower.load()):
            follower.path.write_text("# only a comment\n" + busy("queue"))
            follower.path.write_text(busy("steer"))
            assert (await follower.next_plan()).apply == ("sessions.busy",)
            assert follower.reports.empty()

    asyncio.run(act())
