"""A Bot API server for tests: real HTTP on loopback, with the faults that a test orders.

::

    async with BotApi() as api, telegram_gateway(tmp_path, api.url, ScriptedAgent()):
        api.say("hello", chat=1)
        call = await api.called("sendMessage")
        assert call.fields["text"] == "hello"
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import h11

from hermes_core import Platform, hookimpl
from hermes_core.testing import gateway
from hermes_telegram import declare
from hermes_telegram.adapter import TelegramAdapter
from hermes_telegram.settings import Timing

if TYPE_CHECKING:
    from hermes_core.gateway import Gateway

TOKEN = "100:a-token-for-tests"  # noqa: S105 - nobody else's
BOT_ID = 100
BOT_NAME = "hermes_test_bot"
MAX_TEXT = 4096
_CHUNK = 65_536

Json = dict[str, Any]

FAST = Timing(
    poll=5,
    slack=5.0,
    patience=60.0,
    first_pause=0.005,
    longest_pause=0.02,
    hold=0.01,
    album=0.05,
    goodbye=1.0,
)
"""Pauses for tests that have to live through some."""


@dataclass(frozen=True)
class Answer:
    """Refuse a call: it is not done."""

    status: int
    description: str
    parameters: Json | None = None

    @property
    def body(self) -> bytes:
        answer: Json = {
            "ok": False,
            "error_code": self.status,
            "description": self.description,
        }
        if self.parameters is not None:
            answer["parameters"] = self.parameters
        return json.dumps(answer).encode()


@dataclass(frozen=True)
class Page:
    """Answer with what no Bot API server says: a gateway's error page."""

    status: int
    body: bytes = b"<html>bad gateway</html>"


@dataclass(frozen=True)
class Drop:
    """Close the connection without an answer; `done` says whether the call took effect before."""

    done: bool = False


@dataclass(frozen=True)
class Hang:
    """Never answer."""


Fault = Answer | Page | Drop | Hang


def flood(seconds: float) -> Answer:
    """Flood control."""
    return Answer(429, f"Too Many Requests: retry after {seconds}", {"retry_after": seconds})


def conflict() -> Answer:
    """Another program polls."""
    return Answer(409, "Conflict: terminated by other getUpdates request")


def migrated(new_chat_id: int) -> Answer:
    """The group has become a supergroup."""
    return Answer(
        400,
        "Bad Request: group chat was upgraded to a supergroup chat",
        {"migrate_to_chat_id": new_chat_id},
    )


@dataclass(frozen=True)
class Call:
    """One request. `files` has the contents of uploads by field name; `done` is false for refused
    ones."""

    method: str
    fields: Json
    files: Mapping[str, bytes] = field(default_factory=dict)
    done: bool = True


