from __future__ import annotations

import json
from typing import Any

import pytest

from hermes_core import Action, Address, Edited, Message, Reaction
from hermes_telegram.inbound import Event, Reader
from hermes_telegram.wire import decode_answer, decode_update

ME = {"id": 100, "is_bot": True, "first_name": "Hermes", "username": "hermes_bot"}
ANN = {"id": 7, "is_bot": False, "first_name": "Ann", "last_name": "Lee", "username": "ann"}
BOT = {"id": 8, "is_bot": True, "first_name": "Other", "username": "other_bot"}
DM = {"id": 7, "type": "private"}
GROUP = {"id": -1001, "type": "supergroup", "title": "Crew"}


def read(kind: str, content: dict[str, Any]) -> list[Event]:
    reader = Reader(
        own_id=100,
        username="Hermes_Bot",
        address=lambda chat, kind, thread: Address(
            platform="telegram", chat_id=chat, kind=kind, thread_id=thread
        ),
    )
    return reader.events(decode_update(json.dumps({"update_id": 5, kind: content}).encode()))


def said(**content: Any) -> Message | None:
    full = {"message_id": 50, "date": 9, "chat": DM, "from": ANN} | content
    found = read("message", full)
    if not found:
        return None
    (message,) = found
    assert isinstance(message, Message)
    return message


def heard(**content: Any) -> Message:
    message = said(**content)
    assert message is not None
    return message


def test_a_direct_message() -> None:
    message = heard(text="hi")
    assert message.address == Address(platform="telegram", chat_id="7", kind="dm")
    assert (message.sender.id, message.sender.name) == ("7", "Ann Lee")
    assert (message.event_id, message.message_id, message.sent_at) == ("m50", "50", 9.0)
    assert message.mentions_me


def test_a_topic_is_a_thread_and_the_general_topic_is_none() -> None:
    topic = heard(chat=GROUP, text="x", message_thread_id=3, is_topic_message=True)
    assert (topic.address.kind, topic.address.thread_id) == ("group", "3")
    general = heard(chat=GROUP, text="x")
    assert general.address.thread_id is None
    named = heard(chat=GROUP, text="x", message_thread_id=1, is_topic_message=True)
    assert named.address.thread_id is None
    reply_thread = heard(chat=GROUP, text="x", message_thread_id=44)
    assert reply_thread.address.thread_id is None


def test_every_message_in_a_topic_replies_to_its_beginning_which_means_nothing() -> None:
    beginning = {"message_id": 3, "chat": GROUP, "from": ME}
    message = heard(
        chat=GROUP, text="x", message_thread_id=3, is_topic_message=True, reply_to_message=beginning
    )
    assert (message.reply_to, message.mentions_me) == (None, False)


@pytest.mark.parametrize(
    ("content", "mentions"),
    [
        ({"text": "hello"}, False),
        (
            {
                "text": "😀 @Hermes_bot hi",
                "entities": [{"type": "mention", "offset": 3, "length": 11}],
            },
            True,
        ),
        (
            {
                "text": "@hermes_bots hi",
                "entities": [{"type": "mention", "offset": 0, "length": 12}],
            },
            False,
        ),
        ({"text": "@hermes_bot without an entity"}, False),
        (
            {
                "text": "Hermes",
                "entities": [{"type": "text_mention", "offset": 0, "length": 6, "user": ME}],
            },
            True,
        ),
        (
            {
                "photo": [{"file_id": "f"}],
                "caption": "@hermes_bot",
                "caption_entities": [{"type": "mention", "offset": 0, "length": 11}],
            },
            True,
        ),
        ({"text": "yes", "reply_to_message": {"message_id": 1, "chat": GROUP, "from": ME}}, True),
        ({"text": "yes", "reply_to_message": {"message_id": 1, "chat": GROUP, "from": ANN}}, False),
        (
            {"text": "x", "entities": [{"type": "mention", "offset": -9, "length": 999}]},
            False,
        ),
    ],
)
def test_who_is_meant_in_a_group(content: dict[str, Any], mentions: bool) -> None:
    assert heard(chat=GROUP, **content).mentions_me is mentions


