"""A chat gets another id from its network, and everything of it follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import (
    Accepted,
    AgentEvent,
    Denied,
    Duplicate,
    NotReady,
    PluginError,
    RateLimited,
    SendFailed,
    Text,
    Turn,
    Unreachable,
)
from hermes_core.gateway import Gateway
from hermes_core.messages import Address
from hermes_core.moves import Moves
from hermes_core.sessions import SessionPolicy, session_key
from hermes_core.testing import After, ScriptedAgent, ScriptedPlatform, WallClock, gateway
from tests.core.support import HASTY, rows, run, store_of, until

OLD, NEW = "-5", "-1005"
KEY = "agent:main:scripted:{}:{}"


async def said(platform: ScriptedPlatform, text: str, chat: str = OLD, **more: Any) -> Any:
    return await platform.say(text, chat=chat, kind="group", **more)


async def answers(platform: ScriptedPlatform, text: str, chat: str = OLD, **more: Any) -> None:
    await said(platform, text, chat, **more)
    assert await platform.next_text() == text


def sent_to(platform: ScriptedPlatform, chat: str) -> list[str]:
    return [sent.message.text for sent in platform.sent if sent.message.address.chat_id == chat]


async def found(running: Gateway, query: str) -> list[Any]:
    return await store_of(running).write(lambda tx: tx.execute(query).fetchall())


def sessions(home: Path) -> list[Any]:
    return rows(home, "SELECT session_key, generation, ended_at IS NULL FROM session ORDER BY 1, 2")


# ── the session follows ──────────────────────────────────────────────────────────────────────────


def test_a_session_goes_on_under_the_new_id(tmp_path: Path) -> None:
    async def remembers(turn: Turn) -> AsyncIterator[AgentEvent]:
        history = await turn.history()
        yield Text(" ".join([*(line.text for line in history if line.role == "user"), "end"]))

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent(remembers)
        async with gateway(tmp_path, platform, agent):
            await said(platform, "one")
            await platform.next_text()
            await platform.migrate(OLD, NEW)
            await said(platform, "two", NEW)
            assert await platform.next_text() == "one end"
            await said(platform, "three", NEW, user="u2")
            assert await platform.next_text() == "end"
        assert len({turn.session_id for turn in agent.runs}) == 2

    run(scenario())
    assert sessions(tmp_path) == [
        (KEY.format("group", "-1005:u1"), 0, 1),
        (KEY.format("group", "-1005:u2"), 0, 1),
    ]
    assert rows(tmp_path, "SELECT DISTINCT chat_id FROM outbox") == [(NEW,)]
    (address,) = rows(tmp_path, "SELECT DISTINCT address FROM session")
    assert msgspec.json.decode(address[0], type=Address).chat_id == NEW


@pytest.mark.parametrize("sharing", ["per_user", "shared"])
def test_all_sessions_of_the_chat_follow_and_no_other(tmp_path: Path, sharing: str) -> None:
    config = f'[sessions]\ngroup = "{sharing}"\nthread = "{sharing}"\n'
    others = (
        {"chat": "-55", "kind": "group"},
        {"chat": "-5:1", "kind": "group"},
        {"chat": OLD, "kind": "dm"},
        {"chat": "c1", "kind": "group", "thread": OLD},
    )

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent, config=config):
            for place in (*others, {"chat": OLD, "kind": "group"}):
                await platform.say("hi", **place)  # type: ignore[arg-type]
                await platform.next_text()
            await answers(platform, "topic", thread="7")
            before = len(agent.runs)
            await platform.migrate(OLD, NEW)
            await answers(platform, "again", NEW)
            await answers(platform, "again", NEW, thread="7")
            for place in others:
                await platform.say("again", **place)  # type: ignore[arg-type]
                await platform.next_text()
            first, second = agent.runs[:before], agent.runs[before:]
            assert len({turn.session_id for turn in first}) == before
            assert {turn.session_id for turn in second} == {turn.session_id for turn in first}

    run(scenario())
    keys = {key for key, *_ in sessions(tmp_path)}
    user = ":u1" if sharing == "per_user" else ""
    assert KEY.format("group", NEW) + user in keys
    assert KEY.format("thread", f"{NEW}:7") + user in keys
    assert KEY.format("group", "-5%3A1") + user in keys
    assert KEY.format("dm", OLD) in keys


def test_it_may_be_said_twice_and_both_ways_round(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent) as running:
            await answers(platform, "one")
            await asyncio.gather(platform.migrate(OLD, NEW), platform.migrate(OLD, NEW))
            before = await found(running, "SELECT * FROM session")
            await answers(platform, "two", NEW)
            await platform.migrate(OLD, NEW)
            after = await found(running, "SELECT * FROM session")
            assert [row[:3] for row in after] == [row[:3] for row in before]
        assert len({turn.session_id for turn in agent.runs}) == 1

    run(scenario())


def test_the_event_ids_of_the_two_chats_are_kept_apart(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent):
            await answers(platform, "old", event_id="m1")
            await platform.migrate(OLD, NEW)
            assert isinstance(await said(platform, "new", NEW, event_id="m1"), Accepted)
            assert await platform.next_text() == "new"
            assert isinstance(await said(platform, "old", event_id="m1"), Duplicate)
            assert isinstance(await said(platform, "new", NEW, event_id="m1"), Duplicate)
        assert [turn.texts for turn in agent.runs] == [("old",), ("new",)]

    run(scenario())


# ── what is under way ────────────────────────────────────────────────────────────────────────────


def test_a_turn_that_runs_answers_in_the_new_chat_and_what_waits_comes_after_it(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        gate = agent.gate("one")
        async with gateway(tmp_path, platform, agent) as running:
            await said(platform, "one")
            await agent.started(1)
            await said(platform, "two")
            await platform.migrate(OLD, NEW)
            await said(platform, "three", NEW)
            await asyncio.sleep(0)
            assert running.profiles["default"].status()["waiting"] == 2
            gate.set()
            assert [await platform.next_text() for _ in range(3)] == ["one", "two", "three"]
            assert running.profiles["default"].status()["waiting"] == 0
        assert [turn.at_once for turn in agent.runs] == [1, 1, 1]
        assert len({turn.session_id for turn in agent.runs}) == 1
        assert sent_to(platform, NEW) == ["one", "two", "three"]
        assert platform.sent[0].message.reply_to is None

    run(scenario())
    assert rows(
        tmp_path,
        "SELECT DISTINCT session_key FROM outbox UNION SELECT DISTINCT session_key FROM inbox",
    ) == [(KEY.format("group", f"{NEW}:u1"),)]


def test_a_command_in_the_new_chat_reaches_the_turn_that_began_in_the_old_one(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        agent.gate("one")
        async with gateway(tmp_path, platform, agent) as running:
            await said(platform, "one")
            await agent.started(1)
            await platform.migrate(OLD, NEW)
            await said(platform, "/stop", NEW)
            assert "Stopped" in await platform.next_text()
            await until(lambda: not running.profiles["default"].status()["busy_sessions"])
            await answers(platform, "two", NEW)
        assert sent_to(platform, OLD) == []

    run(scenario())


def test_two_sessions_that_become_one_have_one_turn_at_a_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        gates = [agent.gate("old 1"), agent.gate("new 1")]
        async with gateway(tmp_path, platform, agent):
            await said(platform, "old 1")
            await agent.started(1)
            await said(platform, "new 1", NEW)
            await agent.started(2)
            await said(platform, "old 2")
            await said(platform, "new 2", NEW)
            await platform.migrate(OLD, NEW)
            gates[1].set()
            assert await platform.next_text() == "new 1"
            await said(platform, "new 3", NEW)
            assert len(agent.runs) == 2
            gates[0].set()
            got = [await platform.next_text() for _ in range(4)]
            assert got == ["old 1", "old 2", "new 2", "new 3"]
        first, other, *rest = agent.runs
        assert {turn.session_id for turn in rest} == {first.session_id}
        assert other.session_id != first.session_id

    run(scenario())
    key = KEY.format("group", f"{NEW}:u1")
    assert sessions(tmp_path) == [(key, 0, 0), (key, 1, 1)]
    assert rows(tmp_path, "SELECT * FROM generation") == [(key, 1)]


def test_the_session_that_began_first_goes_on_and_generations_only_rise(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = WallClock(1000.0)
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent, wall=clock):
            await answers(platform, "first", NEW)
            for text in ("a", "b"):
                clock.advance(1)
                await answers(platform, text)
                await said(platform, "/new")
                await platform.next_text()
            clock.advance(1)
            await answers(platform, "c")
            await platform.migrate(OLD, NEW)
            await answers(platform, "again", NEW)
        assert agent.runs[-1].session_id == agent.runs[0].session_id

    run(scenario())
    key = KEY.format("group", f"{NEW}:u1")
    assert sessions(tmp_path) == [(key, 1, 0), (key, 2, 0), (key, 3, 0), (key, 4, 1)]
    assert (key, 4) in rows(tmp_path, "SELECT session_key, generation FROM generation")


@pytest.mark.parametrize("failure", [Unreachable("not now"), SendFailed("no"), RateLimited(3)])
def test_what_could_not_be_sent_is_sent_to_the_new_chat(tmp_path: Path, failure: Exception) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        platform.results.append(failure)
        async with gateway(tmp_path, platform, agent) as running:
            await said(platform, "one")
            await until(lambda: len(platform.attempts) == 1)
            pending = "SELECT 1 FROM outbox WHERE state = 'pending'"
            while not await found(running, pending):  # noqa: ASYNC110 - rows do not tell
                await asyncio.sleep(0.001)
            await said(platform, "two")
            await agent.started(2)
            await platform.migrate(OLD, NEW)
            assert [await platform.next_text() for _ in range(2)] == ["one", "two"]
        assert sent_to(platform, NEW) == ["one", "two"]
        assert sent_to(platform, OLD) == []

    run(scenario(), speed=HASTY)


@pytest.mark.parametrize("busy", [False, True])
def test_a_message_on_its_way_is_not_overtaken_or_lost(tmp_path: Path, busy: bool) -> None:
    """The call is in progress while the chat moves, and then fails."""

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        go = asyncio.Event()

        held = After(go)
        platform.results.extend([held, After(go)] if busy else [held])
        async with gateway(tmp_path, platform, agent):
            await said(platform, "one")
            await held.begun.wait()
            await said(platform, "two")
            await agent.started(2)
            if busy:
                await said(platform, "there", NEW)
                await until(lambda: len(platform.attempts) == 2)
            await platform.migrate(OLD, NEW)
            go.set()
            got = [await platform.next_text() for _ in range(3 if busy else 2)]
            assert [text for text in got if text != "there"] == ["one", "two"]
        assert sent_to(platform, NEW)[-1] == "two"

    run(scenario())


def test_everything_that_waits_at_a_restart_follows(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        agent.gate("one")
        platform.results.extend([Unreachable("not now")] * 2)
        async with gateway(tmp_path, platform, agent, config='[gateway]\nshutdown_grace = "0s"\n'):
            await said(platform, "kept", user="u2")
            await until(lambda: len(platform.attempts) == 1)
            await said(platform, "one")
            await agent.started(2)
            await said(platform, "two")
            await platform.migrate(OLD, NEW)
            await until(lambda: len(platform.attempts) == 2)
        platform.forget()
        agent.gate("one").set()
        async with gateway(tmp_path, platform, agent):
            assert {await platform.next_text() for _ in range(3)} == {"kept", "one", "two"}
        assert len(sent_to(platform, NEW)) == 3

    run(scenario())


# ── who may speak ────────────────────────────────────────────────────────────────────────────────


def closed(lists: str) -> str:
    return f"[platforms.scripted]\n{lists}\n"


def test_a_listed_group_is_listed_under_its_new_id_and_the_operator_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(allow_all=False), ScriptedAgent()
        config = closed(f'allowed_groups = ["{OLD}"]')
        async with gateway(tmp_path, platform, agent, config=config) as running:
            assert isinstance(await said(platform, "one", NEW), Denied)
            gate = agent.gate("one")
            await said(platform, "one")
            await agent.started(1)
            await said(platform, "two")
            await platform.migrate(OLD, NEW)
            await platform.migrate(OLD, NEW)
            gate.set()
            assert [await platform.next_text() for _ in range(2)] == ["one", "two"]
            await answers(platform, "three", NEW)
            assert isinstance(await said(platform, "x", "-77"), Denied)
            # settings that are read anew do not forget it, and take it away with the old id
            config_file = tmp_path / "config.toml"
            text = config_file.read_text()
            account = running.profiles["default"].accounts.get("scripted")
            assert account is not None
            before = account.access
            config_file.write_text(text.replace("allowed_groups", 'admins = ["a"]\nallowed_groups'))
            await until(lambda: account.access is not before)
            await answers(platform, "four", NEW)
            before = account.access
            config_file.write_text(text.replace(OLD, "-6"))
            await until(lambda: account.access is not before)
            assert isinstance(await said(platform, "five", NEW), Denied)

    with caplog.at_level(logging.WARNING):
        run(scenario())
    told = [
        record.getMessage() for record in caplog.records if "write the new id" in record.message
    ]
    assert len(told) == 1
    assert OLD in told[0]
    assert NEW in told[0]


def test_a_group_that_nobody_listed_gains_nothing_by_moving(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(allow_all=False), ScriptedAgent()
        async with gateway(tmp_path, platform, agent, config=closed(f'allowed_groups = ["{OLD}"]')):
            await platform.migrate("-9", "-1009")
            assert isinstance(await said(platform, "x", "-1009"), Denied)
            # a permission cannot be led on: the first word about a chat counts
            await platform.migrate(OLD, NEW)
            await platform.migrate(OLD, "-666")
            await platform.migrate(NEW, OLD)
            assert isinstance(await said(platform, "x", "-666"), Denied)
            await answers(platform, "hi", NEW)

    run(scenario())


def test_the_rules_of_a_group_follow_unless_the_new_one_has_its_own(tmp_path: Path) -> None:
    lists = f"""
        allow_all = true
        [platforms.scripted.groups."{OLD}"]
        allowed_users = ["ann"]
        [platforms.scripted.groups."-6"]
        allowed_users = ["ann"]
        [platforms.scripted.groups."-1006"]
        allowed_users = ["bob"]
    """

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(allow_all=False), ScriptedAgent()
        async with gateway(tmp_path, platform, agent, config=closed(lists)):
            await platform.migrate(OLD, NEW)
            await platform.migrate("-6", "-1006")
            assert isinstance(await said(platform, "x", NEW, user="bob"), Denied)
            assert isinstance(await said(platform, "x", NEW, user="ann"), Accepted)
            assert isinstance(await said(platform, "x", "-1006", user="ann"), Denied)
            assert isinstance(await said(platform, "x", "-1006", user="bob"), Accepted)

    run(scenario())


def test_ids_that_can_be_none_are_the_adapters_fault(tmp_path: Path) -> None:
    async def scenario() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path, platform, ScriptedAgent()):
            for old, new in (("", NEW), (OLD, ""), (OLD, "\ud800")):
                with pytest.raises(PluginError):
                    await platform.migrate(old, new)
        with pytest.raises(NotReady):
            await platform.migrate(OLD, NEW)

    run(scenario())


# ── what is on its way ───────────────────────────────────────────────────────────────────────────

chats = st.sampled_from(["a", "b", "c", "d:%", "e"])


@given(st.lists(st.tuples(chats, chats), max_size=8), chats, st.none() | chats)
def test_an_address_and_its_session_key_move_alike_and_come_to_rest(
    said_moves: list[tuple[str, str]], chat: str, thread: str | None
) -> None:
    moves = Moves("default")
    for old, new in said_moves:
        moves.add("line.ops", old, new)
    address = Address(platform="line", account="ops", chat_id=chat, thread_id=thread, kind="group")
    for policy in (SessionPolicy(), SessionPolicy("shared", "per_user")):
        moved = moves.address(address)
        key = moves.key(session_key("default", address, "u:1", policy))
        assert key == session_key("default", moved, "u:1", policy)
        assert moves.address(moved) == moved
    elsewhere = msgspec.structs.replace(address, account="default")
    assert moves.address(elsewhere) == elsewhere


def test_a_preview_of_the_chat_that_is_gone_is_completed_by_no_later_attempt(
    tmp_path: Path,
) -> None:
    """The chat moves while the preview is on its way; then a stop cuts the turn."""
    arrives = After(asyncio.Event())
    again = False

    async def behave(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text("begun")
        if not again:
            await asyncio.Event().wait()

    async def scenario() -> None:
        nonlocal again
        platform, agent = ScriptedPlatform(edit=True), ScriptedAgent(behave)
        config = '[gateway]\nshutdown_grace = "0s"\n'
        async with gateway(tmp_path, platform, agent, config=config) as running:
            platform.results.append(arrives)
            await said(platform, "go")
            await arrives.begun.wait()
            await platform.migrate(OLD, NEW)
            arrives.event.set()
            await until(lambda: bool(platform.sent))
            await found(running, "SELECT 1")
        again = True
        async with gateway(tmp_path, platform, agent):
            assert await platform.next_text() == "begun"
        gone = next(sent.message_id for sent in platform.sent)
        assert [sent.message.text for sent in platform.sent if sent.message_id == gone] == ["begun"]

    run(scenario())