class BotApi:
    """Knows one bot. `calls` is everything it was asked for, `updates` what is not confirmed yet.

    `files` has contents by file id, `paths` the ones that a local server names, `claims` what is
    said of every file instead of the truth; with `cut_files`, downloads break off.
    `faults[method]` says what becomes of the next calls of a method, in order.
    """

    def __init__(self) -> None:
        self.me: Json = {
            "id": BOT_ID,
            "is_bot": True,
            "first_name": "Hermes",
            "username": BOT_NAME,
            "can_join_groups": True,
            "can_read_all_group_messages": False,
        }
        self.updates: list[Json] = []
        self.calls: list[Call] = []
        self.faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self.texts: dict[tuple[int, int], str] = {}
        self.drafts: dict[int, str] = {}
        self.files: dict[str, bytes] = {}
        self.paths: dict[str, str] = {}
        self.claims: Json = {}
        self.cut_files = False
        self.webhook: Json = {"url": "", "pending_update_count": 0}
        self.next_update = 1000
        self.url = ""
        self._message_ids = itertools.count(1)
        self._changed = asyncio.Event()
        self._read: defaultdict[str, int] = defaultdict(int)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> BotApi:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self, port: int = 0) -> None:
        """Listen; with the port of before, on the same address again."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def close(self) -> None:
        """Hang up on everybody and stop to listen. State is kept."""
        assert self._server is not None
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._server.wait_closed()

    # ── what people do ───────────────────────────────────────────────────────────────────────────

    def update(self, kind: str, content: Json) -> int:
        """Let an update wait for the bot. Returns its id."""
        update_id = self.next_update
        self.next_update += 1
        self.updates.append({"update_id": update_id, kind: content})
        self._changed.set()
        return update_id

    def message(
        self, text: str = "", *, chat: int = 1, user: int | None = None, **more: Any
    ) -> Json:
        """A message: of a person in a direct chat, in a group for a negative chat."""
        user = user if user is not None else max(chat, 1)
        kind = "private" if chat > 0 else "supergroup"
        said: Json = {
            "message_id": next(self._message_ids),
            "date": 1_700_000_000,
            "chat": {"id": chat, "type": kind},
            "from": {"id": user, "is_bot": False, "first_name": f"U{user}"},
        }
        if text:
            said["text"] = text
        return said | more

    def say(self, text: str, *, chat: int = 1, user: int | None = None, **more: Any) -> Json:
        """Let a person say something. Returns the message."""
        said = self.message(text, chat=chat, user=user, **more)
        self.update("message", said)
        return said

    # ── what the bot does ────────────────────────────────────────────────────────────────────────

    async def called(self, method: str) -> Call:
        """Wait for the next call of a method that took effect, and return it."""
        while True:
            done = [call for call in self.calls if call.method == method and call.done]
            if self._read[method] < len(done):
                self._read[method] += 1
                return done[self._read[method] - 1]
            await self.change()

    async def change(self) -> None:
        """Wait until something more happens."""
        self._changed.clear()
        await self._changed.wait()

    def of(self, *methods: str) -> list[Call]:
        """All calls of some methods, in order."""
        return [call for call in self.calls if call.method in methods]

    def chat(self, chat: int) -> list[str]:
        """What the bot's messages in a chat say now, and the draft of the next one."""
        texts = [text for (where, _), text in self.texts.items() if where == chat]
        return [*texts, self.drafts[chat]] if chat in self.drafts else texts

    # ── HTTP ─────────────────────────────────────────────────────────────────────────────────────

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = h11.Connection(h11.SERVER)
        try:
            while True:
                request, body = await _request(connection, reader)
                if request is None:
                    return
                status, answer = await self._respond(request, body)
                head = h11.Response(
                    status_code=status, headers=[("Content-Length", str(len(answer)))]
                )
                for event in (head, h11.Data(data=answer), h11.EndOfMessage()):
                    writer.write(connection.send(event) or b"")
                await writer.drain()
                connection.start_next_cycle()
        except (ConnectionError, h11.RemoteProtocolError):
            return
        finally:
            writer.close()

    async def _respond(self, request: h11.Request, body: bytes) -> tuple[int, bytes]:
        # A client that takes us for its proxy names the whole address.
        target = unquote(urlsplit(request.target.decode()).path)
        if target.startswith(f"/file/bot{TOKEN}/"):
            if self.cut_files:
                raise ConnectionResetError
            content = self.files.get(target.rpartition("/")[2])
            return (404, b"") if content is None else (200, content)
        bot, _, method = target.removeprefix("/bot").partition("/")
        if bot != TOKEN:
            return 401, Answer(401, "Unauthorized").body
        headers = {name: value.decode() for name, value in request.headers}
        fields, files = _form(headers.get(b"content-type", ""), body)
        return await self._call(method, fields, files)

    async def _call(
        self, method: str, fields: Json, files: Mapping[str, bytes]
    ) -> tuple[int, bytes]:
        fault = self.faults[method].popleft() if self.faults[method] else None
        done = fault is None or (isinstance(fault, Drop) and fault.done)
        if not done:
            self.calls.append(Call(method, fields, files, done=False))
            self._changed.set()
        if isinstance(fault, Answer | Page):
            return fault.status, fault.body
        if isinstance(fault, Hang):
            await asyncio.get_running_loop().create_future()
        if not done:
            raise ConnectionResetError
        if method == "getUpdates":
            self.calls.append(Call(method, fields))
            result: object = await self._updates(fields)
        else:
            result = self._do(method, fields, files)
            if isinstance(result, Answer):
                return result.status, result.body
        if isinstance(fault, Drop):
            raise ConnectionResetError
        return 200, json.dumps({"ok": True, "result": result}).encode()

    async def _updates(self, fields: Json) -> list[Json]:
        offset = int(fields.get("offset", 0))
        deadline = asyncio.get_running_loop().time() + int(fields.get("timeout", 0))
        if offset:
            self.updates = [item for item in self.updates if item["update_id"] >= offset]
        self._changed.set()
        while not self.updates:
            try:
                async with asyncio.timeout_at(deadline):
                    await self.change()
            except TimeoutError:
                return []
        return self.updates[: int(fields.get("limit", 100))]

    # ── the methods ──────────────────────────────────────────────────────────────────────────────

    def _do(self, method: str, fields: Json, files: Mapping[str, bytes]) -> object:
        result = self._result(method, fields)
        done = not isinstance(result, Answer)
        self.calls.append(Call(method, fields, files, done=done))
        self._changed.set()
        return result

    def _result(self, method: str, fields: Json) -> object:
        if method.startswith("send") and method not in {"sendChatAction", "sendMessageDraft"}:
            return self._new(fields)
        known = {
            "getMe": lambda _: self.me,
            "getWebhookInfo": lambda _: {"has_custom_certificate": False} | self.webhook,
            "setWebhook": self._set_webhook,
            "deleteWebhook": self._delete_webhook,
            "getFile": self._file,
            "editMessageText": self._edit,
            "sendMessageDraft": self._draft,
        }
        return known[method](fields) if method in known else True

    def _set_webhook(self, fields: Json) -> object:
        self.webhook["url"] = fields["url"]
        return True

    def _delete_webhook(self, fields: Json) -> object:
        self.webhook["url"] = ""
        if fields.get("drop_pending_updates") == "true":
            self.updates.clear()
        return True

    def _file(self, fields: Json) -> object:
        file_id = fields["file_id"]
        return {
            "file_id": file_id,
            "file_unique_id": file_id,
            "file_path": self.paths.get(file_id, file_id),
            "file_size": len(self.files.get(file_id, b"")),
        } | self.claims

    def _new(self, fields: Json) -> object:
        text = str(fields.get("text", fields.get("caption", "")))
        if len(text.encode("utf-16-le")) // 2 > MAX_TEXT:
            return Answer(400, "Bad Request: message is too long")
        if "text" in fields and not text.strip():
            return Answer(400, "Bad Request: message text is empty")
        number = next(self._message_ids)
        self.texts[int(fields["chat_id"]), number] = text
        self.drafts.pop(int(fields["chat_id"]), None)
        return self._sent(fields, number, text)

    def _draft(self, fields: Json) -> object:
        if int(fields["chat_id"]) < 0:
            return Answer(400, "Bad Request: TEXTDRAFT_PEER_INVALID")
        self.drafts[int(fields["chat_id"])] = fields["text"]
        return True

    def _edit(self, fields: Json) -> object:
        key = (int(fields["chat_id"]), int(fields["message_id"]))
        if key not in self.texts:
            return Answer(400, "Bad Request: message to edit not found")
        if self.texts[key] == fields["text"]:
            return Answer(
                400,
                "Bad Request: message is not modified: specified new message content and reply"
                " markup are exactly the same",
            )
        self.texts[key] = fields["text"]
        return self._sent(fields, key[1], fields["text"])

    def _sent(self, fields: Json, number: int, text: str) -> Json:
        chat = int(fields["chat_id"])
        return {
            "message_id": number,
            "date": 1_700_000_000,
            "chat": {"id": chat, "type": "private" if chat > 0 else "supergroup"},
            "from": self.me,
            "text": text,
        }


