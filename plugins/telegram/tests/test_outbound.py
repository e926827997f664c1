"""What is asked of the Bot API, and what its answers mean, over real HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hermes_core import (
    AccountFailed,
    Address,
    NotReady,
    Outbound,
    OutboundAttachment,
    OutcomeUnknown,
    RateLimited,
    Receipt,
    Secret,
    SendError,
    SendFailed,
    SendRejected,
    utf16_length,
)
from hermes_telegram.client import Client
from hermes_telegram.outbound import Migrated, Sender
from hermes_telegram.settings import TelegramSettings
from hermes_telegram.testing import (
    TOKEN,
    Answer,
    BotApi,
    Call,
    Drop,
    Fault,
    Page,
    flood,
    migrated,
)

NO_THREAD = Answer(400, "Bad Request: message thread not found")


def message(text: str = "hello", **more: Any) -> Outbound:
    address = Address(platform="telegram", chat_id=more.pop("chat", "5"))
    address = msgspec.structs.replace(address, thread_id=more.pop("thread", None))
    return Outbound(id="o1", created_at=0.0, address=address, text=text, **more)


async def unmoved(old: str, new: str) -> None:
    """Nobody wants to know."""


def settings(url: str, **more: Any) -> TelegramSettings:
    return TelegramSettings(token=Secret(more.pop("token", TOKEN)), base_url=url, **more)


def run(
    work: Callable[[Sender, BotApi], Awaitable[None]],
    migrated: Migrated = unmoved,
    **more: Any,
) -> None:
    async def main() -> None:
        async with BotApi() as api:
            client = Client(settings(api.url, **more))
            try:
                sender = Sender(
                    client,
                    link_previews=more.get("link_previews", True),
                    migrated=migrated,
                )
                await work(sender, api)
            finally:
                await client.close()

    asyncio.run(main())


def fields(call: Call, *names: str) -> tuple[Any, ...]:
    return tuple(call.fields.get(name) for name in names)


def test_markdown_goes_out_as_entities() -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        receipt = await sender.send(message("😀 **b**"))
        (call,) = api.of("sendMessage")
        assert fields(call, "text", "parse_mode") == ("😀 b", None)
        assert json.loads(call.fields["entities"]) == [{"type": "bold", "offset": 3, "length": 1}]
        assert receipt == Receipt(message_id="1")

    run(work)


def test_a_reply_is_anchored_but_survives_the_loss_of_its_anchor() -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        await sender.send(message(reply_to="12"))
        await sender.send(message(reply_to="not-a-number"))
        first, second = api.of("sendMessage")
        assert json.loads(first.fields["reply_parameters"]) == {
            "message_id": 12,
            "allow_sending_without_reply": True,
        }
        assert "reply_parameters" not in second.fields

    run(work)


def test_a_topic_is_named_and_the_general_one_is_not() -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        await sender.send(message(thread="3"))
        await sender.send(message())
        await sender.send(message(thread="1"))
        named, *general = api.of("sendMessage")
        assert named.fields["message_thread_id"] == "3"
        assert all("message_thread_id" not in call.fields for call in general)

    run(work)


def test_link_previews_can_be_switched_off() -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        await sender.send(message("https://e.org"))
        (call,) = api.of("sendMessage")
        assert json.loads(call.fields["link_preview_options"]) == {"is_disabled": True}

    run(work, link_previews=False)


def test_halves_of_characters_do_not_stop_a_message() -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        await sender.send(message("a\ud83db"))
        assert api.chat(5) == ["a\ufffdb"]

    run(work)


def test_an_edit_replaces_and_one_that_changes_nothing_is_success() -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        sent = await sender.send(message("one"))
        assert await sender.edit(sent.message_id, message("**two**")) == sent
        assert await sender.edit(sent.message_id, message("**two**")) == sent
        assert api.chat(5) == ["two"]

    run(work)


def test_an_edit_of_what_is_gone_can_never_work() -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        with pytest.raises(SendRejected) as caught:
            await sender.edit("77", message())
        assert caught.value.kind == "not_found"
        with pytest.raises(SendRejected):
            await sender.edit("not-a-number", message())

    run(work)


REFUSALS: list[tuple[Fault, type[SendError], str]] = [
    (Answer(403, "Forbidden: bot was blocked by the user"), SendRejected, "forbidden"),
    (Answer(400, "Bad Request: not enough rights to send text"), SendRejected, "forbidden"),
    (Answer(400, "Bad Request: chat not found"), SendRejected, "not_found"),
    (Answer(400, "Bad Request: message is too long"), SendRejected, "too_long"),
    (Answer(400, "Bad Request: MESSAGE_TOO_LONG"), SendRejected, "too_long"),
    (Answer(400, "Bad Request: CHAT_SEND_PLAIN_FORBIDDEN"), SendRejected, "forbidden"),
    (
        Answer(400, "Bad Request: need administrator rights in the channel chat"),
        SendRejected,
        "forbidden",
    ),
    (Answer(403, "Forbidden: user is deactivated"), SendRejected, "forbidden"),
    (Answer(400, "Bad Request: something new"), SendRejected, "other"),
    (Answer(401, "Unauthorized"), AccountFailed, ""),
    (Answer(404, "Not Found"), AccountFailed, ""),
    (Answer(500, "Internal Server Error"), SendFailed, ""),
    (Answer(409, "Conflict: terminated"), SendFailed, ""),
    (Page(502), OutcomeUnknown, ""),
    (Page(401), OutcomeUnknown, ""),
    (Page(400, b'{"ok":false,"description":"x","parameters":[]}'), OutcomeUnknown, ""),
    (Page(413), SendRejected, "too_long"),
    (Answer(413, "Request Entity Too Large"), SendRejected, "too_long"),
    (Page(429), RateLimited, ""),
    (Answer(429, "slow down", {"retry_after": 10**400}), RateLimited, ""),
    (Page(404), OutcomeUnknown, ""),
    (Page(200), OutcomeUnknown, ""),
    (Page(200, b'{"ok":true}'), OutcomeUnknown, ""),
    (Page(200, b"\xff\xfe"), OutcomeUnknown, ""),
    (Drop(), OutcomeUnknown, ""),
    (Drop(done=True), OutcomeUnknown, ""),
]


@pytest.mark.parametrize(("fault", "kind", "reason"), REFUSALS)
def test_what_an_answer_means(fault: Fault, kind: type[SendError], reason: str) -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        api.faults["sendMessage"].append(fault)
        with pytest.raises(kind) as caught:
            await sender.send(message())
        assert type(caught.value) is kind
        assert getattr(caught.value, "kind", "") == reason
        assert len(api.of("sendMessage")) == 1

    run(work)


def test_what_was_sent_is_sent_whatever_shape_it_is_told_in() -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        for told in (
            "{}",
            '{"from":{"id":1},"chat":{"id":"x"},"entities":[{"type":7}],"date":"x"}',
        ):
            page = (
                f'{{"ok":true,"result":{told[:-1]}{"," if told != "{}" else ""}"message_id":9}}}}'
            )
            api.faults["sendMessage"].append(Page(200, page.encode()))
            assert await sender.send(message()) == Receipt(message_id="9")

    run(work)


def test_nothing_of_a_page_that_repeats_the_address_is_kept() -> None:
    page = f"<h1>Bad gateway</h1>/bot{TOKEN}/sendMessage".encode() * 1000

    async def work(sender: Sender, api: BotApi) -> None:
        api.faults["sendMessage"].append(Page(502, page))
        with pytest.raises(OutcomeUnknown, match="502") as caught:
            await sender.send(message())
        assert len(str(caught.value)) < 200
        assert TOKEN not in repr(caught.value.__cause__)

    run(work)


@pytest.mark.case("DL-06")
@pytest.mark.parametrize("seconds", [0.5, 8, 13_938])
def test_flood_control_is_passed_on_with_its_seconds(seconds: float) -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        sent = await sender.send(message("one"))
        api.faults["sendMessage"].append(flood(seconds))
        api.faults["editMessageText"].append(flood(seconds))
        for call in (sender.send(message()), sender.edit(sent.message_id, message())):
            with pytest.raises(RateLimited) as caught:
                await call
            assert caught.value.retry_after == seconds

    run(work)


def test_a_refused_connection_is_certainly_not_sent() -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        await api.close()
        with pytest.raises(SendFailed):
            await sender.send(message())
        await api.open()

    run(work)


@pytest.mark.parametrize("taken", [True, False])
def test_a_group_that_moved_is_followed_and_remembered(taken: bool) -> None:
    told: list[tuple[str, str]] = []

    async def take(old: str, new: str) -> None:
        told.append((old, new))
        if not taken:
            raise NotReady("not now")

    async def work(sender: Sender, api: BotApi) -> None:
        api.faults["sendMessage"].append(migrated(-1009))
        await sender.send(message("one", chat="-9", reply_to="12"))
        await sender.send(message("two", chat="-9", reply_to="12"))
        assert api.chat(-1009) == ["one", "two"]
        assert [call.fields["chat_id"] for call in api.of("sendMessage")] == [
            "-9",
            "-1009",
            "-1009",
        ]
        assert ["reply_parameters" in call.fields for call in api.of("sendMessage")] == [
            True,
            False,
            False,
        ]

    run(work, take)
    assert told == [("-9", "-1009")]


@pytest.mark.case("TG-11")
def test_out_of_a_topic_that_is_gone_into_the_chat_itself_once() -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        api.faults["sendMessage"].append(NO_THREAD)
        await sender.send(message(thread="3"))
        refused, sent = api.of("sendMessage")
        assert refused.fields["message_thread_id"] == "3"
        assert "message_thread_id" not in sent.fields
        assert api.chat(5) == ["hello"]
        api.faults["sendMessage"] += [NO_THREAD, Answer(400, "Bad Request: chat not found")]
        with pytest.raises(SendRejected):
            await sender.send(message(thread="3"))
        assert len(api.of("sendMessage")) == 4

    run(work)


@pytest.mark.case("TG-11")
def test_media_out_of_a_topic_that_is_gone_is_sent_from_its_beginning(tmp_path: Path) -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        api.faults["sendPhoto"].append(NO_THREAD)
        await sender.send(message("look", thread="3", attachments=(file(tmp_path, b"12345"),)))
        refused, sent = api.of("sendPhoto")
        assert (refused.done, sent.done) == (False, True)
        assert list(sent.files.values()) == [b"12345"]
        assert "message_thread_id" not in sent.fields

    run(work)


@pytest.mark.case("DL-05")
def test_formatting_that_is_refused_becomes_the_authors_text_once() -> None:
    text = "snake_case [brackets] and an *odd* number* of them"

    async def work(sender: Sender, api: BotApi) -> None:
        refusal = Answer(400, "Bad Request: can't parse entities")
        api.faults["sendMessage"].append(refusal)
        await sender.send(message(text))
        formatted, plain = api.of("sendMessage")
        assert "entities" in formatted.fields
        assert "entities" not in plain.fields
        assert plain.fields["text"] == text
        api.faults["sendMessage"] += [refusal, refusal]
        with pytest.raises(SendRejected) as caught:
            await sender.send(message(text))
        assert caught.value.kind == "other"  # there is nothing more to leave out
        assert len(api.of("sendMessage")) == 4

    run(work)


def file(
    directory: Path, content: bytes, name: str = "a.jpg", media_type: str = "image/jpeg"
) -> OutboundAttachment:
    path = directory / name
    path.write_bytes(content)
    return OutboundAttachment(path=str(path), name=name, media_type=media_type)


def test_files_go_out_by_kind_with_a_short_text_as_caption(tmp_path: Path) -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        files = (
            file(tmp_path, b"p"),
            file(tmp_path, b"v", "v.ogg", "audio/ogg"),
            file(tmp_path, b"t", "t.txt", "text/plain"),
        )
        await sender.send(message("**three** files", attachments=files))
        photo, voice, document = api.of("sendPhoto", "sendVoice", "sendDocument")
        assert fields(photo, "caption", "chat_id") == ("three files", "5")
        assert json.loads(photo.fields["caption_entities"])[0]["type"] == "bold"
        assert "caption" not in voice.fields
        assert list(document.files.values()) == [b"t"]

    run(work)


def test_a_text_too_long_for_a_caption_goes_first(tmp_path: Path) -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        text = "😀" * 600
        await sender.send(message(text, attachments=(file(tmp_path, b"p"),)))
        assert [call.method for call in api.of("sendMessage", "sendPhoto")] == [
            "sendMessage",
            "sendPhoto",
        ]

    run(work)


@pytest.mark.case("DL-08")
@pytest.mark.parametrize("fault", [flood(5), Drop(), Page(502), Answer(500, "Internal")])
def test_a_message_whose_files_break_off_goes_on_where_it_was(tmp_path: Path, fault: Fault) -> None:
    files = (file(tmp_path, b"p"), file(tmp_path, b"t", "t.txt", "text/plain"))

    async def work(sender: Sender, api: BotApi) -> None:
        for text in ("x" * 2000, "short", ""):
            api.texts.clear()
            before = len(api.calls)
            outbound = msgspec.structs.replace(message(text, attachments=files), id=text)
            api.faults["sendDocument"].append(fault)
            with pytest.raises(SendError) as caught:
                await sender.send(outbound)
            assert not isinstance(caught.value, SendRejected)
            first = next(iter(api.texts))
            again = msgspec.structs.replace(outbound, text=f"[repeated] {text}")
            assert await sender.send(again) == Receipt(message_id=str(first[1]))
            done = [call.method for call in api.calls[before:] if call.done]
            expected = ["sendMessage"] if len(text) > 1024 else []
            assert done == [*expected, "sendPhoto", "sendDocument"]
            assert "".join(api.chat(5)) == text

    run(work)


@pytest.mark.case("DL-15")
def test_of_a_file_that_cannot_be_sent_the_text_is_and_why(tmp_path: Path) -> None:
    gone = OutboundAttachment(path=str(tmp_path / "none"), name="none.txt")

    async def work(sender: Sender, api: BotApi) -> None:
        await sender.send(message("**the** answer", attachments=(gone, file(tmp_path, b"p"))))
        (text,) = api.of("sendMessage")
        assert text.fields["text"].startswith("the answer\n[file not sent: none.txt: ")
        assert len(api.of("sendPhoto")) == 1
        api.faults["sendPhoto"].append(Answer(400, "Bad Request: file must be non-empty"))
        await sender.send(message("x" * 2000, attachments=(file(tmp_path, b""),)))
        assert api.chat(5)[-1].endswith("File must be non-empty]")
        assert len(api.of("sendMessage")) == 3
        api.faults["sendPhoto"].append(Page(413))
        await sender.send(message(attachments=(file(tmp_path, b"p"),)))
        assert "too long for the server" in api.chat(5)[-1]

    run(work)


def test_a_file_for_somebody_who_blocked_the_bot_is_refused(tmp_path: Path) -> None:
    blocked = Answer(403, "Forbidden: bot was blocked by the user")

    async def work(sender: Sender, api: BotApi) -> None:
        api.faults["sendPhoto"].append(blocked)
        api.faults["sendMessage"].append(blocked)
        with pytest.raises(SendRejected, match="blocked"):
            await sender.send(message(attachments=(file(tmp_path, b"p"),)))

    run(work)


@pytest.mark.parametrize(
    ("method", "name", "media_type", "refusal"),
    [
        ("sendPhoto", "a.png", "image/png", "PHOTO_INVALID_DIMENSIONS"),
        ("sendPhoto", "a.png", "image/png", "IMAGE_PROCESS_FAILED"),
        ("sendVoice", "a.ogg", "audio/ogg", "VOICE_MESSAGES_FORBIDDEN"),
    ],
)
def test_what_cannot_be_shown_as_what_it_is_is_a_document(
    tmp_path: Path, method: str, name: str, media_type: str, refusal: str
) -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        api.faults[method].append(Answer(400, f"Bad Request: {refusal}"))
        await sender.send(message("look", attachments=(file(tmp_path, b"p", name, media_type),)))
        (sent,) = api.of("sendDocument")
        assert fields(sent, "caption") == ("look",)
        assert list(sent.files.values()) == [b"p"]
        assert api.of("sendMessage") == []

    run(work)


@pytest.mark.case("DL-05")
def test_a_caption_whose_formatting_is_refused_goes_without_it(tmp_path: Path) -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        api.faults["sendPhoto"].append(Answer(400, "Bad Request: ENTITY_BOUNDS_INVALID"))
        await sender.send(message("**look**", attachments=(file(tmp_path, b"p"),)))
        await sender.send(message("**look**", plain=True, attachments=(file(tmp_path, b"p"),)))
        await sender.send(message("**look**", plain=True))
        assert api.chat(5) == ["**look**"] * 3
        assert len(api.of("sendPhoto")) == 3

    run(work)


def test_no_more_entities_are_sent_than_telegram_shows() -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        await sender.send(message(" ".join(["**b**"] * 150)))
        (call,) = api.of("sendMessage")
        assert len(json.loads(call.fields["entities"])) == 100

    run(work)


def test_typing_is_shown_in_the_topic() -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        await sender.typing(message(thread="3").address)
        (call,) = api.of("sendChatAction")
        assert fields(call, "action", "message_thread_id") == ("typing", "3")
        api.faults["sendChatAction"].append(NO_THREAD)
        with pytest.raises(SendRejected):
            await sender.typing(message(thread="3").address)
        assert len(api.of("sendChatAction")) == 2

    run(work)


def test_own_messages_are_taken_back_and_reactions_put_on() -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        await sender.delete(message().address, "4")
        await sender.react(message().address, "4", "👍")
        await sender.react(message().address, "4", "")
        (deleted,) = api.of("deleteMessage")
        assert fields(deleted, "chat_id", "message_id") == ("5", "4")
        put, taken = api.of("setMessageReaction")
        assert "👍" in json.loads(put.fields["reaction"])[0]["emoji"]
        assert json.loads(taken.fields.get("reaction", "[]")) == []

    run(work)


@pytest.mark.parametrize("chat", ["somewhere", "１２", "1_2", " 12", "", "0", "1" * 5000])
def test_a_chat_that_is_none_is_refused_without_a_call(chat: str) -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        with pytest.raises(SendRejected):
            await sender.send(message(chat=chat))
        with pytest.raises(SendRejected):
            await sender.send(message(thread="general"))
        assert api.calls == []

    run(work)


@pytest.mark.parametrize("token", ["", "with space", "with/slash", "line\nbreak", "tökén"])
def test_a_token_that_can_be_none_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(AccountFailed) as caught:
        Client(settings("http://127.0.0.1:9", token=token))
    assert not token or token not in str(caught.value)


def test_everything_goes_through_the_proxy() -> None:
    async def main() -> None:
        async with BotApi() as api:
            secret = Secret("user:password")
            through = settings("http://telegram.invalid", proxy=api.url, proxy_auth=secret)
            client = Client(through)
            await Sender(client, link_previews=True, migrated=unmoved).send(message())
            await client.updates(None, 0)
            await client.close()
            assert [call.method for call in api.calls] == ["sendMessage", "getUpdates"]

    asyncio.run(main())


@pytest.mark.parametrize("proxy", ["no such thing", "ftp://h:1", "http://:80", "socks5://h:1"])
def test_a_proxy_that_cannot_be_used_is_refused(proxy: str) -> None:
    with pytest.raises(AccountFailed, match=r"proxy|SOCKS"):
        Client(settings("http://127.0.0.1:9", proxy=proxy))


@pytest.mark.parametrize("url", ["", "api.telegram.org", "ftp://e.org", "http://", "http://["])
def test_an_address_that_can_be_none_of_a_server_is_refused(url: str) -> None:
    with pytest.raises(AccountFailed, match="base_url"):
        Client(settings(url))


@pytest.mark.case("DL-01")
def test_the_limit_of_a_message_counts_utf16_units() -> None:
    async def work(sender: Sender, api: BotApi) -> None:
        await sender.send(message("😀" * 2048))
        with pytest.raises(SendRejected) as caught:
            await sender.send(message("a" + "😀" * 2048))
        assert caught.value.kind == "too_long"
        assert [utf16_length(text) for text in api.chat(5)] == [4096]

    run(work)
