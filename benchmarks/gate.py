"""What the gate costs per message: short and long lists, with and without plugins to ask.

``python -m benchmarks.gate`` prints microseconds a message, the best of five rounds. And what a
profile costs that is served and has nothing to do: megabytes of resident memory.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from pathlib import Path

from hermes_core import hookimpl
from hermes_core.authorization import Gate
from hermes_core.config import AccountSettings, AuthorizationSettings, ProfileSettings
from hermes_core.gateway import hosted
from hermes_core.home import Home
from hermes_core.messages import Address, Message, Sender
from hermes_core.plugins import load_plugins
from hermes_core.policy import AccessList
from hermes_core.profiles import ProfileScope, ProfileSecrets
from hermes_core.settings import Settings
from hermes_core.testing import ScriptedAgent, ScriptedPlatform

MESSAGES = 5000
EVENT = Message(
    address=Address(platform="line", chat_id="c"), sender=Sender(id="5"), event_id="e", text=""
)


class Abstains:
    @hookimpl
    def authorize(self) -> None:
        return None


class Nobody:
    def has(self, *_: str) -> bool:
        return False


def gate(hooks: int) -> Gate:
    plugins = [(f"judge{number}", Abstains()) for number in range(hooks)]
    authorizers = AuthorizationSettings(authorizers=tuple(name for name, _ in plugins))
    settings = ProfileSettings(authorization=authorizers)
    scope = ProfileScope("default", "uuid", Path("/"), Path("/"), settings, ProfileSecrets())
    return Gate(load_plugins(extra=plugins, path=()), scope, Nobody())


def access(entries: int) -> AccessList:
    users = tuple(map(str, range(entries)))
    settings = AccountSettings(
        platform="line", account="default", settings=Settings(), allowed_users=users
    )
    return AccessList.build(settings, "line", str)


async def microseconds(hooks: int, entries: int) -> float:
    checked, listed = gate(hooks), access(entries)
    rounds = []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(MESSAGES):
            await checked.check(EVENT, listed)
        rounds.append((time.perf_counter() - began) / MESSAGES)
    return min(rounds) * 1e6


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


async def megabytes(profiles: int) -> float:
    """What a gateway with so many idle profiles adds to this process."""
    with tempfile.TemporaryDirectory() as root:
        home = Home(Path(root), Path(root))
        names = ["default", *(f"p{number}" for number in range(1, profiles))]
        for name in names:
            home.ensure(name)
            home.config_file(name).write_text('[agent]\nuse = "scripted"\n')
        with home.config_file().open("a") as file:
            file.write(f"[gateway]\nprofiles = {json.dumps(names)}\n")
        before = resident()
        plugins = [ScriptedPlatform(), ScriptedAgent()]
        async with hosted(home, extra=plugins, installed=False):
            await asyncio.sleep(1)
            return resident() - before


def main() -> None:
    print(f"{'hooks':>6}{'10 entries':>14}{'10,000 entries':>17}")
    for hooks in (0, 1, 5):
        short, long = (asyncio.run(microseconds(hooks, entries)) for entries in (10, 10_000))
        print(f"{hooks:>6}{short:>11.1f} µs{long:>14.1f} µs")
    one, many = (asyncio.run(megabytes(count)) for count in (1, 41))
    print(f"an idle profile: {(many - one) / 40:.2f} MB")


if __name__ == "__main__":
    main()
