"""Groups, other bots and commands: rules of their own beside the lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hermes_core import Accepted, Denied, Edited, Handled, Refused, Sender
from hermes_core.errors import ConfigError
from hermes_core.gateway import Gateway, hosted
from hermes_core.home import Home
from hermes_core.messages import Action, ChatKind, Reaction
from tests.profiles.wire import Brain, Wire, echo, wire_section, write_profile


@asynccontextmanager
async def serving(home: Home, wire: Wire, config: str) -> AsyncIterator[Gateway]:
    write_profile(home, "default", config, "WIRE_TOKEN=100-secret\n")
    async with hosted(home, extra=[wire, Brain(echo)], installed=False, settle=0.05) as running:
        await wire.until(lambda wire: bool(wire.contexts))
        yield running


KINDS: tuple[ChatKind, ...] = ("dm", "group")


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_a_group_wants_a_mention_unless_its_settings_say_otherwise(home: Home) -> None:
    async def main() -> None:
        wire = Wire()
        config = wire_section("1", more="[platforms.wire.groups.free]\nrequire_mention = false\n")
        async with serving(home, wire, config) as gateway:
            quiet: dict[str, Any] = {"kind": "group", "mentions_me": False}
            assert isinstance(await wire.say(chat="g", **quiet), Denied)
            assert isinstance(await wire.say(chat="g", user="9", **quiet), Denied)
            assert isinstance(await wire.say(chat="g", kind="group"), Accepted)
            assert isinstance(await wire.say(chat="free", **quiet), Accepted)
            assert isinstance(await wire.say(chat="dm", mentions_me=False), Accepted)
            assert isinstance(await wire.say(chat="dm", kind="channel", mentions_me=False), Denied)
            # What people say to one another is no attempt to get in.
            assert gateway.profiles["default"].status()["denied"] == {"not addressed": 3}

    run(main())


def test_a_list_of_a_group_counts_there_instead_of_the_account_s_lists(home: Home) -> None:
    async def main() -> None:
        wire = Wire()
        config = wire_section("1", more='[platforms.wire.groups.g]\nallowed_users = ["2"]\n')
        config = config.replace("allowed_users = ", 'admins = ["3"]\nallowed_users = ', 1)
        async with serving(home, wire, config):
            outcomes = {
                (user, kind): type(await wire.say(chat="g", user=user, kind=kind)).__name__
                for user in ("1", "2", "3", "9")
                for kind in ("group", "dm")
            }
            assert outcomes == {
                ("1", "group"): "Denied",
                ("1", "dm"): "Accepted",
                ("2", "group"): "Accepted",
                ("2", "dm"): "Denied",
                ("3", "group"): "Accepted",
                ("3", "dm"): "Accepted",
                ("9", "group"): "Denied",
                ("9", "dm"): "Denied",
            }

    run(main())


@pytest.mark.case("AZ-14")
@pytest.mark.parametrize(
    ("bots", "mentioned", "unmentioned"),
    [("off", Denied, Denied), ("mentions", Accepted, Denied), ("all", Accepted, Accepted)],
)
def test_other_bots(
    home: Home, bots: str, mentioned: type[object], unmentioned: type[object]
) -> None:
    async def main() -> None:
        wire = Wire()
        config = wire_section("1", "7", more=f'bots = "{bots}"\nrequire_mention = false')
        async with serving(home, wire, config):
            bot: dict[str, Any] = {"user": "7", "is_bot": True, "chat": "g", "kind": "group"}
            assert type(await wire.say(**bot)) is mentioned
            assert type(await wire.say(**bot, mentions_me=False)) is unmentioned
            stranger = await wire.say(**(bot | {"user": "8"}))
            assert isinstance(stranger, Denied)

    run(main())


@pytest.mark.case("AZ-14")
def test_two_bots_that_answer_each_other_come_to_an_end(home: Home) -> None:
    async def main() -> None:
        wire = Wire()
        config = wire_section("1", "7", more='bots = "all"\nbot_turns = 3\nbot_window = "1h"')
        async with serving(home, wire, config):
            outcomes = []
            for _ in range(20):
                answers = len(wire.sent)
                outcomes.append(type(await wire.say("ping", user="7", is_bot=True)))
                if outcomes[-1] is not Denied:
                    await wire.until(lambda wire, seen=answers: len(wire.sent) > seen)  # type: ignore[misc]
            assert outcomes == [Accepted] * 3 + [Refused] + [Denied] * 16
            texts = [text for _, _, text in wire.sent]
            assert texts[:3] == ["ping"] * 3
            assert len(texts) == 4
            assert "more than 3 messages of bots in 1h" in texts[3]
            assert isinstance(await wire.say("a person goes on"), Accepted)

    run(main())


@pytest.mark.case("AZ-14")
def test_what_the_account_said_itself_is_not_for_it_to_answer(home: Home) -> None:
    async def main() -> None:
        wire = Wire()
        async with serving(home, wire, wire_section(more="allow_all = true")) as gateway:
            for kind in KINDS:
                assert isinstance(await wire.say(user="100", kind=kind), Denied)
                assert isinstance(await wire.say(user="100", kind=kind, is_bot=True), Denied)
            assert gateway.profiles["default"].status()["denied"] == {"own message": 4}

    run(main())


@pytest.mark.case("AZ-08")
def test_buttons_reactions_and_edits_pass_the_same_gate(home: Home) -> None:
    async def main() -> None:
        wire = Wire()
        async with serving(home, wire, wire_section("1")):
            address = wire.contexts["default", "default"].address("g", kind="group")
            for user, outcome in (("1", Accepted), ("9", Denied)):
                common: dict[str, Any] = {"address": address, "sender": Sender(id=user)}
                for event in (
                    Action(**common, event_id=f"a{user}", message_id="m1", value="yes"),
                    Reaction(**common, event_id=f"r{user}", message_id="m1", emoji="x"),
                    Edited(**common, event_id=f"e{user}", message_id="m1", text="new"),
                ):
                    assert type(await wire.inject(event)) is outcome

    run(main())


# ── commands ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["dm", "group"])
def test_commands_are_for_those_on_their_lists(home: Home, kind: str) -> None:
    async def main() -> None:
        wire = Wire()
        more = (
            'admins = ["3"]\ncommands.restart = ["2"]\ncommands.new = []\ncommands.steer = []\n'
            "[platforms.wire.groups.g]\ncommands.new = ['1']\n"
        )
        async with serving(home, wire, wire_section("1", "2", more=more)) as gateway:
            said: dict[str, Any] = {"chat": "g", "kind": kind}

            async def answer(text: str, user: str) -> str:
                seen = len(wire.sent)
                assert isinstance(await wire.say(text, user=user, **said), Handled)
                await wire.until(lambda wire: len(wire.sent) > seen)
                return wire.sent[-1][2]

            listed = "not for you" if kind == "dm" else "session"
            assert listed in (await answer("/new", "1")).lower()
            assert "not for you" in await answer("/new", "2")
            assert "not for you" in await answer("/steer left", "1")
            assert "not for you" in await answer("/restart", "1")
            assert "/restart" not in await answer("/help", "1")
            assert "/restart" in await answer("/help", "2")
            assert "a user" in await answer("/whoami", "1")
            assert "an admin" in await answer("/whoami", "3")
            assert not gateway.restart_wanted

    run(main())


@pytest.mark.case("AZ-16")
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("commands.nwe = []", "did you mean"),
        ('groups.g.alowed_users = ["1"]', "allowed_users"),
        ('groups.g.allowed_users = ["Robin"]', "Robin"),
        ('groups." g".require_mention = true', "white space"),
        ('groups = ["g"]', "expected a table"),
        ('commands.new = "1"', "expected a list"),
        ('commands.new = ["*"]', "allow_all"),
        ('bots = "maybe"', "bots"),
        ("bot_turns = 0", "at least 1"),
        ('pairing = "yes"', "true or false"),
    ],
)
def test_a_mistyped_rule_is_an_error_that_names_it(home: Home, more: str, words: str) -> None:
    async def main() -> None:
        with pytest.raises(ConfigError, match=words):
            async with serving(home, Wire(), wire_section("1", more=more)):
                pass

    run(main())
