"""People and the account on a relay, through a whole gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from hermes_buzz.keys import LocalSigner
from hermes_buzz.testing import (
    BuzzRelay,
    Person,
    QuickBuzz,
    Witness,
    config_for,
    eventually,
    listening,
    talking,
)
from hermes_core import AgentEvent, Commentary, Final, Text, Turn
from hermes_core.home import Home
from hermes_core.testing import ScriptedAgent, gateway


def run(test: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await test

    asyncio.run(limited())


def tags(event: dict[str, Any], name: str) -> list[list[str]]:
    return [tag for tag in event["tags"] if tag[0] == name]


def test_a_mention_in_a_channel_is_answered_in_its_thread(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            channel = relay.channel("general", alice, bot)
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                question = await relay.say(alice, channel, "hello", mentions=[bot])
                answer = await relay.next_event(bot)
                assert answer["content"] == "hello"
                assert tags(answer, "h") == [["h", channel]]
                assert tags(answer, "e") == [["e", question, "", "reply"]]
                assert tags(answer, "p") == []

                deeper = await relay.say(
                    alice, channel, "more", mentions=[bot], root=question, parent=answer["id"]
                )
                answer = await relay.next_event(bot)
                assert answer["content"] == "more"
                assert tags(answer, "e") == [
                    ["e", question, "", "root"],
                    ["e", deeper, "", "reply"],
                ]

    run(test())


def test_without_a_mention_only_direct_and_free_channels_are_answered(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            quiet = relay.channel("quiet", alice, bot)
            free = relay.channel("free", alice, bot)
            direct = relay.channel("", alice, bot, kind="dm")
            witness = Witness()
            more = f"groups.{free}.require_mention = false"
            async with talking(tmp_path / "home", relay, bot, witness, allowed=(alice,), more=more):
                await relay.say(alice, quiet, "to nobody")
                await relay.say(alice, free, "free")
                assert (await relay.next_event(bot))["content"] == "free"
                await relay.say(alice, direct, "direct")
                assert (await relay.next_event(bot))["content"] == "direct"
                await relay.say(alice, quiet, "to you", mentions=[bot])
                assert (await relay.next_event(bot))["content"] == "to you"
            taken = [(info.address.chat_id, info.address.kind) for info in witness.received]
            assert taken == [(free, "thread"), (direct, "dm"), (quiet, "thread")]

    run(test())


def test_a_message_with_a_p_tag_in_a_plain_channel_is_no_direct_message(tmp_path: Path) -> None:
    """Only the channel's own metadata says that it is direct."""

    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            pair = relay.channel("just us", alice, bot)
            witness = Witness()
            async with talking(tmp_path / "home", relay, bot, witness, allowed=(alice,)):
                await relay.say(alice, pair, "hi", mentions=[bot])
                await relay.next_event(bot)
            assert [info.address.kind for info in witness.received] == ["thread"]

    run(test())


def test_a_direct_message_in_a_thread_is_answered_there_in_the_same_session(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        agent = ScriptedAgent()
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), agent=agent):
                first = await relay.say(alice, direct, "one")
                answer = await relay.next_event(bot)
                second = await relay.say(alice, direct, "two", root=first, parent=answer["id"])
                answer = await relay.next_event(bot)
                assert tags(answer, "e") == [
                    ["e", first, "", "root"],
                    ["e", second, "", "reply"],
                ]
            assert len({record.session_id for record in agent.runs}) == 1

    run(test())


async def several(turn: Turn) -> AsyncIterator[AgentEvent]:
    yield Commentary("looking")
    yield Text("par")
    yield Text("t")
    yield Final("word " * 13_000)


