"""Rounds of traffic and kill -9 on one home, and what can be seen of them afterwards.

``python -m tests.crash.rounds KILLS`` makes as many and prints one line for a program to read.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec

from hermes_core.errors import ControlError
from hermes_core.store import open_read_only
from hermes_core.store.database import connection_of
from hermes_core.supervision.control import open_channel
from hermes_core.testing import AgentRun, Sent
from tests.crash.victim import KINDS, NETWORK, POINTS, RUNS

ROOT = Path(__file__).parents[2]
CHATS = ("c0", "c1", "c2")
MARK = "[repeated] "
ROUND = 12
"""Messages that are offered in each chat between two kills."""
BIRTH = 0.6
"""Seconds within which a process is killed that is to die while it starts."""
LIFE = 0.3
"""Seconds within which a process is killed that serves."""
END = 0.03
"""Seconds within which a process is killed that was told to end."""
HOW = (*POINTS, "birth", "drain", "any time")
"""The ways to die: at a point of its own, or by a signal at a random time."""


@dataclass
class Report:
    """What became of the messages of one home, or of several."""

    kills: int = 0
    messages: int = 0
    answered: int = 0
    given_up: int = 0
    """Cut twice, and their people were told."""
    lost: int = 0
    reordered: int = 0
    reruns: int = 0
    """Runs of an agent after the commit of its answer."""
    repeats: int = 0
    """Messages that arrived a second time and say so."""
    duplicates: int = 0
    """Messages that arrived a second time although the platform can tell, or without saying so."""
    strays: int = 0
    """Beginnings of answers that stay although the platform can tell that they are there."""
    faults: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def __str__(self) -> str:
        return (
            f"kills={self.kills} messages={self.messages} lost={self.lost}"
            f" reordered={self.reordered} duplicates={self.duplicates} strays={self.strays}"
            f" reruns={self.reruns} repeats={self.repeats} given_up={self.given_up}"
        )


class Rounds:
    """The outside of one home: starts its gateway, talks to it, kills it, looks at what is left."""

    def __init__(self, home: Path, kind: str, seed: int) -> None:
        """`home` is made. What the gateway says on stderr is in its `stderr.txt`."""
        home.mkdir()
        self.home = home
        self.kind = kind
        self.report = Report()
        self._random = random.Random(seed)  # noqa: S311 - a seed makes a schedule, not a secret
        self._acknowledged: dict[str, list[str]] = {chat: [] for chat in CHATS}

    async def kill(self, how: str, count: int | None = None) -> bool:
        """One round: start, talk, and die as `how` says, at the `count`th occasion.

        False when it was told to end and did, before it was killed.
        """
        if count is None:
            count = 1 if how == "start" else self._random.randint(1, 2 * ROUND)
        process = await self._start(*([how, str(count)] if how in POINTS else []))
        if how == "birth":
            await asyncio.sleep(self._random.uniform(0, BIRTH))
        elif how != "start" and await self._ready(process):
            await self._live_and_die(process, how)
        if how != "start":
            _signal(process, signal.SIGKILL)
        async with asyncio.timeout(30):
            await process.communicate()
        self._check_file()
        if how == "drain" and process.returncode == 0:
            return False
        if process.returncode != -signal.SIGKILL:
            self.report.faults.append(f"it ended by itself ({how}): {process.returncode}")
        self.report.kills += 1
        return True

    async def finish(self) -> Report:
        """The last start: everything is answered without further words, and a drain ends it
        well."""
        process = await self._start()
        if not await self._ready(process):
            self.report.faults.append("it did not start again")
        await self._until_answered()
        await asyncio.gather(*(self._talk(chat, 2) for chat in CHATS))
        await self._until_answered()
        _signal(process, signal.SIGTERM)
        await process.communicate()
        if process.returncode != 0:
            self.report.faults.append(f"the drain ended with {process.returncode}")
        self._check_file()
        self._judge()
        return self.report

    async def _until_answered(self) -> None:
        try:
            async with asyncio.timeout(30):
                while self._unanswered():  # noqa: ASYNC110 - a journal tells nobody
                    await asyncio.sleep(0.02)
        except TimeoutError:
            self.report.faults.append(f"never answered: {self._unanswered()[:10]}")

    # ── the process ──────────────────────────────────────────────────────────────────────────────

    async def _start(self, *point: str) -> asyncio.subprocess.Process:
        with (self.home / "stderr.txt").open("ab") as said:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.crash.victim",
                self.home,
                self.kind,
                *point,
                stdout=asyncio.subprocess.PIPE,
                stderr=said,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )

    async def _ready(self, process: asyncio.subprocess.Process) -> bool:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            line = await process.stdout.readline()
        if line.startswith(b"ready"):
            return True
        self.report.faults.append("it did not start")
        return False

    async def _live_and_die(self, process: asyncio.subprocess.Process, how: str) -> None:
        talking = [asyncio.create_task(self._talk(chat, ROUND)) for chat in CHATS]
        if how not in POINTS:
            await asyncio.sleep(self._random.uniform(0, LIFE))
        if how == "drain":
            _signal(process, signal.SIGTERM)
            await asyncio.sleep(self._random.uniform(0, END))
        if how in POINTS:
            await asyncio.wait(talking)
            await self._until_dead(process)
        _signal(process, signal.SIGKILL)
        await asyncio.gather(*talking)

    async def _until_dead(self, process: asyncio.subprocess.Process) -> None:
        """Wait for its own death, or until it has nothing left to die of."""
        while process.returncode is None and self._unanswered():  # noqa: ASYNC110 - likewise
            await asyncio.sleep(0.005)

    # ── the network's side ───────────────────────────────────────────────────────────────────────

    async def _talk(self, chat: str, count: int) -> None:
        """Offer messages one after the other, what was not acknowledged again, until it dies."""
        with contextlib.suppress(ControlError, ConnectionError):
            parameters = {"platform": "scripted"}
            async with await open_channel(self.home, "attach", parameters) as channel:
                for _ in range(count):
                    name = f"{chat}-{len(self._acknowledged[chat])}"
                    await channel.send({"chat": chat, "event_id": name, "text": name})
                    answer = await channel.receive()
                    if answer is None:
                        return
                    self._note(chat, name, answer)

    def _note(self, chat: str, name: str, answer: dict[str, Any]) -> None:
        outcome = answer["outcome"]["type"]
        if outcome in {"Accepted", "Duplicate"}:
            self._acknowledged[chat].append(name)
        else:
            self.report.faults.append(f"{name}: {outcome}")

    # ── what is left ─────────────────────────────────────────────────────────────────────────────

    def _check_file(self) -> None:
        """The database is whole."""
        path = self.home / "state.db"
        if not path.exists() or path.stat().st_size == 0:
            return
        with closing(open_read_only(path)) as database:
            found = connection_of(database).execute("PRAGMA integrity_check").fetchall()
        if found != [("ok",)]:
            self.report.faults.append(f"the database is damaged: {found[:3]}")

    def _arrived(self) -> list[Sent]:
        """What the network was given, in order; previews and notices included."""
        return [msgspec.json.decode(line, type=Sent) for line in _lines(self.home / NETWORK)]

    def _unanswered(self) -> list[str]:
        """The acknowledged messages of which nobody has heard anything."""
        heard = {
            name
            for sent in self._arrived()
            if sent.message.kind in {"final", "error"}
            for name in sent.message.answers
        }
        names = itertools.chain.from_iterable(self._acknowledged.values())
        return [name for name in names if name not in heard]

    def _judge(self) -> None:
        report, arrived = self.report, self._arrived()
        finals = [sent.message for sent in arrived if sent.message.kind == "final"]
        told = {name for s in arrived if s.message.kind == "error" for name in s.message.answers}
        for chat, names in self._acknowledged.items():
            texts = [m.text.removeprefix(MARK) for m in finals if m.address.chat_id == chat]
            seen = list(dict.fromkeys(text.removeprefix("re: ") for text in texts))
            numbers = [int(name.split("-")[1]) for name in seen]
            report.messages += len(names)
            report.answered += len(seen)
            report.given_up += len(told.intersection(names))
            report.lost += len(set(names) - set(seen) - told)
            report.reordered += sum(one > other for one, other in itertools.pairwise(numbers))
            if self.kind == "exact":
                report.strays += max(0, _unfinished(arrived, chat) - len(told.intersection(names)))
        self._judge_repeats(arrived)
        self._judge_runs()

    def _judge_repeats(self, arrived: list[Sent]) -> None:
        """A message arrives once; a second time only where nobody can tell, and then it says so."""
        times: Counter[str] = Counter()
        for sent in arrived:
            message = sent.message
            if message.kind == "preview" or sent.call == "edit":
                continue
            times[message.id] += 1
            if times[message.id] == 1:
                continue
            if message.repeated and self.kind in {"plain", "streaming"}:
                self.report.repeats += 1
            else:
                self.report.duplicates += 1
        if self.report.repeats > len(CHATS) * self.report.kills:
            self.report.faults.append(f"{self.report.repeats} repeats")

    def _judge_runs(self) -> None:
        """After the commit of an answer the agent is not asked again, before it at most twice."""
        with closing(open_read_only(self.home / "state.db")) as database:
            states = dict(connection_of(database).execute("SELECT id, state FROM turn").fetchall())
        answered: set[str] = set()
        asked: Counter[str] = Counter()
        for line in _lines(self.home / RUNS):
            run = msgspec.json.decode(line, type=AgentRun)
            (text,) = run.texts
            asked[text] += 1
            self.report.reruns += text in answered
            if states.get(run.turn_id) == "answered":
                answered.add(text)
        if often := [text for text, count in asked.items() if count > 2]:
            self.report.faults.append(f"given to the agent more than twice: {often[:5]}")


def _unfinished(arrived: list[Sent], chat: str) -> int:
    """How many messages of a chat end as the beginning of an answer."""
    last = {
        sent.message_id: sent.message for sent in arrived if sent.message.address.chat_id == chat
    }
    return sum(message.kind == "preview" for message in last.values())


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    """Send a signal. `Process.kill` looks first whether the child is dead, and so takes its exit
    status from the event loop."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def _lines(path: Path) -> Iterator[bytes]:
    if path.exists():
        yield from path.read_bytes().splitlines()


async def crash(home: Path, kind: str, ways: list[str], seed: int) -> Report:
    """Kill the gateway of a new home in each of `ways`, one after the other."""
    rounds = Rounds(home, kind, seed)
    for how in ways:
        while not await rounds.kill(how):
            pass
    return await rounds.finish()


async def prove(directory: Path, kills: int, seed: int = 0) -> Report:
    """So many kills, in every way and on every kind of platform, ten to a home."""
    total = Report()
    made = 0
    while made < kills:
        kind = KINDS[made // 10 % len(KINDS)]
        ways = [HOW[(made + n) % len(HOW)] for n in range(min(10, kills - made))]
        total.add(await crash(directory / f"home-{made}", kind, ways, seed + made))
        made += len(ways)
    return total


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        report = asyncio.run(prove(Path(temporary), int(sys.argv[1])))
    print(report, *report.faults, sep="\n")  # noqa: T201 - its one line
    bad = (report.lost, report.reordered, report.duplicates, report.reruns, *report.faults)
    sys.exit(any(bad))
