"""Commands in a chat that are about the gateway and not about the conversation, and those that
plugins bring."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from hermes_core.chat_commands import ChatCommand, CommandCall
from hermes_core.commands import Call, Command, Commands
from hermes_core.store import Store, inbox

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hermes_core.lanes import Lanes
    from hermes_core.plugins import Hooks
    from hermes_core.profiles import ProfileScope


class GatewayCommands:
    """What people may ask the gateway of one profile."""

    def __init__(
        self, commands: Commands, lanes: Lanes, store: Store, restart: Callable[[], bool]
    ) -> None:
        """`restart()` asks for a restart of the gateway; False when it cannot be had."""
        self._commands = commands
        self._lanes = lanes
        self._store = store
        self._restart = restart

    def __iter__(self) -> Iterator[Command]:
        yield Command("help", "list the commands", run=self._help)
        yield Command("status", "what runs and what waits in this chat", run=self._status)
        yield Command("whoami", "who you are to this gateway", run=self._whoami)
        yield Command("restart", "restart the gateway (admins)", run=self._ask_restart, admin=True)

    async def _help(self, call: Call) -> str:
        known = self._commands.all
        return "\n".join(
            f"/{command.name}: {command.help}" for command in known if call.may(command)
        )

    async def _status(self, call: Call) -> str:
        waiting = await self._store.write(lambda tx: inbox.count_waiting(tx, call.session_key))
        run = self._lanes.run_of(call.session_key)
        running = "Nothing is running" if run is None else f"Turn {run.turn_id} is running"
        return f"{running}, {waiting} waiting."

    async def _whoami(self, call: Call) -> str:
        role = "an admin" if call.admin else "a user"
        return f"You are {call.event.sender.id}, {role}, admitted by {call.grant}."

    async def _ask_restart(self, _: Call) -> str:
        return "Restarting." if self._restart() else "A restart is under way already."


def plugin_commands(
    hooks: Hooks, scope: ProfileScope, disabled: Sequence[str]
) -> Iterator[Command]:
    """What the plugins bring that are enabled for a profile."""
    for owned in hooks.commands.values():
        if not owned.plugin.named_in(disabled):
            command = owned.value
            run = partial(_run_for_plugin, command, scope)
            yield Command(command.name, command.help, run=run, admin=command.admin)


async def _run_for_plugin(command: ChatCommand, scope: ProfileScope, call: Call) -> str:
    return await command.run(
        CommandCall(
            arguments=call.arguments,
            sender=call.event.sender,
            admin=call.admin,
            chat_kind=call.event.address.kind,
            session=call.session_key,
            scope=scope,
        )
    )