@pytest.mark.case("BZ-06")
@pytest.mark.parametrize("opt_out", ["", 'reply_to_mode = "off"', "reply_in_thread = false"])
def test_every_message_of_a_turn_refers_to_its_thread_or_none_does(
    tmp_path: Path, opt_out: str
) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            channel = relay.channel("general", alice, bot)
            more = f'progress = "full"\n{opt_out}'
            agent = ScriptedAgent(several)
            async with talking(
                tmp_path / "home", relay, bot, allowed=(alice,), more=more, agent=agent
            ):
                top = await relay.say(alice, channel, "hello")
                inner = await relay.say(alice, channel, "go", mentions=[bot], root=top, parent=top)
                said: list[dict[str, Any]] = []
                while sum(event["content"].count("word") for event in said) < 13_000:
                    said.append(await relay.next_event(bot, 9, 40003))
            messages = [event for event in said if event["kind"] == 9]
            edited = {tags(event, "e")[0][1] for event in said if event["kind"] == 40003}
            assert edited <= {event["id"] for event in messages}
            assert len(messages) >= 3
            for event in messages:
                named = [tag[1] for tag in tags(event, "e")]
                assert named == ([] if opt_out else [top, inner] if len(named) > 1 else [top])
            if not opt_out:
                assert len(tags(messages[0], "e")) == 2

    run(test())


def test_a_long_answer_is_cut_to_what_the_relay_takes(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        text = "ä\n" * 30_000
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")

            async def answer(turn: Turn) -> AsyncIterator[AgentEvent]:
                yield Final(text)

            agent = ScriptedAgent(answer)
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), agent=agent):
                await relay.say(alice, direct, "go")
                screen: dict[str, str] = {}
                while "".join(screen.values()).count("ä") != 30_000:
                    event = await relay.next_event(bot, 9, 40003)
                    shown = tags(event, "e")[0][1] if event["kind"] == 40003 else event["id"]
                    screen[shown] = event["content"]
            assert all(len(part.encode()) <= 30_000 for part in screen.values())

    run(test())


