"""Commands that plugins add."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hermes_core import ChatCommand, CommandCall, hookimpl
from hermes_core.chat_commands import RESERVED
from hermes_core.plugins import load_plugins
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway

CONFIG = '[platforms.scripted]\nadmins = ["boss"]\n'


class Dice:
    """A plugin with two commands."""

    @hookimpl
    def commands(self) -> list[ChatCommand]:
        return [
            ChatCommand("roll", "roll a die", self.roll),
            ChatCommand("load", "load the die", self.load, admin=True),
        ]

    async def roll(self, call: CommandCall) -> str:
        return f"{call.sender.id} rolled {call.arguments or 6} in {call.scope.name}"

    async def load(self, call: CommandCall) -> str:
        raise ValueError("a fault of the plugin")


def ask(directory: Path, *talk: tuple[str, str]) -> list[str]:
    async def main() -> list[str]:
        platform = ScriptedPlatform()
        async with gateway(directory, platform, ScriptedAgent(), Dice(), config=CONFIG):
            answers = []
            for user, text in talk:
                await platform.say(text, user=user)
                answers.append(await platform.next_text())
            return answers

    return asyncio.run(main())


def test_a_command_of_a_plugin_answers(tmp_path: Path) -> None:
    assert ask(tmp_path, ("u1", "/roll"), ("u1", "/roll 3")) == [
        "u1 rolled 6 in default",
        "u1 rolled 3 in default",
    ]


def test_what_follows_a_command_may_stand_on_lines_of_its_own(tmp_path: Path) -> None:
    assert ask(tmp_path, ("u1", "/ROLL\n3\nand 4"), ("u1", "/roll\t\n"), ("u1", "/ roll")) == [
        "u1 rolled 3\nand 4 in default",
        "u1 rolled 6 in default",
        "/ roll",
    ]


def test_one_for_admins_is_for_admins(tmp_path: Path) -> None:
    (answer,) = ask(tmp_path, ("u1", "/load"))
    assert answer == "/load is not for you."


def test_one_that_fails_says_so_and_the_conversation_goes_on(tmp_path: Path) -> None:
    failed, hello = ask(tmp_path, ("boss", "/load"), ("boss", "hello"))
    assert failed == "/load failed; the log says why."
    assert hello == "hello"


def test_help_lists_it(tmp_path: Path) -> None:
    (answer,) = ask(tmp_path, ("u1", "/help"))
    assert "/roll: roll a die" in answer
    assert "/load" not in answer


def test_a_name_of_the_core_quarantines_the_plugin() -> None:
    class Thief:
        @hookimpl
        def commands(self) -> list[ChatCommand]:
            return [ChatCommand("stop", "mine now", Dice().roll)]

    hooks = load_plugins(extra=[Thief()], path=())
    (broken,) = hooks.quarantined
    assert "the command /stop is one of the core" in broken.reason


def test_the_reserved_names_are_those_of_the_core(tmp_path: Path) -> None:
    async def main() -> set[str]:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent) as running:
            return {command.name for command in running.profiles["default"].commands.all}

    assert asyncio.run(main()) == RESERVED
