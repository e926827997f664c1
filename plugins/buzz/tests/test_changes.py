"""What people do to messages afterwards: edits, reactions, deletions, as Buzz's own clients write
them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from hermes_buzz.testing import BuzzRelay, Person, Witness, listening, talking
from hermes_core import MessageInfo
from hermes_core.testing import ScriptedAgent


def run(test: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await test

    asyncio.run(limited())


async def about(
    relay: BuzzRelay, person: Person, kind: int, *targets: str, content: str = "", channel: str = ""
) -> str:
    """An event about others. Buzz's clients name no channel in reactions and in deletions."""
    tags = [["e", target] for target in targets]
    tags += [["h", channel]] if channel else []
    event = person.event(kind, content, tags, at=relay.now())
    await relay.publish(event)
    return str(event["id"])


def types(received: Sequence[MessageInfo]) -> list[str]:
    return [info.type for info in received]


def test_reactions_and_deletions_that_name_no_channel(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            other = relay.channel("", alice, bot, kind="dm")
            witness = Witness()
            async with talking(tmp_path / "home", relay, bot, witness, allowed=(alice,)):
                told = await relay.say(alice, direct, "hello")
                answer = await relay.next_event(bot)
                heart = await about(relay, alice, 7, answer["id"], content="❤")
                await about(relay, alice, 5, heart)
                await about(relay, alice, 5, told)
                await witness.until(lambda: len(witness.received) == 4)
                # One that names a channel is in that one, whatever it refers to.
                await about(relay, alice, 7, answer["id"], content="?", channel=other)
                await relay.say(alice, other, "the end")
                await witness.until(lambda: len(witness.received) == 5)
            assert types(witness.received) == [
                *("message", "reaction", "reaction", "deleted", "message")
            ]

    run(test())


def test_what_names_no_channel_is_read_after_a_restart_too(tmp_path: Path) -> None:
    """And what it refers to is looked up at the relay."""

    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            home, witness = tmp_path / "home", Witness()
            async with talking(home, relay, bot, allowed=(alice,)):
                told = await relay.say(alice, direct, "hello")
                await relay.next_event(bot)
            await about(relay, alice, 7, told, content="👍")
            relay.faults.lookups = 2  # and that may fail for a moment
            async with talking(home, relay, bot, witness, allowed=(alice,)):
                await witness.until(lambda: types(witness.received) == ["reaction"])

    run(test())


def test_a_message_that_waits_is_not_answered_once_it_is_deleted(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        agent, witness = ScriptedAgent(), Witness()
        gate = agent.gate("first")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            async with talking(
                tmp_path / "home", relay, bot, witness, allowed=(alice,), agent=agent
            ):
                await relay.say(alice, direct, "first")
                await agent.started(1)
                regretted = await relay.say(alice, direct, "regretted")
                await witness.until(lambda: len(witness.received) == 2)
                await about(relay, alice, 5, regretted)
                await relay.say(alice, direct, "last")
                await witness.until(lambda: len(witness.received) == 4)
                gate.set()
                said = [(await relay.next_event(bot))["content"] for _ in range(2)]
            assert said == ["first", "last"]

    run(test())


def test_an_edit_that_keeps_the_mention_is_no_new_message_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            channel = relay.channel("general", alice, bot)
            home, witness = tmp_path / "home", Witness()
            now = relay.now()
            async with talking(home, relay, bot, allowed=(alice,)):
                told = await relay.say(alice, channel, "who knows?", at=now - 3)
                edit = {"kind": 40003, "tags": [["e", told]], "mentions": [bot]}
                await relay.say(alice, channel, "bot, do you?", at=now - 2, **edit)  # type: ignore[arg-type]
                assert (await relay.next_event(bot))["content"] == "bot, do you?"
            async with talking(home, relay, bot, witness, allowed=(alice,)):
                await relay.say(alice, channel, "bot, do you know?", at=now - 1, **edit)  # type: ignore[arg-type]
                await witness.until(lambda: types(witness.received) == ["edited"])

    run(test())


def test_every_kind_of_message_is_one(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            channel = relay.channel("forum", alice, bot, kind="forum")
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                post = ""
                for kind in (9, 40002, 45001, 45003):
                    text = str(kind)
                    post = await relay.say(
                        alice, channel, text, mentions=[bot, bot], kind=kind, root=post
                    )
                    answer = await relay.next_event(bot)
                    assert (answer["kind"], answer["content"]) == (9, text)

    run(test())


def test_a_name_in_the_text_is_no_mention(tmp_path: Path) -> None:
    """The p-tag is what wakes the account, and one is enough."""

    async def test() -> None:
        alice, bob, bot = Person("alice"), Person("bob"), Person("bot")
        async with BuzzRelay() as relay:
            channel = relay.channel("general", alice, bob, bot)
            witness = Witness()
            async with talking(tmp_path / "home", relay, bot, witness, allowed=(alice,)):
                await relay.say(alice, channel, f"nostr:{bot.npub} @bot")
                await relay.say(alice, channel, "to bob", mentions=[bob])
                await relay.say(alice, channel, "to you", mentions=[bob, bot, bot])
                assert (await relay.next_event(bot))["content"] == "to you"
            assert len(witness.received) == 1

    run(test())


def test_an_answer_stays_in_its_thread_though_its_question_is_gone(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            channel = relay.channel("general", alice, bot)
            more = 'progress = "none"\nstreaming = false'
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), more=more):
                top = await relay.say(alice, channel, "top")
                relay.faults.late_targets = 4
                await relay.say(alice, channel, "go", mentions=[bot], root=top, parent=top)
                answer = await relay.next_event(bot)
                assert [tag for tag in answer["tags"] if tag[0] == "e"] == [["e", top, "", "reply"]]

    run(test())


def test_a_reconnect_shows_the_same_reaction_once(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            witness = Witness()
            async with talking(tmp_path / "home", relay, bot, witness, allowed=(alice,)):
                told = await relay.say(alice, direct, "hello")
                await relay.next_event(bot)
                await about(relay, alice, 7, told, content="👍")
                await witness.until(lambda: len(witness.received) == 2)
                before = len(relay.requests)
                relay.cut()
                await listening(relay, bot, since=before)
                await relay.say(alice, direct, "again")
                await witness.until(lambda: len(witness.received) == 3)
            assert types(witness.received) == ["message", "reaction", "message"]

    run(test())
