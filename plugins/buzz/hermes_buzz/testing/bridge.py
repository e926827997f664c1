"""The relay over HTTP."""

from __future__ import annotations

import base64
import hashlib
import json
from email.utils import formatdate
from typing import TYPE_CHECKING, Any

from aiohttp import web

from hermes_buzz.events import Kind
from hermes_buzz.testing.people import is_authentic

if TYPE_CHECKING:
    from hermes_buzz.testing.relay import BuzzRelay, Room

Json = dict[str, Any]
AUTH_WINDOW = 60


class HttpBridge:
    """NIP-11, /query with NIP-98, /upload and /media with Blossom authorization.

    Facts about channels are made from the relay's rooms and signed by its operator; everything else
    comes out of the LocalRelay. `files` is what was stored; `type_key` is what an answer to an
    upload calls the kind of a file.
    """

    def __init__(self, relay: BuzzRelay) -> None:
        self._relay = relay
        self.type_key = "type"
        self.files: dict[str, tuple[bytes, str]] = {}
        self.authorizations: list[Json] = []
        """What queries were signed with."""
        self.downloads = 0
        self.queries = 0
        self._used: set[str] = set()

    async def handle(self, request: web.Request) -> web.Response:
        """One request. The clock shows in the Date header."""
        if self._relay.faults.no_bridge:
            response = web.Response(status=404)
        elif request.path == "/" and request.method == "GET":
            response = self._info()
        elif request.path == "/query":
            response = await self._query(request)
        elif request.path == "/upload":
            response = await self._upload(request)
        elif request.path.startswith("/media/"):
            response = self._download(request)
        else:
            response = web.Response(status=404)
        self._relay.changed()
        response.headers["Date"] = formatdate(self._relay.now(), usegmt=True)
        return response

    def _info(self) -> web.Response:
        limitation = {"auth_required": self._relay.proactive, "max_subscriptions": 1024}
        info = {"name": "test", "self": self._relay.operator.key, "limitation": limitation}
        return web.json_response(info)

    # ── queries ──────────────────────────────────────────────────────────────────────────────────

    async def _query(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self._relay.faults.no_queries:
            text = "rate-limited: quota exceeded; retry in 7s"
            return web.json_response({"error": text}, status=429)
        event = _signed(request, urlsafe=False)
        if event is None or not self._is_fresh(event):
            return web.json_response({"error": "auth-required"}, status=401)
        tags = {tag[0]: tag[1] for tag in event["tags"]}
        right = (
            event["kind"] == Kind.HTTP_AUTH
            and tags.get("u") == f"{self._relay.http_url}/query"
            and tags.get("method") == "POST"
            and tags.get("payload") == hashlib.sha256(body).hexdigest()
        )
        if not right:
            return web.json_response({"error": "verification failed"}, status=401)
        self.queries += 1
        self.authorizations.append(event)
        found: list[Json] = []
        for query in json.loads(body):
            found += await self._answer(query, event["pubkey"])
        return web.json_response(found)

    def _is_fresh(self, event: Json) -> bool:
        fresh = event["id"] not in self._used and self._relay.is_now(event)
        self._used.add(event["id"])
        return fresh

    async def _answer(self, query: Json, key: str) -> list[Json]:
        kinds = query.get("kinds", [])
        relay = self._relay
        if kinds == [39002]:
            return [
                self._members(channel, room)
                for channel, room in relay.rooms.items()
                if key in room.members
            ]
        if kinds == [39000]:
            wanted = query.get("#d", relay.rooms)
            rooms = [(channel, relay.rooms.get(channel)) for channel in wanted]
            return [self._facts(channel, room) for channel, room in rooms if room is not None]
        if kinds == [0]:
            return self._profiles(query["authors"])
        return await relay.stored(query)

    def _members(self, channel: str, room: Room) -> Json:
        tags = [["d", channel]]
        tags += [
            ["p", key, "", "bot" if key in room.bots else "member"] for key in sorted(room.members)
        ]
        return self._relay.operator.event(39002, tags=tags, at=self._relay.now())

    def _facts(self, channel: str, room: Room) -> Json:
        tags = [["d", channel], ["name", room.name], ["t", room.kind]]
        if room.kind == "dm":
            tags.append(["hidden"])
        if room.archived:
            tags.append(["archived", "true"])
        return self._relay.operator.event(39000, tags=tags, at=self._relay.now())

    def _profiles(self, keys: list[str]) -> list[Json]:
        people = [person for person in self._relay.people if person.key in keys]
        return [
            person.event(0, json.dumps({"name": person.name}), at=self._relay.now())
            for person in people
        ]

    # ── files ────────────────────────────────────────────────────────────────────────────────────

    async def _upload(self, request: web.Request) -> web.Response:
        body = await request.read()
        digest = hashlib.sha256(body).hexdigest()
        if request.headers.get("X-SHA-256") != digest or not self._may(request, "upload", digest):
            return web.json_response({"error": "auth-required"}, status=401)
        media_type = request.headers["Content-Type"]
        self.files[digest] = (body, media_type)
        url = f"{self._relay.http_url}/media/{digest}.bin"
        blob = {"url": url, "sha256": digest, "size": len(body), self.type_key: media_type}
        return web.json_response(blob)

    def _download(self, request: web.Request) -> web.Response:
        digest = request.path.removeprefix("/media/").partition(".")[0]
        self.downloads += 1
        if not self._may(request, "get", digest):
            return web.Response(status=401)
        if digest not in self.files:
            return web.Response(status=404)
        body, media_type = self.files[digest]
        return web.Response(body=body, content_type=media_type)

    def _may(self, request: web.Request, verb: str, digest: str) -> bool:
        event = _signed(request, urlsafe=True)
        if event is None or event["kind"] != Kind.UPLOAD_AUTH or not event["content"]:
            return False
        tags = {tag[0]: tag[1] for tag in event["tags"]}
        now = self._relay.now()
        return (
            tags.get("t") == verb
            and tags.get("x") == digest
            and tags.get("server") == request.host
            and now < int(tags.get("expiration", "0")) <= event["created_at"] + AUTH_WINDOW
            and self._relay.is_now(event)
        )


def _signed(request: web.Request, *, urlsafe: bool) -> Json | None:
    """The event in the Authorization header, if `nostr-sdk` finds it authentic."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme != "Nostr" or (urlsafe and "=" in token):
        return None
    padded = token + "=" * (-len(token) % 4)
    decode = base64.urlsafe_b64decode if urlsafe else base64.b64decode
    event: Json = json.loads(decode(padded))
    return event if is_authentic(event) else None
