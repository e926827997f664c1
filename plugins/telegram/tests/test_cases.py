"""The failure cases of the area, and those of others that only a network can show: a whole gateway,
real files, real HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

import hermes_telegram
from hermes_core import AgentEvent, Attach, Text, Turn
from hermes_core.gateway import Gateway
from hermes_core.testing import ScriptedAgent
from hermes_telegram.adapter import TelegramAdapter
from hermes_telegram.settings import Timing
from hermes_telegram.testing import (
    FAST,
    TOKEN,
    Answer,
    BotApi,
    Drop,
    Hang,
    conflict,
    flood,
    migrated,
    telegram_gateway,
)

NO_THREAD = Answer(400, "Bad Request: message thread not found")
LOOKALIKES = (
    *("１２３", "1_23", "0123", " 123", "123 ", "+123", "123.0", "²", "", "@ann", "12a", "1" * 40),
    *("123\n", "-0", "0", "−123", "1e3", "0x7b", "tg://user?id=123"),
)
TO_EVERYONE = "require_mention = false"
ONE_GROUP = 'allowed_groups = ["-5"]\nrequire_mention = false'
"""Settings of an account that answers in groups without being named."""
WATCH = 4321.0
LIMIT = 30.0
"""Seconds after which a test that waits in vain fails."""
Work = Callable[[BotApi, Gateway], Awaitable[None]]


def run(
    path: Path,
    work: Work,
    agent: ScriptedAgent | None = None,
    *,
    settings: str = "",
    timing: Timing = FAST,
    previews: bool = True,
) -> None:
    """One life of a gateway and of its server."""

    async def main() -> None:
        async with asyncio.timeout(LIMIT), BotApi() as api:
            await once(path, api, work, agent, settings=settings, timing=timing, previews=previews)

    asyncio.run(main())


async def once(
    path: Path,
    api: BotApi,
    work: Work,
    agent: ScriptedAgent | None = None,
    *,
    settings: str = "",
    timing: Timing = FAST,
    previews: bool = True,
) -> None:
    async with telegram_gateway(
        path, api.url, agent or ScriptedAgent(), settings=settings, timing=timing, previews=previews
    ) as gateway:
        await work(api, gateway)


def account(gateway: Gateway) -> dict[str, str]:
    found = gateway.profiles["default"].accounts.get("telegram")
    assert found is not None
    return {"state": found.state, "reason": found.reason}


async def until(api: BotApi, done: Callable[[], bool]) -> None:
    """Wait, looking again whenever the server notices something, and now and then."""
    while not done():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.02):
                await api.change()


async def emptied(api: BotApi) -> None:
    """Wait until the bot has confirmed everything."""
    await until(api, lambda: not api.updates)


def texts(agent: ScriptedAgent) -> list[str]:
    return [text for turn in agent.runs for text in turn.texts]


# ── telegram ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.case("TG-01")
def test_the_same_update_is_one_turn_however_often_it_comes(tmp_path: Path) -> None:
    agent = ScriptedAgent()

    async def main() -> None:
        async with asyncio.timeout(LIMIT), BotApi() as api:
            said = api.message("once")
            update = {"update_id": 900, "message": said}

            async def thrice(api: BotApi, _: Gateway) -> None:
                for _turn in range(3):
                    api.updates.append(update)
                    api.say("marker")
                    await emptied(api)

            async def after_a_restart(api: BotApi, _: Gateway) -> None:
                api.updates.append(update)
                api.update("message", said)  # another update, the same message
                api.say("last")
                await agent.started(5)

            await once(tmp_path, api, thrice, agent)
            await once(tmp_path, api, after_a_restart, agent)

    asyncio.run(main())
    assert texts(agent).count("once") == 1
    assert texts(agent).count("marker") == 3


@pytest.mark.case("TG-02")
def test_a_restart_replays_nothing(tmp_path: Path) -> None:
    agent = ScriptedAgent()

    async def main() -> None:
        async with asyncio.timeout(LIMIT), BotApi() as api:

            async def five(api: BotApi, _: Gateway) -> None:
                for number in range(5):
                    api.say(str(number))
                await agent.started(5)

            async def one_more(api: BotApi, _: Gateway) -> None:
                api.say("new")
                await agent.started(6)
                await emptied(api)

            await once(tmp_path, api, five, agent)
            assert api.updates == []  # a clean stop confirms what was taken in
            await once(tmp_path, api, one_more, agent)

    asyncio.run(main())
    assert texts(agent) == ["0", "1", "2", "3", "4", "new"]


@pytest.mark.case("TG-02")
def test_what_a_killed_gateway_did_not_confirm_is_not_handled_again(tmp_path: Path) -> None:
    agent = ScriptedAgent()

    async def main() -> None:
        async with asyncio.timeout(LIMIT), BotApi() as api:

            async def two(api: BotApi, _: Gateway) -> None:
                api.say("a")
                api.say("b")
                kept = list(api.updates)
                await agent.started(2)
                await emptied(api)
                api.updates += kept  # as if the confirmation had never been sent

            async def third(api: BotApi, _: Gateway) -> None:
                api.say("c")
                await agent.started(3)

            await once(tmp_path, api, two, agent)
            await once(tmp_path, api, third, agent)

    asyncio.run(main())
    assert texts(agent) == ["a", "b", "c"]


@pytest.mark.case("TG-05")
def test_an_outage_costs_no_message(tmp_path: Path) -> None:
    agent = ScriptedAgent()

    async def main() -> None:
        async with asyncio.timeout(LIMIT), BotApi() as api:

            async def outage(api: BotApi, gateway: Gateway) -> None:
                api.say("before")
                await agent.started(1)
                port = api.port
                await api.close()
                for number in range(6):
                    api.say(str(number))
                await api.open(port)
                await agent.started(7)

            async def two_waited(api: BotApi, _: Gateway) -> None:
                await agent.started(9)
                await emptied(api)

            await once(tmp_path, api, outage, agent)
            api.say("w1")
            api.say("w2")
            await once(tmp_path, api, two_waited, agent)
            assert not [call for call in api.of("deleteWebhook") if call.fields]
            assert not [call for call in api.of("getUpdates") if call.fields.get("offset") == "-1"]

    asyncio.run(main())
    assert texts(agent) == ["before", "0", "1", "2", "3", "4", "5", "w1", "w2"]


@pytest.mark.case("TG-05")
@pytest.mark.parametrize(("pending", "expected"), [("keep", 51), ("drop", 1)])
def test_a_first_start_keeps_or_drops_what_waited_as_set(
    tmp_path: Path, pending: str, expected: int
) -> None:
    agent = ScriptedAgent()

    async def main() -> None:
        async with asyncio.timeout(LIMIT), BotApi() as api:
            for number in range(50):
                api.say(f"old {number}")

            async def start(api: BotApi, gateway: Gateway) -> None:
                await until(api, lambda: bool(api.of("getUpdates")))
                api.say("new")
                await agent.started(expected)

            await once(tmp_path, api, start, agent, settings=f'pending = "{pending}"')

    asyncio.run(main())
    assert len(texts(agent)) == expected


@pytest.mark.case("TG-05")
def test_a_backlog_of_many_pages_is_taken_in_its_order(tmp_path: Path) -> None:
    agent = ScriptedAgent()

    async def main() -> None:
        async with asyncio.timeout(LIMIT), BotApi() as api:
            for number in range(250):
                api.say(str(number), chat=number % 3 + 1)

            async def all_of_it(api: BotApi, _: Gateway) -> None:
                await agent.started(250)
                await emptied(api)

            await once(tmp_path, api, all_of_it, agent, previews=False)

    asyncio.run(main())
    for chat in range(3):
        found = [int(text) for text in texts(agent) if int(text) % 3 == chat]
        assert found == list(range(chat, 250, 3))


@pytest.mark.case("TG-06")
def test_a_conflict_that_ends_is_survived(tmp_path: Path) -> None:
    async def work(api: BotApi, gateway: Gateway) -> None:
        await until(api, lambda: bool(api.of("getUpdates")))
        api.faults["getUpdates"] += [conflict()] * 5
        api.say("hello")
        assert (await api.called("sendMessage")).fields["text"] == "hello"
        assert account(gateway)["state"] == "connected"

    run(tmp_path, work)


@pytest.mark.case("TG-06")
def test_a_conflict_that_lasts_is_not_called_connected(tmp_path: Path) -> None:
    async def work(api: BotApi, gateway: Gateway) -> None:
        api.say("first")
        await api.called("sendMessage")
        api.faults["getUpdates"] += [conflict()] * 10_000
        api.say("second")  # ends the open question
        await until(api, lambda: account(gateway)["state"] == "waiting")
        assert "another program" in account(gateway)["reason"]
        asked = len(api.of("getUpdates"))
        api.faults["getUpdates"].clear()
        await until(api, lambda: account(gateway)["state"] == "connected")
        await until(api, lambda: len(api.chat(1)) == 2)
        assert len(api.of("getUpdates")) > asked

    run(tmp_path, work, timing=Timing(first_pause=0.001, longest_pause=0.002, patience=0.01))


@pytest.mark.case("TG-08")
def test_an_edit_starts_no_turn_and_runs_no_command_again(tmp_path: Path) -> None:
    agent = ScriptedAgent()
    agent.gate("running")

    async def work(api: BotApi, _: Gateway) -> None:
        answered = api.say("answered")
        await api.called("sendMessage")
        running = api.say("running")
        await agent.started(2)
        queued = api.say("queued")
        command = api.say("/help")
        for said in (answered, running, queued, command):
            text = said["text"] if said is command else f"{said['text']}, edited"
            api.update("edited_message", said | {"edit_date": 1_700_200_000, "text": text})
        api.say("last")
        await emptied(api)
        agent.gate("running").set()
        await until(api, lambda: "last" in api.chat(1))

    run(tmp_path, work, agent)
    assert len(agent.runs) == 4
    assert not any(text.startswith(("answered,", "running,")) for text in texts(agent))


@pytest.mark.case("TG-09")
def test_an_album_is_one_turn(tmp_path: Path) -> None:
    agent = ScriptedAgent()

    async def work(api: BotApi, _: Gateway) -> None:
        for number in (3, 1, 2):
            photo = [{"file_id": f"f{number}", "width": 1, "height": 1}]
            caption = "the three of us" if number == 2 else ""
            api.say("", message_id=number, media_group_id="g", photo=photo, caption=caption)
        await api.called("sendMessage")
        api.say("and?")
        await api.called("sendMessage")

    run(tmp_path, work, agent)
    assert texts(agent) == ["the three of us", "and?"]


@pytest.mark.case("TG-11")
def test_preview_and_final_find_their_way_out_of_a_topic_that_is_gone(tmp_path: Path) -> None:
    more = asyncio.Event()

    async def speak(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text("half ")
        await more.wait()
        yield Text("whole")

    async def work(api: BotApi, _: Gateway) -> None:
        api.faults["sendMessage"] += [NO_THREAD]
        api.say("go", chat=-5, message_thread_id=3, is_topic_message=True)
        await until(api, lambda: api.chat(-5) == ["half"])
        more.set()
        await until(api, lambda: api.chat(-5) == ["half whole"])

    run(tmp_path, work, ScriptedAgent(speak), settings=TO_EVERYONE)


@pytest.mark.case("TG-11")
def test_the_general_topic_is_answered_without_a_thread(tmp_path: Path) -> None:
    async def work(api: BotApi, _: Gateway) -> None:
        first = api.message("first", chat=-5)
        api.say("hi", chat=-5, message_thread_id=first["message_id"], reply_to_message=first)
        assert "message_thread_id" not in (await api.called("sendMessage")).fields

    run(tmp_path, work, settings=TO_EVERYONE)


def test_a_file_that_was_sent_reaches_the_agent(tmp_path: Path) -> None:
    contents: list[bytes] = []

    async def read(turn: Turn) -> AsyncIterator[AgentEvent]:
        (file,) = turn.messages[0].attachments
        contents.append(await asyncio.to_thread(Path(file.path).read_bytes))
        yield Text("seen")

    async def work(api: BotApi, _: Gateway) -> None:
        api.files["f1"] = b"%PDF"
        api.say("read this", document={"file_id": "f1", "file_name": "a.pdf", "file_size": 4})
        await until(api, lambda: api.chat(1) == ["seen"])

    run(tmp_path, work, ScriptedAgent(read))
    assert contents == [b"%PDF"]


@pytest.mark.case("DL-13")
@pytest.mark.parametrize("chat", [1, -5])
def test_a_file_of_an_agent_comes_with_its_answer(tmp_path: Path, chat: int) -> None:
    more = asyncio.Event()

    async def speak(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text("Here ")
        await more.wait()
        yield Text("it is.")
        report = turn.scope.state_dir / "files" / "report.txt"
        report.parent.mkdir()
        report.write_bytes(b"figures")
        yield Attach(path=str(report), name="report.txt", media_type="text/plain")

    async def work(api: BotApi, _: Gateway) -> None:
        api.say("the report, please", chat=chat)
        await until(api, lambda: api.chat(chat) == ["Here"])
        more.set()
        sent = await api.called("sendDocument")
        assert list(sent.files.values()) == [b"figures"]
        await until(api, lambda: "".join(api.chat(chat)) == "Here it is.")
        assert len(api.of("sendDocument")) == 1

    drafts = "drafts = true" if chat > 0 else ""
    run(tmp_path, work, ScriptedAgent(speak), settings=f"{TO_EVERYONE}\n{drafts}")


# ── delivery ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.case("DL-06")
def test_the_wait_that_telegram_names_is_honoured_and_others_are_served(tmp_path: Path) -> None:
    async def work(api: BotApi, _: Gateway) -> None:
        api.faults["sendMessage"] += [flood(0.2), flood(0.2)]
        api.say("slow", chat=1)
        await until(api, lambda: len(api.of("sendMessage")) == 1)
        api.faults["sendMessage"].rotate()
        fault = api.faults["sendMessage"].popleft()
        api.say("quick", chat=2)
        await until(api, lambda: api.chat(2) == ["quick"])
        api.faults["sendMessage"].append(fault)
        await until(api, lambda: api.chat(1) == ["slow"])

    run(tmp_path, work)


@pytest.mark.case("DL-12")
def test_an_answer_waits_for_the_network_to_come_back(tmp_path: Path) -> None:
    agent = ScriptedAgent()
    agent.gate("think")

    async def work(api: BotApi, _: Gateway) -> None:
        api.say("think")
        await agent.started(1)
        port = api.port
        await api.close()
        agent.gate("think").set()
        await asyncio.sleep(0)
        await api.open(port)
        await until(api, lambda: api.chat(1) == ["think"])

    run(tmp_path, work, agent)


def test_a_message_whose_fate_is_unknown_is_sent_again_and_marked(tmp_path: Path) -> None:
    async def work(api: BotApi, _: Gateway) -> None:
        api.faults["sendMessage"] += [Drop(done=True)]
        api.say("hello")
        await until(api, lambda: len(api.chat(1)) == 2)
        first, second = api.chat(1)
        assert first == "hello"
        assert second != "hello"
        assert second.endswith("hello")

    run(tmp_path, work, previews=False)


def test_a_bot_that_was_blocked_is_blocked_for_that_chat_only(tmp_path: Path) -> None:
    async def work(api: BotApi, _: Gateway) -> None:
        api.faults["sendMessage"] += [Answer(403, "Forbidden: bot was blocked by the user")]
        api.say("one", chat=1)
        await until(api, lambda: len(api.of("sendMessage")) == 1)
        api.say("two", chat=2)
        await until(api, lambda: api.chat(2) == ["two"])
        assert len(api.of("sendMessage")) == 2

    run(tmp_path, work, previews=False)


def test_a_group_that_moves_gets_its_answer_at_its_new_place(tmp_path: Path) -> None:
    async def work(api: BotApi, _: Gateway) -> None:
        api.faults["sendMessage"] += [migrated(-1005)]
        api.say("hi", chat=-5, user=7)
        await until(api, lambda: api.chat(-1005) == ["hi"])

    run(tmp_path, work, settings=TO_EVERYONE)


def test_a_group_that_becomes_a_supergroup_keeps_its_session_and_its_permission(
    tmp_path: Path,
) -> None:
    agent = ScriptedAgent()
    gate = agent.gate("two")

    async def main() -> None:
        async with (
            asyncio.timeout(LIMIT),
            BotApi() as api,
            telegram_gateway(tmp_path, api.url, agent, previews=False, settings=ONE_GROUP),
        ):
            api.say("one", chat=-5, user=7)
            await until(api, lambda: api.chat(-5) == ["one"])
            api.say("two", chat=-5, user=7)
            await agent.started(2)
            api.say("three", chat=-5, user=7)
            api.update("message", api.message(chat=-5, user=7, migrate_to_chat_id=-1005))
            api.update("message", api.message(chat=-1005, user=7, migrate_from_chat_id=-5))
            api.say("four", chat=-1005, user=7)
            api.say("nobody", chat=-1006, user=7)
            await until(api, lambda: not api.updates)
            gate.set()
            await until(api, lambda: api.chat(-1005) == ["two", "three", "four"])
            assert api.chat(-5) == ["one"]

    asyncio.run(main())
    assert [run.texts for run in agent.runs] == [("one",), ("two",), ("three",), ("four",)]
    assert len({run.session_id for run in agent.runs}) == 1


# ── the account ──────────────────────────────────────────────────────────────────────────────────


def test_a_revoked_token_ends_the_account_for_good(tmp_path: Path) -> None:
    async def work(api: BotApi, gateway: Gateway) -> None:
        api.say("hi")
        await api.called("sendMessage")
        unauthorized = [Answer(401, "Unauthorized")] * 10
        api.faults["getMe"] += unauthorized
        api.faults["getUpdates"] += unauthorized
        api.say("anybody there?")
        await until(api, lambda: account(gateway)["state"] == "failed")
        assert "token" in account(gateway)["reason"]
        assert len(api.of("getMe")) == 2

    run(tmp_path, work)


def test_a_connection_that_goes_dead_is_noticed_and_replaced(tmp_path: Path) -> None:
    async def work(api: BotApi, _: Gateway) -> None:
        await until(api, lambda: bool(api.of("getUpdates")))
        api.faults["getUpdates"] += [Hang(), Hang()]
        api.say("wakes the first question")
        api.say("hello")
        await until(api, lambda: "hello" in api.chat(1))

    run(tmp_path, work, timing=Timing(poll=1, slack=0.05, first_pause=0.001, hold=0.01))


def test_stopping_does_not_wait_for_a_dead_connection(tmp_path: Path) -> None:
    async def work(api: BotApi, _: Gateway) -> None:
        api.say("hello")
        await api.called("sendMessage")
        api.faults["getUpdates"] += [Hang()] * 100

    run(tmp_path, work, timing=Timing(goodbye=0.5))


def test_a_webhook_that_was_left_is_removed_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT), BotApi() as api:
            api.webhook["url"] = "https://elsewhere.example/secret-path"

            async def work(api: BotApi, _: Gateway) -> None:
                api.say("hello")
                await api.called("sendMessage")

            await once(tmp_path, api, work)
            assert api.webhook["url"] == ""

    asyncio.run(main())
    assert "elsewhere.example" in caplog.text
    assert "secret-path" not in caplog.text


def test_a_button_is_answered_once_its_press_is_taken(tmp_path: Path) -> None:
    async def work(api: BotApi, _: Gateway) -> None:
        person = {"id": 7, "is_bot": False, "first_name": "A"}
        pressed = {"id": "q1", "from": person, "message": api.message("x"), "data": "yes"}
        api.update("callback_query", pressed)
        call = await api.called("answerCallbackQuery")
        assert call.fields["callback_query_id"] == "q1"

    run(tmp_path, work)


def test_a_bot_that_gets_another_name_goes_by_it(tmp_path: Path) -> None:
    look = asyncio.Event()

    async def sleep(seconds: float) -> None:
        await (look.wait() if seconds == WATCH else asyncio.sleep(seconds))
        look.clear()

    async def work(api: BotApi, _: Gateway) -> None:
        api.me["username"] = "renamed_bot"
        look.set()
        await until(api, lambda: len(api.of("getMe")) == 2)
        mention = [{"type": "mention", "offset": 0, "length": 12}]
        api.say("@renamed_bot hi", chat=-5, user=7, entities=mention)
        await until(api, lambda: api.chat(-5) == ["@renamed_bot hi"])

    run(tmp_path, work, timing=dataclasses.replace(FAST, watch=WATCH, sleep=sleep))


# ── who may speak ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.case("AZ-08")
@pytest.mark.case("AZ-12")
def test_a_stranger_gets_nothing_not_even_the_end_of_a_wait(tmp_path: Path) -> None:
    agent = ScriptedAgent()

    async def work(api: BotApi, _: Gateway) -> None:
        stranger = {"id": 8, "is_bot": False, "first_name": "S"}
        pressed = {
            "id": "q1",
            "from": stranger,
            "message": api.message("x", chat=-5, user=7),
            "data": "yes",
        }
        api.update("callback_query", pressed)
        for chat in (8, -5):
            api.say("let me in", chat=chat, user=8)
        api.say("hello", chat=7, user=7)
        await until(api, lambda: api.chat(7) == ["hello"])
        await emptied(api)
        assert api.of("answerCallbackQuery", "getFile") == []
        shown = api.of("sendMessage", "sendChatAction")
        assert {call.fields["chat_id"] for call in shown} == {"7"}

    run(tmp_path, work, agent, settings='allowed_users = ["7"]')
    assert texts(agent) == ["hello"]


@pytest.mark.case("AZ-06")
@pytest.mark.parametrize("lookalike", LOOKALIKES)
def test_only_a_number_as_telegram_writes_it_is_an_id(lookalike: str) -> None:
    with pytest.raises(ValueError, match="numeric id"):
        TelegramAdapter.normalize_user_id(lookalike)


@pytest.mark.case("AZ-06")
@pytest.mark.parametrize("user_id", ["123", "1", "7999999999", "-1001234567890"])
def test_ids_stay_as_they_are(user_id: str) -> None:
    assert TelegramAdapter.normalize_user_id(user_id) == user_id


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────


def test_the_token_shows_in_no_log_and_no_state(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = TOKEN.partition(":")[2]

    async def work(api: BotApi, gateway: Gateway) -> None:
        api.say("hello")
        await api.called("sendMessage")
        api.faults["sendMessage"] += [Drop(), Answer(500, "Internal Server Error"), flood(0.001)]
        api.faults["getUpdates"] += [Drop(), conflict()]
        api.say("again")
        await until(api, lambda: len(api.chat(1)) == 2)
        api.files["f1"] = b"x"
        api.cut_files = True
        api.say("a file", document={"file_id": "f1"})
        await until(api, lambda: len(api.chat(1)) == 3)
        port = api.port
        await api.close()
        assert secret not in str(account(gateway))
        await api.open(port)

    caplog.set_level(logging.DEBUG)
    run(tmp_path, work)
    assert "no updates for now" in caplog.text
    assert "the download broke off" in caplog.text
    assert secret not in caplog.text


def test_the_entry_point_does_not_load_the_client_library() -> None:
    import subprocess
    import sys

    code = "import sys, hermes_telegram; print('telegram' in sys.modules, 'httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    (platform,) = hermes_telegram.platforms()
    assert (platform.name, platform.max_length) == ("telegram", 4096)
