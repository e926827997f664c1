"""Run worlds by their seeds, and say what is wrong with them."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from hermes_core import ids
from hermes_core.served import ServedProfile
from hermes_core.store.database import open_writer
from tests.world.checks import check_accepted, check_at_rest
from tests.world.loop import DoesNotRest, WorldLoop
from tests.world.world import World


@dataclass
class Failure:
    """A world that broke a promise. `replay` with the same seed does it again."""

    seed: int
    faults: list[str]

    def __str__(self) -> str:
        return f"world {self.seed}:\n  " + "\n  ".join(self.faults)


class Explorer:
    """Runs worlds in one directory, each with a fresh copy of an empty database."""

    def __init__(
        self, directory: Path, faulty: Callable[..., ServedProfile] = ServedProfile
    ) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._faulty = faulty
        self._template = directory / "template.db"
        open_writer(self._template, "normal").close()
        self.messages = 0
        self.worlds = 0
        self.steps: list[int] = []

    def explore(self, seeds: Iterable[int]) -> Failure | None:
        """The first world that breaks a promise, None when none does."""
        for seed in seeds:
            faults = self.run(seed)
            if faults:
                return Failure(seed, faults)
        return None

    def run(self, seed: int) -> list[str]:
        """The faults of one world."""
        home = Path(tempfile.mkdtemp(dir=self._directory))
        try:
            shutil.copy(self._template, home / "state.db")
            ids.seed(seed)
            random.seed(seed)  # the jitter of pauses
            return self._run(World(seed, home, faulty=self._faulty))
        finally:
            shutil.rmtree(home)

    def _run(self, world: World) -> list[str]:
        end = world.habit.end
        try:
            self._live(world, "first", crash=end == "crash", shutdown=end == "shutdown")
            faults = check_accepted(world)
            if end == "rest":
                faults += check_at_rest(world)
            else:
                world.platform.results.clear()
                self._live(world, "second", crash=False, shutdown=False, quiet=True)
                faults += check_at_rest(world)
        except DoesNotRest as error:
            faults = [*world.faults, str(error)]
        self.messages += len(world.accepted)
        self.worlds += 1
        return faults

    def _live(
        self, world: World, name: str, *, crash: bool, shutdown: bool, quiet: bool = False
    ) -> None:
        """One life of the gateway: until everything rests, it was stopped, or it crashed."""
        loop = WorldLoop(f"{name} life of {world.seed}")
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(lambda _, context: world.faults.append(_told(context)))
        try:
            profile = world.build()
            life = loop.create_task(_life(world, profile, shutdown=shutdown, quiet=quiet))
            if crash:
                limit = world.rng.randint(1, 400)
                while loop.steps < limit and not loop.resting:
                    loop.run_steps(1)
            else:
                loop.run_to_rest()
                if not life.done():
                    world.faults.append("the script does not end")
                elif life.exception() is not None:
                    world.faults.append(f"the script failed: {life.exception()!r}")
                if not shutdown and profile.lanes.busy:
                    world.faults.append("E: a lane is left")
        finally:
            self.steps.append(loop.steps)
            loop.set_exception_handler(lambda *_: None)
            world.store.abandon()
            _bury(loop)
            asyncio.set_event_loop(None)
            loop.close()


async def _life(world: World, profile: ServedProfile, *, shutdown: bool, quiet: bool) -> None:
    await profile.start()
    await world.connected(profile)
    world.begin_keeping_house(profile)
    if not quiet:
        script = asyncio.ensure_future(world.script())
        if shutdown:
            await asyncio.sleep(world.rng.choice((0.0, 0.1, 1.0, 3.0)))
            await profile.stop(world.rng.choice((0.0, 2.0, 50.0)))
        await script


def _told(context: dict[str, object]) -> str:
    return f"the loop was told: {context.get('message')}: {context.get('exception')!r}"


def _bury(loop: WorldLoop) -> None:
    """The process is gone: nothing of it runs any more."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            with contextlib.suppress(BaseException):
                # Clean-up code of a process that is gone has nothing to work with.
                if coroutine is not None:
                    coroutine.close()
