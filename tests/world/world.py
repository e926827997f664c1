"""A small world with a seed: people, commands, an agent with bad habits, a network with bad days.

What happens is drawn from the seed, and so is the order in which everything that could happen next
does.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hermes_core import (
    Accepted,
    AgentEvent,
    NotReady,
    OutcomeUnknown,
    RateLimited,
    SendFailed,
    Text,
    Turn,
)
from hermes_core.commands import Busy
from hermes_core.config import (
    AccountSettings,
    AgentSettings,
    ProfileSettings,
    SessionSettings,
)
from hermes_core.plugins import Hooks, Loaded, load
from hermes_core.profiles import ProfileScope, ProfileSecrets
from hermes_core.served import ServedProfile
from hermes_core.settings import Duration
from hermes_core.store import Tx, erasing
from hermes_core.testing import OK, Result, ScriptedAgent, ScriptedPlatform, Sent, StoreThenRaise
from hermes_core.testing.platform import Empty
from tests.world.store import SteppedStore

HABITS = (
    *("echo", "echo", "echo", "slow", "stream", "ask", "fail", "exit", "hang", "stubborn"),
    "silent",
)
CHOICES = ("yes", "no")
BUSY: tuple[Busy, ...] = ("queue", "queue", "queue", "coalesce", "interrupt", "steer")
ENDS = ("rest", "rest", "shutdown", "crash")


@cache
def _plugins(
    kind: str, edit: bool, buttons: bool
) -> tuple[ScriptedPlatform, ScriptedAgent, Loaded]:
    """Loaded once for all worlds: that takes longer than a world does."""
    platform = ScriptedPlatform(
        idempotent=kind == "idempotent",
        reconciles=kind == "reconciles",
        edit=edit,
        buttons=buttons,
    )
    agent = ScriptedAgent()
    return platform, agent, load(extra=(platform, agent), path=())


@dataclass
class Habit:
    """What is drawn for one world."""

    sessions: int
    actions: int
    busy: Busy
    kind: str
    edit: bool
    haste: float
    end: str
    buttons: bool
    aging: bool

    @classmethod
    def draw(cls, rng: random.Random) -> Habit:
        small = rng.random() < 0.7
        return cls(
            sessions=1 if small else rng.randint(2, 3),
            actions=rng.randint(2, 5) if small else rng.randint(5, 12),
            busy=rng.choice(BUSY),
            kind=rng.choice(("idempotent", "reconciles", "neither")),
            edit=rng.random() < 0.4,
            haste=rng.choice((0.0, 0.5, 0.9)),
            end=rng.choice(ENDS),
            buttons=rng.random() < 0.5,
            aging=rng.random() < 0.3,
        )


@dataclass
class AgentRun:
    """One run of the agent, as the agent saw it."""

    turn_id: str
    session: str
    texts: list[str]
    cancelled: bool = False
    ended: bool = False


@dataclass
class World:
    """The state outside of the gateway: what people did, what the agent and the network saw."""

    seed: int
    directory: Path
    accepted: dict[int, str] = field(default_factory=dict)
    runs: list[AgentRun] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    chosen: dict[str, str] = field(default_factory=dict)
    faulty: Callable[..., ServedProfile] = ServedProfile
    erased: dict[tuple[str, int], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"script {self.seed}")  # noqa: S311 - a script, no secret
        self.habit = Habit.draw(self.rng)
        self.wall = 1_700_000_000.0
        self.platform, agent, loaded = _plugins(
            self.habit.kind, self.habit.edit, self.habit.buttons
        )
        self._hooks = Hooks(loaded)
        self.platform.forget()
        agent.behaviour = self._behave
        self._live: dict[str, list[AgentRun]] = defaultdict(list)
        self._number = 0

    # ── the gateway's side ───────────────────────────────────────────────────────────────────────

    def build(self) -> ServedProfile:
        """A gateway's profile over the database as it is now."""
        settings = ProfileSettings(
            agent=AgentSettings(use="scripted", tables={"scripted": Empty()}),
            sessions=SessionSettings(
                busy=self.habit.busy,
                reset="idle" if self.habit.aging else "none",
                reset_idle=Duration(1.0),
            ),
            accounts=(AccountSettings(platform="scripted", account="default", settings=Empty()),),
        )
        scope = ProfileScope(
            name="default",
            uuid="00000000-0000-0000-0000-000000000000",
            config_dir=self.directory,
            state_dir=self.directory,
            settings=settings,
            secrets=ProfileSecrets(),
        )
        self._live.clear()
        self._loop = asyncio.get_event_loop()
        self.wall += 10_000.0
        self.store = SteppedStore(self.database)
        return self.faulty(
            scope=scope,
            settings=settings,
            store=self.store,
            hooks=self._hooks,
            slots=asyncio.Semaphore(2),
            restart=lambda: False,
            wall=self.clock,
        )

    def clock(self) -> float:
        """Wall time: it goes on with the loop's."""
        return self.wall + self._loop.time()

    async def connected(self, profile: ServedProfile) -> None:
        """Wait until the network is there: nobody can say anything before."""
        while not all(account.connected for account in profile.accounts):  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    @property
    def database(self) -> Path:
        return self.directory / "state.db"

    # ── the agent ────────────────────────────────────────────────────────────────────────────────

    async def _behave(self, turn: Turn) -> AsyncIterator[AgentEvent]:
        texts = [message.text for message in turn.messages]
        run = AgentRun(turn.id, turn.session_id, texts)
        for other in self._live[turn.session_id]:
            if not other.cancelled:
                self.faults.append(f"B: {turn.id} began while {other.turn_id} could act")
        self.runs.append(run)
        self._live[turn.session_id].append(run)
        try:
            habit = texts[0].split()[-1]
            if habit == "ask":
                await self._ask(turn)
            async with aclosing(self._habit(habit, run)) as pieces:
                async for piece in pieces:
                    yield Text(piece)
        except asyncio.CancelledError:
            run.cancelled = True
            raise
        finally:
            run.ended = True
            self._live[turn.session_id].remove(run)

    async def _ask(self, turn: Turn) -> None:
        limit = self.rng.choice((0.0, 0.5, 3.0))
        choice = await turn.ask(f"{turn.id}?", CHOICES, limit=limit)
        if choice is not None:
            self.chosen[turn.id] = choice

    async def _habit(self, habit: str, run: AgentRun) -> AsyncGenerator[str, None]:
        answer = f"{run.turn_id}: {' | '.join(run.texts)}"
        await self._linger(habit, run)
        if habit == "silent":
            return
        for piece in answer if habit == "stream" else (answer,):
            if habit == "stream":
                await asyncio.sleep(0)
            yield piece

    async def _linger(self, habit: str, run: AgentRun) -> None:
        """What an agent does before it answers, if it does."""
        if habit == "fail":
            raise ValueError("a habit")
        if habit == "exit":
            raise SystemExit(3)
        if habit == "hang":
            await asyncio.sleep(100_000)
        if habit == "slow":
            await asyncio.sleep(self.rng.choice((0.0, 0.5, 3.0)))
        for _ in range(3 if habit == "stubborn" else 0):
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                run.cancelled = True

    # ── the people ───────────────────────────────────────────────────────────────────────────────

    async def script(self) -> None:
        """Everything that people do, some of it at the same time."""
        async with asyncio.TaskGroup() as group:
            if self.rng.random() < 0.5:
                group.create_task(self._chat())
            if self.habit.buttons:
                group.create_task(self._decide())
            for _ in range(self.habit.actions):
                await self._act(group)
                if self.rng.random() > self.habit.haste:
                    await asyncio.sleep(self.rng.choice((0.0, 0.2, 1.0, 4.0)))

    async def _chat(self) -> None:
        """Somebody who answers as soon as an answer is seen, or does not wait that long."""
        for _ in range(self.rng.randint(1, 4)):
            seen = len(self.platform.sent)
            for _ in range(self.rng.randint(1, 60)):
                if len(self.platform.sent) > seen:
                    break
                await asyncio.sleep(0)
            await self._say(self._text(0.5), "c1")

    def begin_keeping_house(self, profile: ServedProfile) -> None:
        if self.habit.aging:
            self._house = asyncio.ensure_future(self._keep_house(profile))

    async def _keep_house(self, profile: ServedProfile) -> None:
        """Let everything that is over lose its content at once, and sessions end by their age."""
        for _ in range(10):
            await asyncio.sleep(self.rng.choice((0.0, 0.3, 2.0)))
            await profile.intake.expire_sessions()
            await self.store.write(self._erase)

    def _erase(self, tx: Tx) -> None:
        for table in ("inbox", "outbox"):
            rows = tx.execute(
                f"SELECT sequence, payload FROM {table} WHERE payload <> x''"  # noqa: S608
            )
            self.erased |= {(table, sequence): payload for sequence, payload in rows}
        for step in (erasing.erase_inbox, erasing.erase_outbox, erasing.erase_turns):
            step(tx, self.clock() + 1.0)

    async def _decide(self) -> None:
        """Somebody who presses a button of each question, at once or when it is over."""
        seen = 0
        for _ in range(30):
            await asyncio.sleep(self.rng.choice((0.0, 0.5)))
            for sent in self.platform.sent[seen:]:
                if sent.message.buttons:
                    await self._press(sent)
            seen = len(self.platform.sent)

    async def _press(self, sent: Sent) -> None:
        button = self.rng.choice(sent.message.buttons)
        chat = sent.message.address.chat_id
        with suppress(NotReady):
            await self.platform.press(button.value, message_id=sent.message_id, chat=chat)

    async def _act(self, group: asyncio.TaskGroup) -> None:
        roll = self.rng.random()
        chat = f"c{self.rng.randint(1, self.habit.sessions)}"
        if roll < 0.15:
            self.platform.results.append(self._bad_day())
        elif roll < 0.2:
            self.platform.lose_connection()
        text = self._text(roll)
        say = self._say(text, chat)
        roll = self.rng.random()
        if roll < 0.3:
            await say
            return
        task = group.create_task(say)
        if roll > 0.9:
            # The network's library gives up on its own handler: what was committed stays committed.
            for _ in range(self.rng.randint(0, 12)):
                await asyncio.sleep(0)
            task.cancel()

    def _text(self, roll: float) -> str:
        self._number += 1
        if roll > 0.9:
            return "/stop"
        if roll > 0.87:
            return "/stop drop"
        if roll > 0.84:
            return "/new"
        if roll > 0.8:
            return f"/choose {self.rng.randint(1, 6)}"
        return f"m{self._number} {self.rng.choice(HABITS)}"

    async def _say(self, text: str, chat: str) -> None:
        try:
            outcome = await self.platform.say(text, chat=chat)
        except NotReady:
            return
        if isinstance(outcome, Accepted) and not text.startswith("/"):
            self.accepted[outcome.sequence] = text

    def _bad_day(self) -> Result:
        return self.rng.choice(
            (
                RateLimited(2.0),
                RateLimited(5.0, scope="account"),
                SendFailed("a bad day"),
                OutcomeUnknown("a bad day"),
                StoreThenRaise(OutcomeUnknown("a bad day")),
                OK,
            )
        )