def command(text: str, **content: Any) -> Message | None:
    length = len(text.split(maxsplit=1)[0])
    entities = [{"type": "bot_command", "offset": 0, "length": length}]
    return said(chat=GROUP, text=text, entities=entities, **content)


def test_commands_for_us_lose_our_name_and_those_for_others_are_not_ours() -> None:
    mine = command("/stop@hermes_bot now")
    assert mine is not None
    assert (mine.text, mine.mentions_me) == ("/stop now", True)
    assert command("/stop@other_bot now") is None
    anybodys = command("/stop now")
    assert anybodys is not None
    assert anybodys.text == "/stop now"


def test_a_path_is_no_command_for_another() -> None:
    for text in ("/home/ann@host.example is full", "/x@y.example", "/@other_bot", "/a/b@other_bot"):
        assert heard(chat=GROUP, text=text).text == text
    mine = command("/Stop@HERMES_BOT\nnow\nplease")
    assert mine is not None
    assert mine.text == "/Stop\nnow\nplease"


def test_what_is_forwarded_names_its_author_and_commands_nothing() -> None:
    origins: list[tuple[dict[str, Any], str]] = [
        ({"type": "user", "sender_user": BOT}, "Other"),
        ({"type": "hidden_user", "sender_user_name": "Zoe"}, "Zoe"),
        ({"type": "channel", "chat": GROUP, "message_id": 3}, "Crew"),
        ({"type": "something_new"}, "somebody"),
    ]
    for origin, name in origins:
        message = heard(text="/stop", forward_origin=origin)
        assert (message.text, message.sender.id) == (f"[forwarded from {name}]\n/stop", "7")
    picture = heard(photo=[{"file_id": "f"}], forward_origin=origins[0][0])
    assert picture.text == "[forwarded from Other]"
    channel = {"id": -1005, "type": "channel", "title": "News"}
    post = {"sender_chat": channel, "forward_origin": {"type": "channel", "chat": channel}}
    assert heard(chat=GROUP, text="new", is_automatic_forward=True, **post).text == "new"


def test_a_reply_to_a_file_says_that_it_was_one() -> None:
    for content, quoted in (
        ({"photo": [{"file_id": "f"}]}, "[photo]"),
        ({"video_note": {"file_id": "f"}}, "[video note]"),
        ({"document": {"file_id": "f"}, "animation": {"file_id": "f"}}, "[animation]"),
        ({"location": {"latitude": 1, "longitude": 2}}, "[location 1.0, 2.0]"),
        ({"date": 0}, ""),
    ):
        original = {"message_id": 4, "chat": DM, "from": ANN} | content
        assert heard(text="why?", reply_to_message=original).quoted == quoted


def test_a_reply_to_another_chat_carries_the_quote_and_no_anchor() -> None:
    message = heard(
        chat=GROUP,
        text="see",
        external_reply={"origin": {"type": "user"}, "message_id": 9},
        quote={"text": "part", "position": 3, "is_manual": True},
    )
    assert (message.reply_to, message.quoted, message.mentions_me) == (None, "part", False)


def test_a_chat_of_no_stated_kind_is_not_taken_for_a_direct_one() -> None:
    message = heard(chat={"id": -4}, text="hi")
    assert (message.address.kind, message.mentions_me) == ("group", False)


def test_a_reply_carries_what_it_quotes() -> None:
    original = {"message_id": 4, "chat": DM, "from": ANN, "text": "the whole text"}
    whole = heard(text="why?", reply_to_message=original)
    assert (whole.reply_to, whole.quoted) == ("4", "the whole text")
    part = heard(text="why?", reply_to_message=original, quote={"text": "whole"})
    assert part.quoted == "whole"


