"""``[[hooks.outbound]]``: a target, as it is written and as it is used."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from hermes_core import Bounds, Duration, SecretText, Settings, UnresolvedSecret
from hermes_outbound_webhooks.addresses import BadAddress, Place, check_url
from hermes_outbound_webhooks.names import TOOL_EVENTS, hook_of

if TYPE_CHECKING:
    from hermes_core import ProfileScope
    from hermes_core.secrets import SecretSource

log = logging.getLogger(__name__)

SECTION = "hooks.outbound"
MATCH_LIMIT = 0.1
"""Seconds that a matcher may take for the name of one tool. The usual one takes microseconds."""

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e]{0,8192}")
_OWN = frozenset(
    {
        *("connection", "expect", "host", "keep-alive", "te", "trailer", "upgrade", "user-agent"),
        *("content-encoding", "content-length", "content-type", "transfer-encoding"),
    }
)
"""Headers that say how a request is sent: they are not for settings."""
_OWN_PREFIXES = ("x-hermes-", "webhook-", "proxy-")


class TargetSettings(Settings):
    """One target. The manual of the keys is the README."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
    url: str
    events: Annotated[tuple[str, ...], Meta(min_length=1)]
    secret_env: str = ""
    secret: SecretText | None = None
    previous_secret: SecretText | None = None
    matcher: str = ""
    timeout: Annotated[Duration, Bounds(1, 60)] = Duration(10)
    max_retries: Annotated[int, Meta(ge=0, le=20)] = 1
    allow_unsigned: bool = False
    allow_private: bool = False
    headers: dict[str, SecretText] = msgspec.field(default_factory=dict)
    redact: tuple[str, ...] = ()
    durable: bool = False
    max_age: Annotated[Duration, Bounds(60, 30 * 86400)] = Duration(3 * 86400)
    overflow: Literal["drop_newest", "drop_oldest"] = "drop_newest"
    proxy: str = ""

    def __post_init__(self) -> None:
        self._check_events()
        check_url(self.url, allow_private=self.allow_private)
        if self.proxy:
            check_url(self.proxy, allow_private=True)
        if self.secret_env and self.secret is not None:
            raise ValueError("has both secret and secret_env; keep one of them")
        self._check_headers()

    def _check_headers(self) -> None:
        names = [name.lower() for name in self.headers]
        for name in self.headers:
            own = name.lower() in _OWN or name.lower().startswith(_OWN_PREFIXES)
            if own or not _TOKEN.fullmatch(name):
                raise ValueError(f"the header {name!r:.60} cannot be set")
            if names.count(name.lower()) > 1:
                raise ValueError(f"the header {name!r:.60} is set twice")
        if "authorization" in names and "@" in urlsplit(self.url).netloc:
            raise ValueError("has both a header Authorization and a user in the url; keep one")

    def _check_events(self) -> None:
        hooks = [hook_of(event) for event in self.events]
        if len(set(hooks)) < len(hooks):
            raise ValueError("names an event twice")
        if not self.matcher:
            return
        import regex  # 15 ms: not for settings without a matcher

        try:
            regex.compile(self.matcher)
        except regex.error as error:
            raise ValueError(f"the matcher is no regular expression: {error}") from error
        if not TOOL_EVENTS.intersection(hooks):
            raise ValueError("a matcher chooses among tools, and no event of a tool is asked for")


@dataclass(frozen=True)
class Target:
    """A target with its secrets. `refused` says why nothing is sent to it, "" when it is used."""

    settings: TargetSettings
    place: Place
    events: Mapping[str, str]
    """The name that the settings use, by hook."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    refused: str = ""
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def signing(self) -> str:
        """`signed`, `UNSIGNED` or `REFUSED`."""
        return "REFUSED" if self.refused else "signed" if self.secrets else "UNSIGNED"

    def wants(self, hook: str, tool: str | None) -> bool:
        """Whether an event goes to this target. `tool` is the tool's name, for events of tools."""
        if hook not in self.events:
            return False
        return tool is None or not self.settings.matcher or self._matches(tool)

    def _matches(self, tool: str) -> bool:
        """Agents name tools, and some patterns take for ever on some names: there is a limit."""
        import regex

        try:
            return regex.fullmatch(self.settings.matcher, tool, timeout=MATCH_LIMIT) is not None
        except TimeoutError:
            log.warning("webhook %s: the matcher takes too long; an event is not sent", self.name)
            return False

    def line(self) -> str:
        """The target in one line, without a secret: not even the path of its url is shown."""
        facts = [self.signing, str(self.place), f"timeout {Duration.text(self.settings.timeout)}"]
        if self.settings.matcher:
            facts.append(f"matcher {self.settings.matcher}")
        if self.settings.durable:
            facts.append(f"durable for {Duration.text(self.settings.max_age)}")
        return "; ".join([*facts, *([self.refused] if self.refused else ()), *self.notes])


def targets_of(scope: ProfileScope) -> list[Target]:
    """The targets of a profile, the refused ones too."""
    found = scope.settings.sections.get(SECTION, ())
    tables = found if isinstance(found, tuple) else ()
    return [
        make_target(table, scope.secrets) for table in tables if isinstance(table, TargetSettings)
    ]


def make_target(settings: TargetSettings, source: SecretSource) -> Target:
    """Look the secrets up. What is missing refuses the target; it is never sent to unsigned."""
    notes: list[str] = []
    place = check_url(settings.url, allow_private=settings.allow_private)
    if place.scheme == "http":
        notes.append("not encrypted: the url is http")
    try:
        secrets, headers, refused = (
            _secrets(settings, source, notes),
            _headers(settings, source),
            "",
        )
    except _Missing as error:
        secrets, headers, refused = (), {}, str(error)
    events = {hook_of(event): event for event in settings.events}
    return Target(settings, place, events, secrets, headers, refused, tuple(notes))


class _Missing(Exception):
    pass


def _secrets(settings: TargetSettings, source: SecretSource, notes: list[str]) -> tuple[str, ...]:
    if settings.secret_env:
        written = SecretText(f"env:{settings.secret_env}")
    elif settings.secret is not None:
        written = settings.secret
    elif settings.allow_unsigned:
        return ()
    else:
        raise _Missing("there is no secret; allow_unsigned = true sends without a signature")
    found = [_secret(written, source, notes)]
    if settings.previous_secret is not None:
        found.append(_secret(settings.previous_secret, source, notes))
    return tuple(found)


def _secret(written: SecretText, source: SecretSource, notes: list[str]) -> str:
    value = _resolved(written, source)
    if not written.is_reference:
        notes.append("the secret stands in the settings; better keep it in secrets.env")
    if not value.strip():
        raise _Missing("the secret is empty")
    if value != value.strip():
        notes.append("white space around the secret is not part of it")
    return value.strip()


def _headers(settings: TargetSettings, source: SecretSource) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, written in settings.headers.items():
        value = _resolved(written, source).strip()
        if not _VALUE.fullmatch(value):
            raise _Missing(f"the value of the header {name} has characters that no header may have")
        headers[name] = value
    return headers


def _resolved(written: SecretText, source: SecretSource) -> str:
    if not written.is_reference:
        return written.reveal()
    try:
        return source.resolve(written.reveal())
    except (UnresolvedSecret, ValueError) as error:
        raise _Missing(str(error)) from None


__all__ = ["SECTION", "BadAddress", "Target", "TargetSettings", "make_target", "targets_of"]
