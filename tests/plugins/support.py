"""Installed distributions, plugins made of functions, and a loop whose time can be skipped."""

from __future__ import annotations

import asyncio
import os
import sys
import textwrap
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from hermes_core import hookimpl
from hermes_core import hookspecs as specs
from hermes_core.events import GatewayInfo, PlatformInfo
from hermes_core.plugins import Hooks, Plugin, load_plugins

T = TypeVar("T")

ANY: Any = None

FITTING = ("hermes-gateway[hooks-1]>=0.1",)
GATEWAY = GatewayInfo(version="1", pid=1, profiles=("default",))
PLATFORM = PlatformInfo(platform="demo", account="default")


@dataclass(frozen=True)
class Installer:
    """Puts distributions into a directory, as an installer leaves them there."""

    directory: Path

    @property
    def path(self) -> list[str]:
        return [str(self.directory)]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that finds what is installed here."""
        root = Path(__file__).parents[2]
        return {**os.environ, "PYTHONPATH": f"{self.directory}{os.pathsep}{root}"}

    def install(
        self,
        name: str,
        source: str = "",
        *,
        point: str | None = None,
        target: str | None = None,
        version: str = "1.0",
        requires: Sequence[str] = FITTING,
        header: str = "",
        commands: Sequence[str] = (),
    ) -> None:
        """Install `name` with a module of `source` and the entry point `point` that leads to it.

        `commands` are names of commands that it adds, and that are not there when they are called.
        """
        module = name.replace("-", "_")
        point = name.removeprefix("hermes-plugin-") if point is None else point
        (self.directory / f"{module}.py").write_text(textwrap.dedent(source))
        info = self.directory / f"{module}-{version}.dist-info"
        info.mkdir()
        fields = [f"Name: {name}", f"Version: {version}", *(header.splitlines())]
        fields += [f"Requires-Dist: {text}" for text in requires]
        (info / "METADATA").write_text("\n".join(["Metadata-Version: 2.1", *fields, "", "Text."]))
        if point:
            entries = f"[hermes.plugins]\n{point} = {target or module}\n[hermes.cli]\n"
            entries += "".join(f"{command} = {module}:absent\n" for command in commands)
            (info / "entry_points.txt").write_text(entries)


def plugin(name: str = "demo", **members: object) -> ModuleType:
    """A module with these members; hook implementations have to be marked already."""
    module = ModuleType(name)
    for member, value in members.items():
        setattr(module, member, value)
    return module


def hooks_of(*plugins: object, **options: Any) -> Hooks:
    """The runner of these plugins and of no installed one."""
    return load_plugins(extra=plugins, path=(), **options)


def judge(name: str, verdict: object, seen: list[str] | None = None) -> object:
    """A plugin whose `authorize` returns or raises `verdict`."""

    @hookimpl
    def authorize(sender: object) -> object:
        if seen is not None:
            seen.append(name)
        if isinstance(verdict, BaseException):
            raise verdict
        return verdict

    return plugin(name, authorize=authorize)


async def authorize(hooks: Hooks, ask: Callable[[Plugin], bool] | None = None) -> list[object]:
    """The answers of `authorize`; an error as its text."""
    answers = await hooks.decide(specs.authorize, ask, scope=ANY, sender=ANY, address=ANY)
    return [answer.value if answer.error is None else str(answer.error) for answer in answers]


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps when it is told to."""

    _skipped = 0.0

    def time(self) -> float:
        return super().time() + self._skipped

    def skip(self, seconds: float) -> None:
        self._skipped += seconds
        self.call_soon(lambda: None)


def run(work: Callable[[SkippingLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `work` on a loop that it may skip."""
    loop = SkippingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work(loop))


async def settle() -> None:
    """Let everything that can run come to rest."""
    for _ in range(20):
        await asyncio.sleep(0)


def forget(modules: Mapping[str, ModuleType], directory: Path) -> None:
    """Drop the modules that were imported from `directory`."""
    for name, module in list(modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(directory)):
            del sys.modules[name]