def test_files_of_every_kind() -> None:
    photo = heard(
        caption="look",
        photo=[
            {"file_id": "small", "width": 10, "height": 10},
            {"file_id": "large", "width": 900, "height": 900, "file_size": 5000},
        ],
    )
    assert photo.text == "look"
    (picture,) = photo.attachments
    assert (picture.ref, picture.media_type, picture.size) == ("large", "image/jpeg", 5000)
    document = {"file_id": "d", "file_name": "a.pdf", "mime_type": "application/pdf"}
    (pdf,) = heard(document=document).attachments
    assert (pdf.name, pdf.media_type, pdf.size) == ("a.pdf", "application/pdf", None)
    (voice,) = heard(voice={"file_id": "v"}).attachments
    assert (voice.name, voice.media_type) == ("voice.ogg", "audio/ogg")
    (gif,) = heard(animation={"file_id": "g"}, document={"file_id": "g"}).attachments
    assert gif.name == "animation.mp4"


def test_what_is_neither_text_nor_file_is_put_in_words() -> None:
    assert heard(location={"latitude": 1.5, "longitude": 2}).text == "[location 1.5, 2.0]"
    contact = {"phone_number": "+1", "first_name": "Bo"}
    assert heard(contact=contact).text == "[contact Bo +1]"
    assert heard(sticker={"file_id": "s", "emoji": "👍"}).text == "[sticker 👍]"


@pytest.mark.parametrize(
    "service",
    [
        {"new_chat_members": [ANN]},
        {"pinned_message": {"message_id": 1}},
        {"forum_topic_created": {"name": "x"}},
        {"migrate_to_chat_id": -1009},
    ],
)
def test_service_messages_say_nothing(service: dict[str, Any]) -> None:
    assert said(chat=GROUP, **service) is None


@pytest.mark.case("AZ-14")
def test_another_bot_is_named_as_one_and_its_answers_are_no_mention() -> None:
    from_bot = {"chat": GROUP, "from": BOT, "text": "hi"}
    assert heard(**from_bot).sender.is_bot
    assert not heard(
        **from_bot, reply_to_message={"message_id": 1, "chat": GROUP, "from": ME}
    ).mentions_me
    mention = [{"type": "mention", "offset": 0, "length": 11}]
    assert heard(**from_bot | {"text": "@hermes_bot", "entities": mention}).mentions_me


@pytest.mark.case("AZ-04")
def test_the_sender_is_a_number_whatever_they_call_themselves() -> None:
    trickster = {"id": 99, "first_name": "7", "username": "7"}
    assert heard(chat=GROUP, text="x", **{"from": trickster}).sender.id == "99"


def test_who_speaks_for_a_chat_has_its_id_and_not_the_stand_ins() -> None:
    stand_in = {"id": 1087968824, "is_bot": True, "first_name": "Group"}
    message = heard(chat=GROUP, text="x", sender_chat=GROUP, **{"from": stand_in})
    assert (message.sender.id, message.sender.name) == ("-1001", "Crew")


def test_a_channel_post_is_said_by_the_channel() -> None:
    channel = {"id": -1005, "type": "channel", "title": "News"}
    (post,) = read("channel_post", {"message_id": 1, "chat": channel, "text": "hi"})
    assert isinstance(post, Message)
    assert (post.address.kind, post.sender.id) == ("channel", "-1005")


def test_an_edit_is_its_own_event() -> None:
    sent = {"message_id": 50, "date": 1, "edit_date": 2, "chat": DM, "from": ANN, "text": "new"}
    (edit,) = read("edited_message", sent)
    assert isinstance(edit, Edited)
    assert (edit.event_id, edit.message_id, edit.text, edit.sent_at) == ("u5", "50", "new", 2.0)
    assert edit.mentions_me


def test_an_edited_command_is_read_like_a_new_one() -> None:
    edited = {"message_id": 50, "chat": GROUP, "from": ANN, "text": "/stop@hermes_bot now"}
    (edit,) = read("edited_message", edited)
    assert isinstance(edit, Edited)
    assert edit.text == "/stop now"
    assert read("edited_message", edited | {"text": "/stop@other_bot now"}) == []


