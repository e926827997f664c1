"""The relay's side of one connection."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import WSMsgType, web

from hermes_buzz.events import Kind
from hermes_buzz.testing.people import is_authentic

if TYPE_CHECKING:
    from hermes_buzz.testing.relay import BuzzRelay

Json = dict[str, Any]
TOLERANCE = 900
MAX_CONTENT = 65536
PRIVATE_KINDS = {44100, 44101, 1059}
REFERRING = {9, 40002, 45003, 40003, 7}


class Client:
    """Passes frames on to the LocalRelay, as far as Buzz would take them."""

    def __init__(
        self, relay: BuzzRelay, socket: web.WebSocketResponse, request: web.Request
    ) -> None:
        self.key = ""
        """Whose connection it is, once it is authenticated."""
        self._relay = relay
        self._socket = socket
        self._request = request
        self._challenge = ""
        self._muted: set[str] = set()
        self._channels: dict[str, list[str]] = {}

    async def serve(self) -> None:
        """Until either side goes."""
        if self._relay.faults.spend("hang_ups"):
            return
        if self._relay.proactive:
            await self.challenge()
        async with self._relay.http.ws_connect(self._relay.upstream, max_msg_size=0) as upstream:
            down = asyncio.create_task(self._down(upstream))
            try:
                await self._up(upstream)
            finally:
                down.cancel()
                await asyncio.wait({down})

    async def challenge(self) -> None:
        """Ask the client to authenticate."""
        self._challenge = secrets.token_hex(32)
        await self.send(json.dumps(["AUTH", self._challenge]))

    async def send(self, frame: str) -> None:
        """A frame to the client, unless the relay is deaf or the client is gone."""
        if not self._relay.faults.deaf and not self._socket.closed:
            await self._socket.send_str(frame)

    async def close(self, code: int) -> None:
        await self._socket.close(code=code)

    def cut(self) -> None:
        transport = self._request.transport
        if transport is not None:
            transport.abort()

    async def _down(self, upstream: aiohttp.ClientWebSocketResponse) -> None:
        async for message in upstream:
            frame = json.loads(message.data)
            if frame[0] == "OK" and frame[1] in self._muted:
                continue
            if frame[0] == "EVENT" and self._relay.faults.spend("dead"):
                self._relay.changed()
                continue
            try:
                await self.send(message.data)
            except (ConnectionError, aiohttp.ClientError):
                return

    async def _up(self, upstream: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            message = await self._socket.receive()
            if message.type is WSMsgType.PING:
                if not self._relay.faults.deaf:
                    await self._socket.pong(message.data)
            elif message.type is WSMsgType.TEXT:
                if not self._relay.faults.deaf:
                    await self._frame(json.loads(message.data), message.data, upstream)
                    self._relay.changed()
            elif message.type is not WSMsgType.PONG:
                return

    async def _frame(
        self, frame: list[Any], data: str, upstream: aiohttp.ClientWebSocketResponse
    ) -> None:
        label = frame[0]
        if label == "AUTH" and self._relay.proactive:
            self._relay.frames.append(("AUTH", frame[1]))
            await self._auth(frame[1])
        elif label == "EVENT":
            self._relay.frames.append(("EVENT", frame[1]))
            await self._event(frame[1], data, upstream)
        elif label == "REQ":
            await self._request_for(frame, data, upstream)
        else:
            self._relay.endings += label == "CLOSE"
            await upstream.send_str(data)

    async def _auth(self, event: Json) -> None:
        faults = self._relay.faults
        tags = {tag[0]: tag[1] for tag in event["tags"]}
        right = (
            is_authentic(event)
            and event["kind"] == Kind.CLIENT_AUTH
            and tags.get("challenge") == self._challenge
            and tags.get("relay", "").rstrip("/") == self._relay.url
            and self._relay.is_now(event)
        )
        reason = faults.auth_reason or ("" if right else "auth-required: verification failed")
        if not reason:
            self.key = event["pubkey"]
        if not faults.silent_auth:
            await self.send(json.dumps(["OK", event["id"], not reason, reason]))

    async def _event(
        self, event: Json, data: str, upstream: aiohttp.ClientWebSocketResponse
    ) -> None:
        faults = self._relay.faults
        if faults.spend("rate_limited"):
            text = f"rate-limited: quota exceeded; {faults.retry_in}"
            await self.send(json.dumps(["NOTICE", text]))
            return
        reason = await self._refusal(event)
        if reason:
            shown = "" if faults.empty_ids else event["id"]
            await self.send(json.dumps(["OK", shown, False, reason]))
            return
        if faults.spend("unanswered"):
            self._muted.add(event["id"])
        else:
            self._muted.discard(event["id"])
        if faults.spend("lost"):
            await self._relay.publish(event)
            self.cut()
            return
        await upstream.send_str(data)

    async def _refusal(self, event: Json) -> str:
        relay = self._relay
        if relay.proactive and not self.key:
            return "auth-required: not authenticated"
        if abs(event["created_at"] - relay.now()) > TOLERANCE:
            return "invalid: event timestamp too far from server time"
        channels = [tag[1] for tag in event["tags"] if tag[0] == "h"]
        for channel in channels:
            room = relay.rooms.get(channel)
            if room is not None and self.key and self.key not in room.members:
                return "restricted: not a channel member"
        if len(event["content"].encode()) > MAX_CONTENT:
            return "invalid: content too long"
        targets = [tag[1] for tag in event["tags"] if tag[0] == "e"]
        if event["kind"] in REFERRING and targets:
            if relay.faults.spend("late_targets"):
                return "invalid: target event not found"
            return await self._thread_refusal(targets, channels)
        return ""

    async def _thread_refusal(self, targets: list[str], channels: list[str]) -> str:
        found = await self._relay.stored({"ids": targets})
        known = {
            event["id"] for event in found if not channels or ["h", channels[0]] in event["tags"]
        }
        return "" if known >= set(targets) else "invalid: parent event not found"

    async def _request_for(
        self, frame: list[Any], data: str, upstream: aiohttp.ClientWebSocketResponse
    ) -> None:
        self._relay.requests += frame[2:]
        reason = self._request_refusal(frame[2])
        if reason:
            await self.send(json.dumps(["CLOSED", frame[1], reason]))
        else:
            channels = self._channels[frame[1]] = frame[2].get("#h", [])
            for event in self._relay.placed_in(channels, frame[2]):
                await self.send(json.dumps(["EVENT", frame[1], event]))
            await upstream.send_str(data)

    def _request_refusal(self, query: Json) -> str:
        relay = self._relay
        if relay.proactive and not self.key:
            return "auth-required: not authenticated"
        if "ids" in query and relay.faults.spend("lookups"):
            return "error: overloaded"
        if PRIVATE_KINDS & set(query.get("kinds", [])) and self.key:
            if relay.faults.spend("closed_news"):
                return "error: overloaded"
            return "" if query.get("#p") == [self.key] else "restricted: p-gated events"
        channels = query.get("#h", [])
        if len(channels) == 1:
            if reason := relay.faults.closed_requests.pop(channels[0], ""):
                return reason
            room = relay.rooms.get(channels[0])
            if self.key and (room is None or self.key not in room.members):
                return "restricted: not a channel member"
        return ""

    def subscriptions(self, channel_id: str) -> list[str]:
        """The ids by which one channel was asked for."""
        return [name for name, channels in self._channels.items() if channels == [channel_id]]

    async def place(self, channel_id: str, event: Json) -> None:
        """Give an event to what was asked for its channel."""
        for subscription in self.subscriptions(channel_id):
            await self.send(json.dumps(["EVENT", subscription, event]))

    async def end_subscriptions(self, channel_id: str, reason: str) -> None:
        """Close what was asked for one channel, or for none, with a reason."""
        for subscription, channels in list(self._channels.items()):
            if channels == ([channel_id] if channel_id else []):
                del self._channels[subscription]
                await self.send(json.dumps(["CLOSED", subscription, reason]))
