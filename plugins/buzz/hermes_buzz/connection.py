"""One connection to a relay: frames, authentication, subscriptions, publishing."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import msgspec
from aiohttp import ClientError, WSMessage, WSMsgType

from hermes_buzz.events import Draft, Event, Kind, read_event
from hermes_buzz.pacing import Pacing, retry_after
from hermes_buzz.subscriptions import Filter, Subscription
from hermes_buzz.trouble import (
    ConnectionDown,
    RelayError,
    RelayRefused,
    RequestClosed,
    clock_remedy,
    first_of,
)
from hermes_core import AccountFailed

if TYPE_CHECKING:
    from hermes_buzz.keys import Signer
    from hermes_buzz.ownership import OwnerTag

log = logging.getLogger(__name__)

MAX_FRAME = 2 << 20
"""Bytes of one frame. The relay itself takes 512 KiB at most, and 64 KiB of text."""
SEND_LIMIT = 10.0
"""Seconds until a frame is written, or the peer has stopped reading."""
ANSWER_LIMIT = 30.0
"""Seconds until the relay has given all stored events of a request."""
SILENT_AUTH = 2.0
"""Seconds after which an AUTH without an answer counts as taken: some relays never answer it."""
MAX_UNANSWERED = 8
"""Events without an answer that are remembered in their order."""
MAX_AUTHS = 8
"""AUTH events whose answers are known as such; a relay needs one."""
POLICY_VIOLATION = 1008
"""The close code for a community that was deleted."""
_EVENTS_AT_ONCE = 32
"""Events verified (0.2 ms each) before the loop gets a chance to do something else."""


class Socket(Protocol):
    """What is needed of aiohttp's web socket."""

    @property
    def close_code(self) -> int | None: ...

    async def receive(self) -> WSMessage: ...

    async def send_str(self, data: str) -> None: ...

    async def ping(self, message: bytes = b"") -> None: ...

    async def pong(self, message: bytes = b"") -> None: ...

    async def close(self) -> bool: ...


class Answer(msgspec.Struct, frozen=True):
    """The relay's OK to an event, or None in place of `accepted`: it was not taken for a reason
    that passes (rate limit, missing authentication)."""

    accepted: bool | None
    reason: str = ""