def test_a_live_location_that_moves_is_no_edit() -> None:
    location = {"latitude": 1, "longitude": 2}
    edited = {"message_id": 50, "date": 1, "chat": DM, "from": ANN, "location": location}
    assert read("edited_message", edited) == []


def test_a_button() -> None:
    message = {"message_id": 3, "date": 0, "chat": GROUP}
    pressed = {"id": "q1", "from": ANN, "message": message, "data": "yes"}
    (action,) = read("callback_query", pressed)
    assert isinstance(action, Action)
    assert (action.event_id, action.sender.id, action.message_id) == ("cq1", "7", "3")
    assert action.value == "yes"


def test_reactions_are_told_apart() -> None:
    def emoji(value: str) -> dict[str, str]:
        return {"type": "emoji", "emoji": value}

    custom = {"type": "custom_emoji", "custom_emoji_id": "77"}
    change = {
        "chat": GROUP,
        "message_id": 3,
        "date": 1,
        "user": ANN,
        "old_reaction": [emoji("👍"), emoji("🔥")],
        "new_reaction": [emoji("🔥"), custom],
    }
    events = read("message_reaction", change)
    assert [
        (event.event_id, event.emoji, event.removed)
        for event in events
        if isinstance(event, Reaction)
    ] == [("u5.0", "👍", True), ("u5.1", "custom:77", False)]


def test_one_update_that_cannot_be_read_does_not_cost_the_others() -> None:
    good = {"update_id": 2, "message": {"message_id": 1, "chat": DM, "from": ANN, "text": "hi"}}
    bad = {"update_id": 1, "message": {"message_id": "one", "chat": 5}}
    unknown = {"update_id": 3, "something_new": {"a": 1}}
    body = json.dumps({"ok": True, "result": [bad, good, unknown]}).encode()
    updates = decode_answer(body)
    assert [update.update_id for update in updates] == [1, 2, 3]
    assert [update.message is not None for update in updates] == [False, True, False]


def _odd(**content: Any) -> bytes:
    said = {"message_id": 1, "chat": DM, "from": ANN, "text": "odd"} | content
    return json.dumps({"update_id": 1, "message": said}).encode()


DEEP = b'{"update_id":1,"message":{"message_id":1,"chat":{"id":1},"later":%b"x]}"%b}}' % (
    b"[" * 50_000,
    b"]" * 50_000,
)


@pytest.mark.case("DL-17")
@pytest.mark.parametrize(
    ("odd", "text"),
    [
        (_odd(text="a\ud83db"), "a\ud83db"),
        (_odd(date=10**400), None),
        (_odd(chat={"id": 10**30}), None),
        (_odd(migrate_to_chat_id=10**4000), None),
        (_odd(date=1.5), None),
        (_odd(text=None), None),
        (DEEP, None),
        (DEEP.replace(b'"later"', b'"reply_to_message"'), None),
        (b'{"update_id":1,"message":"\xff"}', None),
    ],
)
def test_no_odd_update_keeps_the_bot_from_the_others(odd: bytes, text: str | None) -> None:
    good = {"update_id": 2, "message": {"message_id": 2, "chat": DM, "from": ANN, "text": "ping"}}
    body = b'{"ok":true,"result":[%b, %b]}' % (odd, json.dumps(good).encode())
    first, second = decode_answer(body)
    assert (first.update_id, first.message and first.message.text) == (1, text)
    assert second.message is not None
    assert second.message.text == "ping"
    assert decode_update(odd).update_id == 1


def test_an_update_without_an_id_does_not_cost_the_others() -> None:
    body = b'{"ok":true,"result":[{"message":{}},7,{"update_id":"x"},{"update_id":4}]}'
    assert [update.update_id for update in decode_answer(body)] == [4]


@pytest.mark.parametrize(
    "body",
    [
        b'{"ok":true,"result":[{"message":{}}]}',
        b"",
        b"[]",
        b"<html>",
        b'{"ok":true}',
        b'{"ok":false,"result":[]}',
        b"[" * 50_000,
    ],
)
def test_what_is_no_answer_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
        decode_answer(body)
