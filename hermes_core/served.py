"""One profile being served: its rooms, wired together, from its own database to its own
accounts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_core import hookspecs as specs
from hermes_core.accounts import Accounts
from hermes_core.adapters import Account
from hermes_core.admission import Admission
from hermes_core.attachments import Attachments
from hermes_core.authorization import Gate
from hermes_core.built_agents import BuiltAgents
from hermes_core.commands import Commands, require_known_commands
from hermes_core.conversation import COMMANDS
from hermes_core.delivery import Delivery, Reply
from hermes_core.errors import HermesError, StoreError
from hermes_core.events import HousekeepingInfo
from hermes_core.gateway_commands import GatewayCommands, plugin_commands
from hermes_core.intake import Intake, IntakePolicy
from hermes_core.lanes import Lanes, Limits
from hermes_core.messages import decode_inbound
from hermes_core.moves import Moves
from hermes_core.observers import Durable
from hermes_core.pairing import PairingBook
from hermes_core.profiles import renew
from hermes_core.questions import Questions
from hermes_core.quotes import Quotes
from hermes_core.reload import make_plan
from hermes_core.repair import Change, Done, apply
from hermes_core.retention import Retention
from hermes_core.service_runner import Services
from hermes_core.sessions import SessionPolicy, idle_limit
from hermes_core.spool import Spool
from hermes_core.store import Store, inbox, moves, search, turns
from hermes_core.store.database import connection_of
from hermes_core.store.outbox import Chat
from hermes_core.turns import Turns

if TYPE_CHECKING:
    from hermes_core.agents import Agent
    from hermes_core.commands import Busy
    from hermes_core.config import AccountSettings, ProfileSettings
    from hermes_core.lanes import Lane
    from hermes_core.messages import Address
    from hermes_core.plugins import Hooks
    from hermes_core.profiles import ProfileScope
    from hermes_core.reload import Plan
    from hermes_core.secrets import SecretSource
    from hermes_core.settings import Settings

log = logging.getLogger(__name__)

CUT = (
    "The gateway stopped while it worked on this message, so it is not answered."
    " Send it again if you still want it."
)
FACT_LIMIT = 1.0
"""Seconds that the database gets for a fact of `hermes status`, which answers in three."""
DELIVERY_GRACE = 5.0
"""Seconds that calls in progress may take to send when the gateway stops."""
PAUSED = "The gateway is being worked on. Your message is kept and answered later."
DRAINING = "The gateway is about to restart. Your message is kept and answered afterwards."


class ServedProfile:
    """The running state of one profile. Nothing in it is shared with another profile, except the
    hook runner and the slots for running turns."""

    def __init__(
        self,
        *,
        scope: ProfileScope,
        settings: ProfileSettings,
        store: Store,
        hooks: Hooks,
        slots: asyncio.Semaphore,
        restart: Callable[[], bool],
        wall: Callable[[], float],
    ) -> None:
        """`restart()` asks for a restart of the gateway; False when it cannot be had.

        Raises ConfigError for settings that name no known agent or platform.
        """
        self.scope = scope
        self.settings = settings
        self.refused = ""
        self._started = settings
        self._blocked = False
        self._hooks = hooks
        self.wall = wall
        self._tasks: set[asyncio.Task[None]] = set()
        self._agents = BuiltAgents(hooks, scope)
        self.accounts = Accounts(self._spawn)
        self.store = store
        self.durable = Durable(self.store, wall)
        self.services = Services(
            scope=scope, store=self.store, hooks=hooks, durable=self.durable, wall=wall
        )
        spool = self._spool = Spool(scope.state_dir / "spool", _file_roots(scope, settings))
        self._moves = Moves(scope.name)
        self.delivery = Delivery(
            scope=scope,
            store=self.store,
            hooks=hooks,
            spool=spool,
            link=self.accounts.link,
            moves=self._moves,
            wall=wall,
        )
        self.lanes = Lanes(self._run_next, slots)
        self.commands = Commands()
        questions = Questions(self.delivery, self.accounts.link, self._moves)
        own = GatewayCommands(self.commands, self.lanes, store, restart)
        plugged = plugin_commands(hooks, scope, settings.plugins.disabled)
        self.commands.add((*COMMANDS, *own, questions.command, *plugged))
        self.pairings = PairingBook(self.store, wall)
        self.gate = Gate(hooks, scope, self.pairings)
        attachments = Attachments(scope.state_dir / "attachments", self.accounts.get, self._spawn)
        self.retention = Retention(self.store, spool, attachments, settings.retention, wall)
        self.intake = Intake(
            scope=scope,
            store=self.store,
            hooks=hooks,
            policy=self._intake_policy(),
            commands=self.commands,
            lanes=self.lanes,
            delivery=self.delivery,
            attachments=attachments,
            questions=questions,
            wall=wall,
        )
        self.admission = Admission(
            scope=scope,
            store=self.store,
            gate=self.gate,
            hooks=hooks,
            pairings=self.pairings,
            policy=_session_policy(settings),
            intake=self.intake,
            moves=self._moves,
            wall=wall,
        )
        self.turns = Turns(
            scope=scope,
            store=self.store,
            gate=self.gate,
            hooks=hooks,
            durable=self.durable,
            delivery=self.delivery,
            spool=spool,
            accounts=self.accounts,
            attachments=attachments,
            quotes=Quotes(store, self.accounts.get),
            questions=questions,
            agent=self._agent,
            perform=self.intake.perform,
            freed=self.lanes.freed,
            coalesce=self._coalesces,
            limits=_limits(settings),
            wall=wall,
        )
        for account in settings.accounts:
            self.accounts.add(self._build(account))
        self._agents.require(settings.agent.use)

    async def start(self, blocked: str = "") -> None:
        """Open the database, prepare what a crash cut, connect the accounts, run what waits.

        With `blocked`, the reason why nothing may be taken in, no account is connected.
        """
        await self.store.open()
        await self.pairings.load()
        await self.services.start()
        await self._recover()
        await self.delivery.recover()
        if blocked:
            self._blocked = True
            self.admission.close(blocked)
            self.accounts.shut(blocked)
            return
        self.accounts.connect()
        for key, highest, count in await self.store.write(inbox.waiting_keys):
            self.lanes.committed(key, highest, count)

    async def stop(self, grace: float) -> None:
        """Drain: finish what runs within `grace` seconds, keep what still arrives, disconnect."""
        self.intake.drain(DRAINING)
        await self.lanes.stop(grace)
        await self.intake.stop()
        await self.delivery.stop(DELIVERY_GRACE)
        self.admission.close("the gateway is stopping")
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Stop the services, which have been told everything by now, and close the database."""
        await self.services.stop()
        await self.store.close()

    async def housekeep(self) -> None:
        """What is due about once a minute."""
        load = HousekeepingInfo(running_turns=len(self.lanes.running), waiting=self.lanes.waiting)
        self._hooks.notify(specs.on_housekeeping, scope=self.scope, load=load)
        await self.store.look_again()
        await self.intake.expire_sessions()
        await self.durable.expire()
        try:
            await search.catch_up(self.store)
            await self.retention.keep_house()
        except StoreError as error:
            await search.discard_if_damaged(self.store, error)

    def pause(self) -> None:
        """Begin no turn until `resume`; what comes in waits, and its people are told once."""
        self.lanes.pause()
        self.intake.drain(PAUSED)

    def resume(self) -> None:
        """Begin turns again."""
        self.intake.drain("")
        self.lanes.resume()

    async def repair(self, change: Change) -> Done:
        """Make a change by hand, and take up what it brings. Raises HermesError: nothing is
        changed."""
        now = self.wall()
        return await self.store.write(lambda tx: apply(tx, change, now), self._repaired)

    def _repaired(self, done: Done) -> None:
        self.lanes.freed(done.freed)
        for key, sequence in done.waiting:
            self.lanes.committed(key, sequence)
        for appended in done.appended:
            self.delivery.appended(appended)

    async def apply(self, plan: Plan, secrets: SecretSource) -> None:
        """Put new settings in force, whole. Raises HermesError when they cannot be had, and then
        nothing is changed. Turns that run go on as they began."""
        new = replace(plan.settings, plugins=self.settings.plugins)
        before = self.settings, self.scope.secrets
        renew(self.scope, new, secrets)
        try:
            self._agents.require(new.agent.use)
            built = {
                account.name: self._build(account)
                for account in new.accounts
                if account.name in plan.restart_accounts
            }
        except HermesError:
            renew(self.scope, *before)
            raise
        old, self.settings = self.settings, new
        self.refused = ""
        self._use()
        for name in plan.restart_accounts:
            await self.accounts.replace(name, built.get(name))
        if not self._blocked:
            self.accounts.connect()
        changed = [name for name in new.sections if old.sections.get(name) != new.sections[name]]
        await self.services.restart(changed)

    def _use(self) -> None:
        """Let the rooms work by the settings."""
        for account in self.accounts:
            settings = self.settings.account(account.platform.name, account.settings.account)
            if settings is not None and settings.settings == account.settings.settings:
                account.change(settings)
                if account.access.unresolved and account.connected:
                    self._spawn(account.resolve(), f"resolve names for {account.name}")
        self.intake.policy = self._intake_policy()
        self.admission.policy = _session_policy(self.settings)
        self.turns.limits = _limits(self.settings)
        self.retention.policy = self.settings.retention
        self._spool.roots = _file_roots(self.scope, self.settings)

    async def facts(self) -> dict[str, object]:
        """Facts for `hermes status`. They come soon, whatever the database is busy with."""
        return {**self.status(), "oldest_waiting": await self._oldest_waiting()}

    async def _oldest_waiting(self) -> float | None:
        """Since when the oldest message waits, as UNIX time. None when none does, or when the
        database does not say so in time."""
        if self.lanes.waiting <= 0:
            return None
        try:
            async with asyncio.timeout(FACT_LIMIT):
                return await self.store.read(
                    lambda database: inbox.oldest_waiting(connection_of(database))
                )
        except (TimeoutError, HermesError):
            return None

    def status(self) -> dict[str, object]:
        """The facts that are at hand without the database."""
        return {
            "profile": self.scope.name,
            "trouble": self.store.trouble,
            "settings": {
                "refused": self.refused,
                "needs_restart": make_plan(self._started, self.settings).needs_restart,
                "warnings": self.settings.warnings,
            },
            "accounts": {
                account.name: {"state": account.state, "reason": account.reason}
                for account in self.accounts
            },
            "busy_sessions": self.lanes.busy[:100],
            "running_turns": [run.turn_id for run in self.lanes.running][:100],
            "abandoned_turns": [run.turn_id for run in self.lanes.abandoned],
            "waiting": self.lanes.waiting,
            "received": dict(self.admission.counts),
            "denied": dict(self.admission.denials.counts),
            "turns": dict(self.turns.counts),
            "deliveries": dict(self.delivery.counts),
            "services": self.services.status(),
        }

    # ── wiring ───────────────────────────────────────────────────────────────────────────────────

    def _build(self, settings: AccountSettings) -> Account:
        require_known_commands(settings, self.commands.by_name)
        return Account(
            scope=self.scope,
            settings=settings,
            owned=self._hooks.platforms[settings.platform],
            hooks=self._hooks,
            receive=self.admission.receive,
            resume=self._resume,
            migrate=self._migrate,
            moves=self._moves,
        )

    async def _run_next(self, lane: Lane) -> int | None:
        return await self.turns.run_next(lane)

    def _intake_policy(self) -> IntakePolicy:
        sessions = self.settings.sessions
        return IntakePolicy(
            max_waiting=sessions.max_waiting,
            max_waiting_total=self.settings.gateway.max_waiting,
            busy=self._busy,
            edits=sessions.edits,
            idle_since=idle_limit(sessions.reset, sessions.reset_idle, sessions.reset_hour),
        )

    def _busy(self, address: Address) -> Busy:
        account = self.accounts.get(address.account_key)
        return (account.settings.busy if account else None) or self.settings.sessions.busy

    def _coalesces(self, session_key: str) -> bool:
        """By the account that the key names (see `sessions.session_key`)."""
        account = self.accounts.get(session_key.split(":", 3)[2])
        busy = account.settings.busy if account else None
        return (busy or self.settings.sessions.busy) == "coalesce"

    async def _recover(self) -> None:
        """After a crash: messages whose turns were cut run again, or are given up and their people
        told."""
        now = self.wall()
        retry = self.settings.sessions.after_crash == "retry"
        attempts = turns.MAX_ATTEMPTS if retry else 1
        cuts = await self.store.write(
            lambda tx: turns.interrupt(tx, now, "the gateway crashed", attempts=attempts)
        )
        for cut in cuts:
            if cut.given_up and self.settings.sessions.after_crash != "drop":
                event = decode_inbound(cut.payload)
                if event is None:
                    continue  # nobody knows where it came from
                reply = Reply(
                    event.address, cut.session_key, cut.turn_id, answers=(event.event_id,)
                )
                self.delivery.tell(reply, CUT, "error")

    def _resume(self, account: str, chat_id: str | None) -> None:
        self._spawn(self.delivery.resume(account, chat_id), f"resume {account}")

    async def _migrate(self, account: str, old: str, new: str) -> None:
        """Let what is stored of a chat follow it to its new id, and those who work on it."""
        chat, now = Chat(account, old), self.wall()
        prefixes = self._moves.prefixes(account, old, new)

        def moved(done: moves.Moved) -> None:
            for before, after in done.keys.items():
                self.lanes.move(before, after)
            for key, highest in done.waiting:
                self.lanes.committed(key, highest, 0)
            self.delivery.moved(chat, new, done.highest, done.pause)
            for ended, address in done.ended:
                self.intake.tell_end(ended, address)

        await self.store.write(lambda tx: moves.move(tx, chat, new, prefixes, now), moved)

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the gateway ended: %s", task.get_name(), exc_info=error)

    def _agent(self, address: Address) -> Agent[Settings] | None:
        """The agent for an address."""
        account = self.accounts.get(address.account_key)
        name = (account.settings.agent if account else None) or self.settings.agent.use
        return self._agents.get(name, self.settings.agent.tables)


def _session_policy(settings: ProfileSettings) -> SessionPolicy:
    return SessionPolicy(settings.sessions.group, settings.sessions.thread)


def _file_roots(scope: ProfileScope, settings: ProfileSettings) -> tuple[Path, ...]:
    own = scope.state_dir / "files"
    return own, *(Path(root).expanduser() for root in settings.agent.send_files_from)


def _limits(settings: ProfileSettings) -> Limits:
    sessions = settings.sessions
    total = None if sessions.total is None else float(sessions.total)
    return Limits(float(sessions.inactivity), total)
