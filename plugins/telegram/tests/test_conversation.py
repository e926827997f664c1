"""A whole gateway against a Bot API server on loopback."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes_core import AgentEvent, Text, Turn
from hermes_core.testing import ScriptedAgent
from hermes_telegram.testing import Answer, BotApi, Drop, Fault, telegram_gateway

NO_DRAFTS = Answer(400, "Bad Request: TEXTDRAFT_PEER_INVALID")
NO_METHOD = Answer(404, "Not Found")


def test_a_message_is_answered_and_then_confirmed(tmp_path: Path) -> None:
    async def main() -> None:
        async with BotApi() as api, telegram_gateway(tmp_path, api.url, ScriptedAgent()):
            said = api.say("hello", chat=7)
            sent = await api.called("sendMessage")
            assert (sent.fields["chat_id"], sent.fields["text"]) == ("7", "hello")
            assert f'"message_id": {said["message_id"]}' in sent.fields["reply_parameters"]
            while api.updates:
                await api.change()

    asyncio.run(main())


def test_a_growing_answer_is_shown_by_edits_and_ends_whole(tmp_path: Path) -> None:
    more = asyncio.Event()

    async def speak(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text("It is ")
        await more.wait()
        yield Text("**done**")

    async def main() -> None:
        async with BotApi() as api, telegram_gateway(tmp_path, api.url, ScriptedAgent(speak)):
            api.say("go")
            assert (await api.called("sendMessage")).fields["text"] == "It is"
            more.set()
            await api.called("editMessageText")
            while api.chat(1) != ["It is done"]:
                await api.change()
            assert len(api.of("sendMessage")) == 1

    asyncio.run(main())


def test_a_question_has_buttons_until_one_is_pressed(tmp_path: Path) -> None:
    async def ask(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text(f"You chose {await turn.ask('Delete *it*?', ['Allow', 'Deny'])}.")

    async def main() -> None:
        async with BotApi() as api, telegram_gateway(tmp_path, api.url, ScriptedAgent(ask)):
            api.say("go", chat=7)
            question = await api.called("sendMessage")
            rows = json.loads(question.fields["reply_markup"])["inline_keyboard"]
            assert [button["text"] for row in rows for button in row] == ["Allow", "Deny"]
            data = rows[1][0]["callback_data"]
            assert len(data.encode()) <= 64
            ((_, message_id),) = api.texts
            below = api.message("Delete it?", chat=7) | {"message_id": message_id}
            person = {"id": 7, "is_bot": False, "first_name": "A"}
            api.update(
                "callback_query", {"id": "1", "from": person, "message": below, "data": data}
            )
            edited = await api.called("editMessageText")
            assert edited.fields["text"] == "Delete it?\n→ Deny"
            assert "reply_markup" not in edited.fields
            while "You chose Deny." not in api.chat(7):
                await api.change()

    asyncio.run(main())


def test_in_a_private_chat_an_answer_grows_as_a_draft(tmp_path: Path) -> None:
    more = asyncio.Event()

    async def speak(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text("It is ")
        await more.wait()
        yield Text("**done**")

    async def main() -> None:
        async with (
            BotApi() as api,
            telegram_gateway(tmp_path, api.url, ScriptedAgent(speak), drafts=True),
        ):
            api.say("go", chat=7)
            first = await api.called("sendMessageDraft")
            assert (first.fields["chat_id"], first.fields["text"]) == ("7", "It is")
            more.set()
            answer = await api.called("sendMessage")
            assert answer.fields["text"] == "It is done"
            numbers = {call.fields["draft_id"] for call in api.of("sendMessageDraft")}
            assert len(numbers) == 1
            assert 0 < int(numbers.pop()) < 1 << 31
            assert api.chat(7) == ["It is done"]

    asyncio.run(main())


@pytest.mark.parametrize("answer", [NO_DRAFTS, NO_METHOD, Drop()])
def test_where_drafts_are_not_to_be_had_the_answer_grows_by_edits(
    tmp_path: Path, answer: Fault
) -> None:
    more = asyncio.Event()

    async def speak(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text("It is ")
        await more.wait()
        yield Text("**done**")

    async def main() -> None:
        async with (
            BotApi() as api,
            telegram_gateway(tmp_path, api.url, ScriptedAgent(speak), drafts=True),
        ):
            api.faults["sendMessageDraft"].append(answer)
            api.say("go", chat=7)
            assert (await api.called("sendMessage")).fields["text"] == "It is"
            more.set()
            while api.chat(7) != ["It is done"]:
                await api.change()
            assert len(api.of("sendMessageDraft")) == 1

    asyncio.run(main())
