"""What local commands ask a running gateway about senders and profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from hermes_core.authorization import Admitted, Check, Gate
from hermes_core.delivery import Reply
from hermes_core.errors import ControlError
from hermes_core.messages import Address, ChatKind, Inbound, Message, Sender
from hermes_core.names import DEFAULT_PROFILE
from hermes_core.pairing import address_of, listing
from hermes_core.policy import AccessList
from hermes_core.sessions import session_key

if TYPE_CHECKING:
    from hermes_core.platforms import Channel
    from hermes_core.served import ServedProfile

KINDS: tuple[ChatKind, ...] = ("dm", "group", "channel", "thread")
WELCOME = "The operator has let you in. Say something."


async def explain(
    gate: Gate, access: AccessList, event: Inbound, own_id: str = ""
) -> dict[str, object]:
    """What the gate decides about an event, and every step of it, as plain values."""
    checks: list[Check] = []
    decision = await gate.check(event, access, own_id, checks=checks)
    admitted = isinstance(decision, Admitted)
    return {
        "account": access.account,
        "sender": event.sender.id,
        "admitted": admitted,
        "reason": decision.grant if isinstance(decision, Admitted) else decision.reason,
        "admin": isinstance(decision, Admitted) and decision.admin,
        "checks": [check._asdict() for check in checks],
        "unresolved": sorted(access.unresolved),
    }


def imagined(wanted: Mapping[str, object], account: str) -> Message:
    """The message that is asked about: {user, chat, kind, bot, mentions}. Raises ControlError."""
    kind = wanted.get("kind", "dm")
    if kind not in KINDS:
        raise ControlError(f"a chat is one of {', '.join(KINDS)}")
    platform, _, name = account.partition(".")
    user = str(wanted.get("user", ""))
    return Message(
        address=Address(
            platform=platform,
            account=name or "default",
            chat_id=str(wanted.get("chat") or user),
            kind=kind,
        ),
        sender=Sender(id=user, is_bot=bool(wanted.get("bot"))),
        event_id="explain",
        text="",
        mentions_me=bool(wanted.get("mentions", True)),
    )


class Host(Protocol):
    """The gateway, as these commands see it."""

    def profile(self, name: object) -> ServedProfile:
        """The profile of that name. Raises ControlError, saying why, when it is not served."""

    async def look_again(self, name: str) -> bool:
        """Look at the files of a profile at once. False when the settings do not name it."""

    async def leave(self, name: str, reason: str) -> bool:
        """Drain a profile and do not serve it until it is asked for. False when it was not
        served. Raises ControlError for the default profile."""


class Administration:
    """The handlers. Each answers for one profile, which the request names."""

    def __init__(self, gateway: Host) -> None:
        self._gateway = gateway
        self.verbs = {
            "auth.explain": self._explain,
            "pairing.list": self._pairings,
            "pairing.approve": self._approve,
            "pairing.revoke": self._revoke,
            "profiles.serve": self._serve,
            "profiles.leave": self._leave,
        }

    def _profile(self, channel: Channel) -> ServedProfile:
        return self._gateway.profile(channel.parameters.get("profile", DEFAULT_PROFILE))

    async def _explain(self, channel: Channel) -> Mapping[str, object]:
        profile = self._profile(channel)
        key = str(channel.parameters.get("account"))
        account = profile.accounts.get(key)
        if account is None:
            raise ControlError(f"the profile {profile.scope.name} has no account {key!r}")
        event = imagined(channel.parameters, key)
        return await explain(profile.gate, account.access, event, account.own_id)

    async def _pairings(self, channel: Channel) -> Mapping[str, object]:
        profile = self._profile(channel)
        now = profile.wall()
        return await profile.store.write(lambda tx: listing(tx, now))

    async def _approve(self, channel: Channel) -> Mapping[str, object]:
        profile, wanted = self._profile(channel), channel.parameters
        request = await profile.pairings.approve(
            str(wanted.get("account")), str(wanted.get("code"))
        )
        address = address_of(request)
        policy = profile.admission.policy
        key = session_key(profile.scope.name, address, request.sender_id, policy)
        profile.delivery.tell(Reply(address, key), WELCOME)
        return {
            "account": request.account,
            "user": request.sender_id,
            "name": request.sender_name,
        }

    async def _revoke(self, channel: Channel) -> Mapping[str, object]:
        profile, wanted = self._profile(channel), channel.parameters
        account, user = str(wanted.get("account")), str(wanted.get("user"))
        return {"revoked": await profile.pairings.revoke(account, user)}

    async def _serve(self, channel: Channel) -> Mapping[str, object]:
        """Look at a profile again at once: it was created, or is to be served again."""
        name = str(channel.parameters.get("profile"))
        return {"listed": await self._gateway.look_again(name)}

    async def _leave(self, channel: Channel) -> Mapping[str, object]:
        """Drain a profile and serve it no more, until it is asked for again."""
        name = str(channel.parameters.get("profile"))
        return {"served": await self._gateway.leave(name, "it was deleted")}
