"""The relay: LocalRelay behind a front that adds what Buzz has beyond it."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import aiohttp
from aiohttp import web

from hermes_buzz.events import PLACED_BY_TARGET
from hermes_buzz.testing.bridge import AUTH_WINDOW, HttpBridge
from hermes_buzz.testing.client import Client
from hermes_buzz.testing.faults import Faults
from hermes_buzz.testing.people import Person, sdk

Json = dict[str, Any]


class Room:
    """A channel: its kind, its name, its members by key, which of them are bots, and whether it is
    archived."""

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.kind = kind
        self.members: set[str] = set()
        self.bots: set[str] = set()
        self.archived = False


class BuzzRelay:
    """A relay on `port`, a free one for 0. `faults` is what it does to its clients.

    With ``proactive=False`` it is the bare LocalRelay, without a front: authentication is asked for
    at the first request, as NIP-42 allows, and there is nothing over HTTP. `wall` is its clock.
    """

    def __init__(
        self, *, proactive: bool = True, wall: Callable[[], float] = time.time, port: int = 0
    ) -> None:
        self.proactive = proactive
        self.port = port
        self.wall = wall
        self.faults = Faults()
        self.rooms: dict[str, Room] = {}
        self.operator = Person("relay")
        self.clients: list[Client] = []
        self.connections = 0
        self.endings = 0
        """CLOSE frames of clients."""
        self.requests: list[Json] = []
        """Every filter that was asked for over a socket."""
        self.frames: list[tuple[str, Json]] = []
        """Every EVENT and AUTH that clients sent, with its label."""
        self.seen: list[Json] = []
        """Every event that was stored or broadcast, in order."""
        self.people: list[Person] = []
        self.bridge = HttpBridge(self)
        self._places: dict[str, str] = {}
        self._placed: list[tuple[str, Json]] = []
        self._read: dict[str, int] = {}
        self._change = asyncio.Event()

    # ── life ─────────────────────────────────────────────────────────────────────────────────────

    async def __aenter__(self) -> Self:
        builder = sdk.LocalRelayBuilder().addr("127.0.0.1").default_filter_limit(500)
        limit = sdk.RateLimit(max_reqs=1_000_000, notes_per_minute=1_000_000)
        builder = builder.rate_limit(limit)
        if not self.proactive:
            mode = sdk.LocalRelayBuilderNip42Mode.BOTH
            builder = builder.nip42(sdk.LocalRelayBuilderNip42(mode=mode))
        self._local = builder.build()
        await self._local.run()
        self.upstream: str = str(await self._local.url()).rstrip("/")
        self.http = aiohttp.ClientSession()
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        try:
            await site.start()
        except OSError:
            await self._close()
            raise
        port = self._runner.addresses[0][1]
        self.url = f"ws://127.0.0.1:{port}" if self.proactive else self.upstream
        self.http_url = f"http://127.0.0.1:{port}"
        self._watch = asyncio.create_task(self._observe())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watch.cancel()
        await asyncio.wait({self._watch})
        for client in list(self.clients):
            client.cut()
        await self._close()

    async def _close(self) -> None:
        await self._runner.cleanup()
        await self.http.close()
        self._local.shutdown()

    def now(self) -> int:
        """The relay's time."""
        return int(self.wall() + self.faults.clock)

    def is_now(self, event: Json) -> bool:
        """Whether an event is dated closely enough to authenticate somebody."""
        return bool(abs(event["created_at"] - self.now()) <= AUTH_WINDOW)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if self.faults.refuse:
            return web.Response(status=503)
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return await self.bridge.handle(request)
        socket = web.WebSocketResponse(autoping=False, max_msg_size=1 << 20, timeout=1)
        await socket.prepare(request)
        client = Client(self, socket, request)
        self.clients.append(client)
        self.connections += 1
        self.changed()
        try:
            await client.serve()
        finally:
            self.clients.remove(client)
            self.changed()
        return socket

    async def _observe(self) -> None:
        """See everything that is stored, or only broadcast, as a moderator would."""
        async with self.http.ws_connect(self.upstream) as socket:
            await socket.send_str('["REQ","all",{"since":0}]')
            async for message in socket:
                frame = json.loads(message.data)
                if frame[0] == "EVENT":
                    await self._place(frame[2])
                    self.seen.append(frame[2])
                    self.changed()
                elif frame[0] == "AUTH":
                    await self._authenticate(socket, frame[1])
                elif frame[0] == "CLOSED":
                    await asyncio.sleep(0.01)
                    await socket.send_str('["REQ","all",{"since":0}]')

    async def _place(self, event: Json) -> None:
        """What names no channel belongs to that of what it refers to, and Buzz gives it to whoever
        asked for that."""
        tags = {tag[0]: tag[1] for tag in event["tags"] if len(tag) > 1}
        channel = tags.get("h") or self._places.get(tags.get("e", ""), "")
        self._places[event["id"]] = channel
        if channel and "h" not in tags and event["kind"] in PLACED_BY_TARGET:
            self._placed.append((channel, event))
            for client in list(self.clients):
                await client.place(channel, event)

    def placed_in(self, channels: Sequence[str], query: Json) -> list[Json]:
        """The stored events without a channel of their own that a request for one asks for."""
        return [
            event
            for channel, event in self._placed
            if [channel] == list(channels)
            and event["kind"] in query.get("kinds", (5, 7))
            and event["id"] in query.get("ids", (event["id"],))
            and event["created_at"] >= query.get("since", 0)
        ]

    async def _authenticate(self, socket: aiohttp.ClientWebSocketResponse, challenge: str) -> None:
        tags = [["relay", self.upstream], ["challenge", challenge]]
        event = self.operator.event(22242, tags=tags, at=int(time.time()))
        await socket.send_str(json.dumps(["AUTH", event]))

    # ── what people do ───────────────────────────────────────────────────────────────────────────

    def channel(self, name: str, *members: Person, kind: str = "stream") -> str:
        """A new channel; its id."""
        channel_id = str(uuid.uuid4())
        room = self.rooms[channel_id] = Room(name, kind)
        for person in members:
            room.members.add(person.key)
            self.people.append(person)
        return channel_id

    async def add(self, channel_id: str, person: Person) -> None:
        """Make somebody a member, and tell."""
        self.rooms[channel_id].members.add(person.key)
        self.people.append(person)
        await self._tell(44100, channel_id, person)

    async def remove(self, channel_id: str, person: Person) -> None:
        """Take somebody out, and tell."""
        self.rooms[channel_id].members.discard(person.key)
        await self._tell(44101, channel_id, person)

    async def _tell(self, kind: int, channel_id: str, person: Person) -> None:
        tags = [["p", person.key], ["h", channel_id], ["nonce", uuid.uuid4().hex]]
        await self.publish(self.operator.event(kind, tags=tags, at=self.now()))

    async def say(
        self,
        person: Person,
        channel_id: str,
        text: str,
        *,
        mentions: Sequence[Person] = (),
        root: str = "",
        parent: str = "",
        tags: Iterable[Sequence[str]] = (),
        kind: int = 9,
        at: int | None = None,
    ) -> str:
        """A message of a person, already stored when this returns; its id."""
        found: list[Sequence[str]] = [["h", channel_id], *tags]
        if root and parent and parent != root:
            found += [["e", root, "", "root"], ["e", parent, "", "reply"]]
        elif root or parent:
            found.append(["e", root or parent, "", "reply"])
        found += [["p", other.key] for other in mentions]
        event = person.event(kind, text, found, at=self.now() if at is None else at)
        await self.publish(event)
        return str(event["id"])

    async def publish(self, event: Json) -> None:
        """Store and broadcast an event, whoever made it."""
        await self.publish_all([event])

    async def publish_all(self, events: Sequence[Json]) -> None:
        """Store many. Raises ValueError when the LocalRelay refuses one."""
        async with self.http.ws_connect(self.upstream) as socket:
            for event in events:
                await socket.send_str(json.dumps(["EVENT", event]))
            left = {event["id"] for event in events}
            while left:
                frame = json.loads((await socket.receive()).data)
                if frame[0] == "AUTH":
                    await self._authenticate(socket, frame[1])
                elif frame[0] == "OK" and frame[2]:
                    left.discard(frame[1])
                elif frame[0] == "OK" and frame[3].startswith("auth-required"):
                    found = next(event for event in events if event["id"] == frame[1])
                    await socket.send_str(json.dumps(["EVENT", found]))
                elif frame[0] == "OK":
                    raise ValueError(frame[3])

    # ── what people see ──────────────────────────────────────────────────────────────────────────

    async def next_event(self, author: Person, *kinds: int) -> Json:
        """Wait for the next event of an author, kind 9 unless said otherwise, and return it."""
        while True:
            start = self._read.get(author.key, 0)
            for index in range(start, len(self.seen)):
                event = self.seen[index]
                if event["pubkey"] == author.key and event["kind"] in (kinds or (9,)):
                    self._read[author.key] = index + 1
                    return event
            await self.change()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; it is asked whenever something happens here."""
        while not condition():
            await self.change()

    async def change(self) -> None:
        """Wait until something happens: an event, a connection, a request."""
        self._change.clear()
        await self._change.wait()

    def changed(self) -> None:
        """Something happened."""
        self._change.set()

    async def stored(self, query: Json) -> list[Json]:
        """What the LocalRelay has."""
        found: list[Json] = []
        async with self.http.ws_connect(self.upstream) as socket:
            await socket.send_str(json.dumps(["REQ", "q", query]))
            async for message in socket:
                frame = json.loads(message.data)
                if frame[0] == "EVENT":
                    found.append(frame[2])
                elif frame[0] in ("EOSE", "CLOSED"):
                    break
        return found

    def cut(self) -> None:
        """Break every connection without a goodbye."""
        for client in list(self.clients):
            client.cut()

    async def close(self, code: int) -> None:
        """Close every connection with a code."""
        for client in list(self.clients):
            await client.close(code)

    async def ask_who_is_there(self) -> None:
        """Ask every client to authenticate once more."""
        for client in list(self.clients):
            await client.challenge()

    async def end_subscriptions(self, channel_id: str, reason: str) -> None:
        """Close what is asked for one channel, for every client; "" for news about membership."""
        for client in list(self.clients):
            await client.end_subscriptions(channel_id, reason)

    async def inject(self, frame: str) -> None:
        """Send a frame to every client."""
        for client in list(self.clients):
            await client.send(frame)