async def _request(
    connection: h11.Connection, reader: asyncio.StreamReader
) -> tuple[h11.Request | None, bytes]:
    request: h11.Request | None = None
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return request, body
        else:
            return None, b""


def _form(content_type: str, body: bytes) -> tuple[Json, dict[str, bytes]]:
    if not content_type.startswith("multipart/"):
        return dict(parse_qsl(body.decode(), keep_blank_values=True)), {}
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    fields: Json = {}
    files: dict[str, bytes] = {}
    for part in BytesParser(policy=HTTP).parsebytes(head + body).iter_parts():
        name = str(part.get_param("name", header="content-disposition"))
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        if part.get_filename() is None:
            fields[name] = content.decode()
        else:
            files[name] = content
    return fields, files


class TelegramPlugin:
    """The plugin, with pauses of its own."""

    def __init__(self, timing: Timing = FAST, *, previews: bool = True) -> None:
        adapter = type("Adapter", (TelegramAdapter,), {"timing": timing})
        self._declared = declare(adapter, previews=previews)

    @hookimpl
    def platforms(self) -> list[Platform]:
        return [self._declared]


@asynccontextmanager
async def telegram_gateway(
    path: Path,
    url: str,
    *plugins: object,
    settings: str = "",
    timing: Timing = FAST,
    token: str = TOKEN,
    previews: bool = True,
    drafts: bool = False,
) -> AsyncIterator[Gateway]:
    """A gateway in `path` that talks to the Bot API server at `url`.

    Everybody may speak unless `settings`, more lines of the account's section, names who may.
    """
    secret = path / "telegram-token"
    secret.write_text(token)
    secret.chmod(0o600)
    if "allow" not in settings:
        settings = f"allow_all = true\n{settings}"
    if not drafts and "drafts" not in settings:
        settings += "\ndrafts = false"
    config = f'[platforms.telegram]\ntoken = "file:{secret}"\nbase_url = "{url}"\n{settings}\n'
    async with gateway(
        path, TelegramPlugin(timing, previews=previews), *plugins, config=config
    ) as running:
        yield running