def test_an_answer_mentions_members_by_name_but_not_in_code(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bob, bot = Person("Alice"), Person("bob"), Person("bot")
        async with BuzzRelay() as relay:
            channel = relay.channel("general", alice, bob, bot)
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                await relay.say(alice, channel, "ask @bob, not `@alice`", mentions=[bot])
                preview = await relay.next_event(bot)
                assert tags(preview, "p") == []
                answer = await relay.next_event(bot, 40003)
                assert tags(answer, "p") == [["p", bob.key]]

    run(test())


def test_an_answer_is_streamed_by_edits_that_end_with_the_whole(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        gate = asyncio.Event()

        async def answer(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Text("one")
            await gate.wait()
            yield Text(" two")

        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            agent = ScriptedAgent(answer)
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), agent=agent):
                await relay.say(alice, direct, "go")
                shown = await relay.next_event(bot)
                assert shown["content"] == "one"
                gate.set()
                edit = await relay.next_event(bot, 9, 40003)
                while edit["content"] != "one two":
                    edit = await relay.next_event(bot, 9, 40003)
                assert edit["kind"] == 40003
                assert tags(edit, "e") == [["e", shown["id"]]]
                assert edit["created_at"] > shown["created_at"]

    run(test())


def test_edits_reactions_and_deletions_are_events_about_what_was_taken_in(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        alice, mallory, bot = Person("alice"), Person("mallory"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, mallory, bot, kind="dm")
            witness = Witness()
            async with talking(tmp_path / "home", relay, bot, witness, allowed=(alice, mallory)):
                told = await relay.say(alice, direct, "helo")
                answer = await relay.next_event(bot)
                about = [["e", told]]
                await relay.say(mallory, direct, "forged", kind=40003, tags=about)
                await relay.say(alice, direct, "hello", kind=40003, tags=about)
                heart = await relay.say(
                    alice, direct, "❤", kind=7, tags=[["e", told], ["e", answer["id"]]]
                )
                await relay.say(alice, direct, "", kind=5, tags=[["e", heart]])
                await relay.say(alice, direct, "", kind=5, tags=about)
                await witness.until(lambda: len(witness.received) >= 5)
            kinds = [(info.type, info.sender.id) for info in witness.received]
            assert kinds == [
                ("message", alice.key),
                ("edited", alice.key),
                ("reaction", alice.key),
                ("reaction", alice.key),
                ("deleted", alice.key),
            ]

    run(test())


@pytest.mark.case("BZ-05")
@pytest.mark.parametrize("listed", [True, False])
def test_the_core_s_list_is_the_only_one(tmp_path: Path, listed: bool) -> None:
    """The plugin has no list of its own: who is listed speaks, who is not is denied."""

    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            witness = Witness()
            allowed = (alice,) if listed else ()
            async with talking(tmp_path / "home", relay, bot, witness, allowed=allowed):
                await relay.say(alice, direct, "hello")
                await witness.until(lambda: bool(witness.received or witness.denied))
            assert [info.sender.id for info in witness.received] == [alice.key] * listed
            assert [info.sender_id for info in witness.denied] == [alice.key] * (not listed)

    run(test())


def test_agents_that_mention_each_other_are_cut_off(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        alice, robot, bot = Person("alice"), Person("robot"), Person("bot")
        async with BuzzRelay() as relay:
            channel = relay.channel("general", alice, robot, bot)
            relay.rooms[channel].bots.add(robot.key)
            witness = Witness()
            async with talking(
                tmp_path / "home",
                relay,
                bot,
                witness,
                allowed=(alice, robot),
                more='bots = "mentions"\nbot_turns = 2',
            ):
                for number in range(4):
                    await relay.say(robot, channel, f"robot {number}", mentions=[bot])
                await relay.say(alice, channel, "alice", mentions=[bot])
                said: list[str] = []
                while "alice" not in said:
                    said.append((await relay.next_event(bot))["content"])
            assert [text for text in said if text.startswith("robot")] == ["robot 0", "robot 1"]
            assert all(
                info.sender.is_bot == (info.sender.id == robot.key) for info in witness.received
            )

    run(test())


def test_a_channel_is_read_when_the_account_is_added_and_left_when_it_is_removed(
    tmp_path: Path,
) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            channel = relay.channel("new", alice)
            witness = Witness()
            async with talking(tmp_path / "home", relay, bot, witness, allowed=(alice,)):
                await relay.add(channel, bot)
                await relay.say(alice, channel, "welcome", mentions=[bot])
                assert (await relay.next_event(bot))["content"] == "welcome"
                endings = relay.endings
                await relay.remove(channel, bot)
                await relay.until(lambda: relay.endings > endings)
                before = len(relay.requests)
                await relay.add(channel, bot)
                await listening(relay, bot, since=before)
                await relay.say(alice, channel, "again", mentions=[bot])
                assert (await relay.next_event(bot))["content"] == "again"

    run(test())


def test_membership_that_was_never_pushed_is_found(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            channel = relay.channel("new", alice)
            more = 'reconcile_every = "1s"'
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), more=more):
                relay.rooms[channel].members.add(bot.key)
                await listening(relay, bot)
                await relay.say(alice, channel, "hello", mentions=[bot])
                assert (await relay.next_event(bot))["content"] == "hello"

    run(test())


def test_every_request_names_exactly_one_channel(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            rooms = {relay.channel(f"c{number}", alice, bot) for number in range(3)}
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                pass
            asked = [query["#h"] for query in relay.requests if "#h" in query]
            assert sorted(asked) == sorted([room] for room in rooms)
            others = [query for query in relay.requests if "#h" not in query]
            assert [query["#p"] for query in others] == [[bot.key]]

    run(test())


def test_an_edit_that_adds_the_mention_is_a_message_for_the_account(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        async with BuzzRelay() as relay:
            channel = relay.channel("general", alice, bot)
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,)):
                told = await relay.say(alice, channel, "who knows?")
                await relay.say(
                    alice, channel, "bot?", kind=40003, tags=[["e", told]], mentions=[bot]
                )
                answer = await relay.next_event(bot)
                assert tags(answer, "e") == [["e", told, "", "reply"]]

    run(test())


def test_people_see_that_the_account_is_there_and_that_it_writes(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        agent = ScriptedAgent()
        gate = agent.gate("wait")
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), agent=agent):
                assert (await relay.next_event(bot, 20001))["content"] == "online"
                await relay.say(alice, direct, "wait")
                typing = await relay.next_event(bot, 20002)
                assert tags(typing, "h") == [["h", direct]]
                gate.set()
                assert (await relay.next_event(bot))["content"] == "wait"
            assert (await relay.next_event(bot, 20001))["content"] == "offline"

    run(test())


def owner_tag(owner: LocalSigner, agent: str) -> str:
    digest = sha256(f"nostr:agent-auth:{agent}:".encode()).digest()
    return json.dumps(["auth", owner.public_key, "", owner.sign(digest)])


def test_an_owner_s_tag_is_shown_to_the_relay_and_on_every_message(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        tag = owner_tag(LocalSigner("7".zfill(64)), bot.key)
        async with BuzzRelay() as relay:
            direct = relay.channel("", alice, bot, kind="dm")
            more = f"auth_tag = '{tag}'"
            async with talking(tmp_path / "home", relay, bot, allowed=(alice,), more=more):
                await relay.say(alice, direct, "hello")
                answer = await relay.next_event(bot)
            (auth,) = [event for label, event in relay.frames if label == "AUTH"]
            assert tags(auth, "auth") == tags(answer, "auth") == [json.loads(tag)]

    run(test())


def test_a_tag_for_another_agent_fails_the_account(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bot = Person("alice"), Person("bot")
        tag = owner_tag(LocalSigner("7".zfill(64)), alice.key)
        async with BuzzRelay() as relay:
            more = f"auth_tag = '{tag}'"
            async with talking(tmp_path / "home", relay, bot, more=more, ready=False) as running:
                account = running.profiles["default"].accounts.get("buzz")
                assert account is not None
                await eventually(lambda: account.state == "failed")
                assert "auth_tag" in account.reason
            assert relay.connections == 0

    run(test())


def test_profiles_do_not_meet(tmp_path: Path) -> None:
    """Two profiles, each with its relay, key and list: neither answers the other's people."""

    async def test() -> None:
        alice, bob, one, two = (Person(name) for name in ("alice", "bob", "one", "two"))
        witness = Witness()
        home = Home(tmp_path / "home", tmp_path / "home")
        home.ensure()
        async with BuzzRelay() as first, BuzzRelay() as second:
            places = [
                relay.channel("", alice, bob, bot, kind="dm")
                for relay, bot in ((first, one), (second, two))
            ]
            work = home.config_file("work")
            work.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            agent = '[agent]\nuse = "scripted"\n'
            work.write_text(agent + config_for(second, two, tmp_path / "home", bob))
            config = f'{agent}[gateway]\nprofiles = ["default", "work"]\n' + config_for(
                first, one, tmp_path / "home", alice
            )
            async with gateway(
                tmp_path / "home", QuickBuzz(), ScriptedAgent(), witness, config=config
            ):
                await listening(first, one)
                await listening(second, two)
                await first.say(bob, places[0], "bob to one")
                await second.say(alice, places[1], "alice to two")
                await first.say(alice, places[0], "alice to one")
                await second.say(bob, places[1], "bob to two")
                assert (await first.next_event(one))["content"] == "alice to one"
                assert (await second.next_event(two))["content"] == "bob to two"
            assert sorted(info.sender_id for info in witness.denied) == sorted([alice.key, bob.key])
            assert {event["pubkey"] for _, event in first.frames} == {one.key}
            assert {event["pubkey"] for _, event in second.frames} == {two.key}

    run(test())


def test_an_agent_reads_what_a_message_replies_to_as_it_reads_now(tmp_path: Path) -> None:
    async def test() -> None:
        alice, bob, bot = Person("alice"), Person("bob"), Person("bot")

        async def quote(turn: Turn) -> AsyncIterator[AgentEvent]:
            yield Final(f"[{turn.messages[0].quoted}]")

        async with BuzzRelay() as relay:
            channel = relay.channel("general", alice, bob, bot)
            elsewhere = relay.channel("secret", bob)
            hidden = await relay.say(bob, elsewhere, "hidden")
            more, agent = "streaming = false", ScriptedAgent(quote)
            async with talking(
                tmp_path / "home", relay, bot, allowed=(alice,), more=more, agent=agent
            ):
                said = await relay.say(bob, channel, "lunch at one")
                about = [["e", said]]
                await relay.say(bob, channel, "lunch at two", kind=40003, tags=about)
                await relay.say(alice, channel, "lunch at noon", kind=40003, tags=about)
                told = await relay.say(alice, channel, "when?", mentions=[bot], root=said)
                answer = await relay.next_event(bot)
                assert answer["content"] == "[lunch at two]"
                for parent in (told, answer["id"], hidden, "f" * 64):
                    await relay.say(alice, channel, "?", mentions=[bot], root=said, parent=parent)
                    assert (await relay.next_event(bot))["content"] == "[]"

    run(test())
