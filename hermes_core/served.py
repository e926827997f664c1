"""One profile being served: its rooms, wired together, from its own database to its own accounts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from hermes_core.adapters import Account
from hermes_core.admission import Admission
from hermes_core.authorization import AccessList, Gate
from hermes_core.commands import Call, Command, Commands
from hermes_core.delivery import Delivery, Reply
from hermes_core.errors import ConfigError, HermesError
from hermes_core.lanes import Lanes
from hermes_core.messages import decode_inbound
from hermes_core.sessions import SessionPolicy
from hermes_core.store import Store, inbox, turns
from hermes_core.turns import Turns

if TYPE_CHECKING:
    from pathlib import Path

    from hermes_core.agents import Agent
    from hermes_core.config import ProfileSettings
    from hermes_core.messages import Address
    from hermes_core.plugins import Hooks
    from hermes_core.profiles import ProfileScope
    from hermes_core.settings import Settings

log = logging.getLogger(__name__)

TWICE_CUT = (
    "The gateway stopped twice while it worked on this message, so it is not tried again."
    " Send it once more if you like."
)


class ServedProfile:
    """The running state of one profile. Nothing in it is shared with another profile, except the hook
    runner and the slots for running turns."""

    def __init__(
        self,
        *,
        scope: ProfileScope,
        settings: ProfileSettings,
        database: Path,
        hooks: Hooks,
        slots: asyncio.Semaphore,
        wall: Callable[[], float],
    ) -> None:
        """Raises ConfigError for settings that name no known agent or platform."""
        self.scope = scope
        self.settings = settings
        self._hooks = hooks
        self._wall = wall
        self._tasks: set[asyncio.Task[None]] = set()
        self._agents: dict[str, Agent[Settings]] = {}
        self.store = Store(database, settings.gateway.durability)
        self.delivery = Delivery(
            scope=scope, store=self.store, hooks=hooks, link=self.account, wall=wall
        )
        gate = Gate(hooks, scope, frozenset(settings.authorization.authorizers))
        self.turns = Turns(
            scope=scope,
            store=self.store,
            gate=gate,
            hooks=hooks,
            delivery=self.delivery,
            access=self._access,
            link=self.account,
            agent=self._agent,
            wall=wall,
        )
        self.lanes = Lanes(self.turns.run_next, slots)
        self.commands = Commands(self.delivery)
        self.commands.add(Command("stop", "end the running turn", self._stop_turn))
        self.commands.add(Command("help", "list the commands", self._help))
        self.admission = Admission(
            scope=scope,
            store=self.store,
            gate=gate,
            hooks=hooks,
            policy=SessionPolicy(settings.sessions.group, settings.sessions.thread),
            max_waiting=settings.sessions.max_waiting,
            commands=self.commands,
            committed=self.lanes.committed,
            wall=wall,
        )
        self.accounts: dict[str, Account] = {
            account.name: self._build(account.platform, index)
            for index, account in enumerate(settings.accounts)
            if account.enabled
        }
        self._require_agent(settings.agent.use)

    def account(self, name: str) -> Account | None:
        """A configured account of this profile by its key, such as `telegram.ops`."""
        return self.accounts.get(name)

    async def start(self) -> None:
        """Open the database, prepare what a crash cut, connect the accounts, run what waits."""
        await self.store.open()
        now = self._wall()
        cuts = await self.store.write(lambda tx: turns.interrupt(tx, now, "the gateway crashed"))
        await self.delivery.recover()
        for cut in cuts:
            self._tell_cut(cut)
        for account in self.accounts.values():
            self._spawn(account.run(), f"account {account.name}@{self.scope.name}")
        for key, highest in await self.store.write(inbox.waiting_keys):
            self.lanes.committed(key, highest)

    async def stop(self, grace: float) -> None:
        """Drain: take nothing in, finish what runs within `grace` seconds, keep the rest, disconnect."""
        self.admission.close("the gateway is stopping")
        await self.lanes.stop(grace)
        await self.commands.stop()
        await self.delivery.stop(grace)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.store.close()

    def status(self) -> dict[str, object]:
        """Facts for `hermes status`."""
        return {
            "profile": self.scope.name,
            "accounts": {
                name: {"state": account.state, "reason": account.reason}
                for name, account in self.accounts.items()
            },
            "busy_sessions": self.lanes.busy[:100],
            "running_turns": [run.turn_id for run in self.lanes.running][:100],
            "abandoned_turns": [run.turn_id for run in self.lanes.abandoned],
            "received": dict(self.admission.counts),
            "turns": dict(self.turns.counts),
            "deliveries": dict(self.delivery.counts),
        }

    # ── wiring ───────────────────────────────────────────────────────────────────────────────────

    def _build(self, platform: str, index: int) -> Account:
        owned = self._hooks.platforms[platform]
        return Account(
            scope=self.scope,
            settings=self.settings.accounts[index],
            owned=owned,
            hooks=self._hooks,
            receive=self.admission.receive,
            resume=self._resume,
        )

    def _resume(self, account: str, chat_id: str | None) -> None:
        self._spawn(self.delivery.resume(account, chat_id), f"resume {account}")

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the gateway ended: %s", task.get_name(), exc_info=error)

    def _access(self, account: str) -> AccessList | None:
        found = self.accounts.get(account)
        return None if found is None else found.access

    def _require_agent(self, name: str) -> None:
        if name not in self._hooks.agents:
            raise ConfigError(
                f"no installed plugin brings the agent {name!r}",
                where="[agent] use",
                remedy=f"pip install hermes-plugin-{name}, or choose another agent",
            )

    def _agent(self, address: Address) -> Agent[Settings] | None:
        """The agent for an address; each is built once per profile, when it is first needed."""
        account = self.accounts.get(address.account_key)
        name = (account.settings.agent if account else None) or self.settings.agent.use
        if name in self._agents:
            return self._agents[name]
        owned = self._hooks.agents.get(name)
        if owned is None:
            return None
        settings = self.settings.agent.tables.get(name)
        if settings is None:
            return None
        try:
            agent = owned.value.agent(settings, self.scope)
        except HermesError as error:
            log.error("the agent %s cannot be built: %s", name, error)
            return None
        self._agents[name] = agent
        return agent

    def _tell_cut(self, cut: turns.Cut) -> None:
        if cut.given_up:
            event = decode_inbound(cut.payload)
            reply = Reply(event.address, cut.session_key, cut.turn_id, answers=(event.event_id,))
            self.delivery.tell(reply, TWICE_CUT, "error")

    # ── commands ─────────────────────────────────────────────────────────────────────────────────

    async def _stop_turn(self, call: Call, session_key: str) -> str:
        """Cancel: committed first, then told to the run, then answered."""
        now = self._wall()
        turn_id = await self.store.write(lambda tx: turns.cancel(tx, session_key, now))
        if turn_id is None:
            return "Nothing is running."
        self.lanes.cancel(session_key, turn_id)
        waiting = await self.store.write(lambda tx: inbox.count_waiting(tx, session_key))
        return f"Stopped. {waiting} waiting." if waiting else "Stopped."

    async def _help(self, call: Call, session_key: str) -> str:
        return "\n".join(f"/{command.name}: {command.help}" for command in self.commands.all)


