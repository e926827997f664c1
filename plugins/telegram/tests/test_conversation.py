"""A whole gateway against a Bot API server on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from hermes_core import AgentEvent, Text, Turn
from hermes_core.testing import ScriptedAgent
from hermes_telegram.testing import BotApi, telegram_gateway


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