class Connection:
    """Speaks to one relay until the socket ends. `run` has to be running for the rest to work."""

    def __init__(
        self,
        socket: Socket,
        *,
        url: str,
        signer: Signer,
        owner: OwnerTag | None,
        pacing: Pacing,
        wall: Callable[[], float],
        read_idle: float,
        skew: float | None = None,
    ) -> None:
        """`skew` is by how much this machine's clock is behind the relay's, for error texts."""
        self._socket = socket
        self._url = url
        self._signer = signer
        self._owner = owner
        self._pacing = pacing
        self._wall = wall
        self._read_idle = read_idle
        self._skew = skew
        self._subscriptions: dict[str, Subscription] = {}
        self._publishing = asyncio.Lock()
        self._pending: tuple[str, asyncio.Future[Answer]] | None = None
        self._unanswered: deque[str] = deque(maxlen=MAX_UNANSWERED)
        self._auth_ids: deque[str] = deque(maxlen=MAX_AUTHS)
        self._auth_sent = asyncio.Event()
        self._authenticated = asyncio.Event()
        self._group: asyncio.TaskGroup
        self._verified = 0
        self._heard_at = asyncio.get_running_loop().time()

    # ── the life of the socket ───────────────────────────────────────────────────────────────────

    async def run(self) -> None:
        """Read until the connection ends. Always raises: RelayError, or AccountFailed for good."""
        try:
            async with asyncio.TaskGroup() as self._group:
                self._group.create_task(self._read(), name="buzz read")
                self._group.create_task(self._watch(), name="buzz watch")
        except BaseExceptionGroup as errors:
            raise first_of(errors) from None
        finally:
            if self._pending is not None and not self._pending[1].done():
                error = ConnectionDown("the connection ended before the answer", where=self._url)
                self._pending[1].set_exception(error)

    async def _read(self) -> None:
        while True:
            try:
                message = await self._socket.receive()
            except (OSError, ClientError) as error:
                raise ConnectionDown(f"cannot read: {error!r}", where=self._url) from None
            self._heard_at = asyncio.get_running_loop().time()
            if message.type is WSMsgType.TEXT:
                await self._frame(message.data)
            elif message.type is WSMsgType.PING:
                await self._socket.pong(message.data)
            elif message.type is not WSMsgType.PONG:
                raise self._ended(message)

    def _ended(self, message: WSMessage) -> Exception:
        if message.type is WSMsgType.BINARY:
            return ConnectionDown("the relay sent a binary frame", where=self._url)
        if message.type is WSMsgType.ERROR:
            return ConnectionDown(f"a bad frame: {message.data}", where=self._url)
        code = message.data if isinstance(message.data, int) else self._socket.close_code or 0
        if code == POLICY_VIOLATION:
            return AccountFailed(
                "the relay closed the connection for good: the community was deleted, or this "
                "account is not wanted",
                where=self._url,
                remedy="check relay_url, or ask an owner of the community",
            )
        reason = f" ({message.extra})" if message.extra else ""
        return ConnectionDown(f"the relay closed with {code}{reason}", where=self._url, code=code)

    async def _watch(self) -> None:
        """A socket that is silent for long is dead, whatever the operating system says."""
        loop = asyncio.get_running_loop()
        while (idle := loop.time() - self._heard_at) < self._read_idle:
            if idle >= self._read_idle / 3:
                await self._write(self._socket.ping())
            await asyncio.sleep(self._read_idle / 6)
        raise ConnectionDown(f"the relay was silent for {idle:.1f} s", where=self._url)

    async def _write(self, writing: object) -> None:
        try:
            async with asyncio.timeout(SEND_LIMIT):
                await writing  # type: ignore[misc]
        except TimeoutError:
            raise ConnectionDown("the relay does not read", where=self._url) from None
        except (OSError, ClientError) as error:
            raise ConnectionDown(f"cannot write: {error!r}", where=self._url) from None

    # ── frames from the relay ────────────────────────────────────────────────────────────────────

    async def _frame(self, data: str) -> None:
        try:
            label, *rest = msgspec.json.decode(data, type=list[msgspec.Raw])
            await self._dispatch(msgspec.json.decode(label, type=str), rest)
        except (msgspec.DecodeError, ValueError, IndexError, RecursionError):
            log.warning("the relay sent a frame that makes no sense", extra={"relay": self._url})

    async def _dispatch(self, label: str, rest: list[msgspec.Raw]) -> None:
        if label == "EVENT":
            self._event(_text(rest[0]), rest[1])
            self._verified += 1
            if self._verified % _EVENTS_AT_ONCE == 0:
                await asyncio.sleep(0)
            return
        subject, *values = [msgspec.json.decode(raw) for raw in rest]
        if label == "OK":
            self._ok(str(subject), _at(values, 0) is True, str(_at(values, 1)))
        elif label == "AUTH":
            await self._authenticate(str(subject))
        elif label == "EOSE":
            self._end_of_stored(str(subject))
        elif label == "CLOSED":
            self._closed(str(subject), str(_at(values, 0)))
        elif label == "NOTICE":
            self._notice(str(subject))

    def _event(self, subscription_id: str, data: msgspec.Raw) -> None:
        found = self._subscriptions.get(subscription_id)
        if found is None:
            return
        event = read_event(data)
        if event is None:
            log.warning("the relay sent an event with a wrong form, id or signature")
        else:
            found.take(event)

    def _end_of_stored(self, subscription_id: str) -> None:
        if found := self._subscriptions.get(subscription_id):
            found.end_of_stored()

    def _closed(self, subscription_id: str, reason: str) -> None:
        """One subscription ended; the others go on."""
        found = self._subscriptions.get(subscription_id)
        if found is None:
            return
        if reason.startswith("rate-limited"):
            self._pacing.close(retry_after(reason))
        del self._subscriptions[subscription_id]
        found.close(reason)

    def _notice(self, text: str) -> None:
        """A rate-limited EVENT gets no other answer than this."""
        log.info("the relay says: %.200s", text, extra={"relay": self._url})
        if "rate-limited" in text:
            self._pacing.close(retry_after(text))
            self._settle(Answer(None, text))
        elif text.startswith(("restricted", "auth-required")):
            self._refused_by_notice(text)

    def _refused_by_notice(self, text: str) -> None:
        """Some relays refuse a request so, and do not say which: it is clear when it is the only
        one that waits."""
        opening = [found for found in self._subscriptions.values() if not found.is_complete]
        if len(opening) == 1:
            self._closed(opening[0].id, text)

    def _ok(self, event_id: str, accepted: bool, reason: str) -> None:
        # Some relays leave the id out when they refuse; they answer in the order of the events.
        event_id = event_id or next(iter(self._unanswered), "")
        if event_id in self._unanswered:
            self._unanswered.remove(event_id)
        if event_id in self._auth_ids:
            self._auth_answered(accepted, reason)
        elif self._pending is not None and event_id == self._pending[0]:
            passing = not accepted and reason.startswith(("auth-required", "rate-limited"))
            if passing and reason.startswith("rate-limited"):
                self._pacing.close(retry_after(reason))
            known = accepted or reason.startswith("duplicate:")
            self._settle(Answer(None if passing else known, reason))

    def _settle(self, answer: Answer) -> None:
        if self._pending is not None and not self._pending[1].done():
            self._pending[1].set_result(answer)

    # ── authentication ───────────────────────────────────────────────────────────────────────────

    async def authenticated(self, limit: float) -> None:
        """Wait until the relay has taken the account. Raises RelayError when it has not by then."""
        try:
            async with asyncio.timeout(limit):
                await self._auth_sent.wait()
        except TimeoutError:
            raise RelayError("the relay asked for no authentication", where=self._url) from None
        try:
            async with asyncio.timeout(SILENT_AUTH):
                await self._authenticated.wait()
        except TimeoutError:
            self._authenticated.set()

    async def authenticated_if_asked(self, limit: float) -> None:
        """The same for a relay that does not say what it wants: some seconds for it to ask."""
        try:
            async with asyncio.timeout(limit):
                await self._auth_sent.wait()
        except TimeoutError:
            return
        await self.authenticated(limit)

    async def _authenticate(self, challenge: str) -> None:
        tags: list[tuple[str, ...]] = [("challenge", challenge), ("relay", self._url)]
        now = self._now()
        if self._owner is not None and self._owner.covers(Kind.CLIENT_AUTH, now):
            tags.append(self._owner.tag)
        draft = Draft(kind=Kind.CLIENT_AUTH, created_at=now, tags=tuple(tags))
        event = draft.signed(self._signer)
        self._auth_ids.append(event.id)
        self._authenticated.clear()
        await self._write(self._socket.send_str(f'["AUTH",{event.as_json()}]'))
        self._auth_sent.set()

    def _auth_answered(self, accepted: bool, reason: str) -> None:
        if not accepted and "already authenticated" not in reason:
            raise self._refusal(reason)
        self._authenticated.set()
        if self._subscriptions:  # asked too early: events may be hidden
            self._group.create_task(self._ask_again(list(self._subscriptions.values())))

    async def _ask_again(self, subscriptions: list[Subscription]) -> None:
        for found in subscriptions:
            await self._pacing.turn()
            if found.id in self._subscriptions:
                found.restart()
                await self._write(self._socket.send_str(found.request))

    def _refusal(self, reason: str) -> Exception:
        if reason.startswith("blocked"):
            return AccountFailed(
                f"the relay refused the account: {reason}",
                where=self._url,
                remedy="ask an owner of the community",
            )
        remedy = clock_remedy(self._skew)
        if not remedy and reason.startswith("restricted"):
            remedy = f"let an owner of the community invite {self._signer.public_key}"
            if self._owner is not None and not self._owner.covers(Kind.CLIENT_AUTH, self._now()):
                remedy += ", or make auth_tag without the conditions that exclude authentication"
        return RelayRefused(
            f"the relay refused the account: {reason}", where=self._url, remedy=remedy
        )

    def _now(self) -> int:
        return int(self._wall())

    # ── asking and publishing ────────────────────────────────────────────────────────────────────

    async def subscribe(self, query: Filter) -> Subscription:
        """Ask, and wait until all stored events are there. Raises RelayError when the relay will
        not answer; authentication that is asked for meanwhile is awaited."""
        reason = ""
        for _ in range(3):
            subscription = Subscription(query)
            await self._open(subscription)
            if subscription.is_complete:
                return subscription  # some relays close at once what nothing can follow
            reason = subscription.closed or ""
            if not reason.startswith("auth-required"):
                break
            await self.authenticated(ANSWER_LIMIT)
        raise RequestClosed(reason, where=self._url)

    async def _open(self, subscription: Subscription) -> None:
        self._subscriptions[subscription.id] = subscription
        try:
            await self._send(subscription.request)
            async with asyncio.timeout(ANSWER_LIMIT):
                await subscription.opened()
        except TimeoutError:
            await self.unsubscribe(subscription)
            raise RelayError("the relay does not answer a request", where=self._url) from None
        except BaseException:
            self._subscriptions.pop(subscription.id, None)
            raise

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Ask no more."""
        if self._subscriptions.pop(subscription.id, None) is not None:
            await self._write(self._socket.send_str(f'["CLOSE","{subscription.id}"]'))

    def forget(self, subscription: Subscription) -> None:
        """Ignore what still comes for it. For when there is no time to say so."""
        self._subscriptions.pop(subscription.id, None)

    async def fetch(self, query: Filter) -> list[Event]:
        """What the relay has stored, newest first as it gives it. Raises RelayError."""
        subscription = await self.subscribe(query)
        await self.unsubscribe(subscription)
        return subscription.stored

    async def publish(self, event: Event, limit: float) -> Answer:
        """Publish one event and return the relay's answer to it.

        Raises TimeoutError when there is none within `limit` seconds: the relay may have it.
        """
        frame = f'["EVENT",{event.as_json()}]'
        async with self._publishing:
            await self._pacing.event_turn()
            answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._pending = (event.id, answer)
            self._unanswered.append(event.id)
            try:
                await self._write(self._socket.send_str(frame))
                async with asyncio.timeout(limit):
                    return await answer
            finally:
                self._pending = None

    async def whisper(self, event: Event) -> None:
        """Publish what nobody stores, if there is a frame to spare. No answer is awaited."""
        if self._pacing.try_event_turn():
            self._unanswered.append(event.id)
            await self._write(self._socket.send_str(f'["EVENT",{event.as_json()}]'))

    async def close(self) -> None:
        """Say goodbye."""
        try:
            async with asyncio.timeout(1):
                await self._socket.close()
        except (TimeoutError, OSError, ClientError):
            return

    async def _send(self, frame: str) -> None:
        await self._pacing.turn()
        await self._write(self._socket.send_str(frame))


def _text(raw: msgspec.Raw) -> str:
    return msgspec.json.decode(raw, type=str)


def _at(values: list[object], index: int) -> object:
    return values[index] if len(values) > index else ""
