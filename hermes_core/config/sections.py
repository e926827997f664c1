"""The settings that the core itself knows, as typed sections. The manual is `docs/settings.md`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hermes_core.settings import Bounds, Duration, PositiveDuration, Settings

Progress = Literal["none", "typing", "status", "full"]
Busy = Literal["queue", "coalesce", "interrupt", "steer"]
Sharing = Literal["per_user", "shared"]
OnUnknown = Literal["repeat", "drop"]
Reset = Literal["none", "idle", "daily"]
Edits = Literal["ignore", "note", "new_turn"]
Bots = Literal["off", "mentions", "all"]
AfterCrash = Literal["retry", "notify", "drop"]


class GatewaySettings(Settings):
    """``[gateway]``: the process. Only the file of the default profile has it."""

    profiles: tuple[str, ...] = ("default",)
    max_running_turns: Annotated[int, Meta(ge=1, le=10_000)] = 64
    max_waiting: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000
    shutdown_grace: Duration = Duration(30)
    start_grace: Duration = Duration(20)
    durability: Literal["full", "normal"] = "full"


class SessionSettings(Settings):
    """``[sessions]``: what shares a memory, and what happens while a turn runs.

    `inactivity` ends a turn that shows no sign of life for so long, `total` any turn that runs so
    long. `edits` says what an edit of a message does that was taken already, `after_crash` what
    becomes of a message whose turn a crash cut.
    """

    group: Sharing = "per_user"
    thread: Sharing = "shared"
    busy: Busy = "queue"
    max_waiting: Annotated[int, Meta(ge=1, le=1_000_000)] = 1000
    inactivity: PositiveDuration = Duration(1800)
    total: PositiveDuration | None = None
    edits: Edits = "ignore"
    after_crash: AfterCrash = "retry"
    reset: Reset = "none"
    reset_idle: PositiveDuration = Duration(86400)
    reset_hour: Annotated[int, Meta(ge=0, le=23)] = 4


DAY = 86400.0
REDELIVERY = 7 * DAY
"""Seconds for which a network may offer an event again: the longest that we know of are the seven
days of WhatsApp's webhooks. Telegram keeps updates for one."""


class RetentionSettings(Settings):
    """``[retention]``: how long what is over is kept. What waits or runs is kept anyhow.

    After `content` texts are erased, after `keys` the ids as well, by which a repeat is recognised.
    `transcript` is for sessions that ended; without it they are kept.
    """

    content: Annotated[Duration, Bounds(minimum=DAY)] = Duration(30 * DAY)
    keys: Annotated[Duration, Bounds(minimum=REDELIVERY)] = Duration(90 * DAY)
    transcript: Annotated[Duration, Bounds(minimum=DAY)] | None = None

    def __post_init__(self) -> None:
        if self.keys < self.content:
            content, keys = Duration.text(self.content), Duration.text(self.keys)
            raise ValueError(f'keys ("{keys}") cannot be shorter than content ("{content}")')


class AuthorizationSettings(Settings):
    """``[authorization]``: plugins whose `authorize` hook may speak for platforms of others."""

    authorizers: tuple[str, ...] = ()


class PluginSettings(Settings):
    """``[plugins]``: what is not loaded, and what the gateway must not run without."""

    disabled: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


class AgentChoice(Settings):
    """The core's own keys of ``[agent]``; the tables below it belong to the agents.

    `send_files_from` are directories from which an agent may attach files to its answers, besides
    the profile's own `files` directory.
    """

    use: str = "echo"
    send_files_from: tuple[str, ...] = ()


@dataclass(frozen=True)
class AgentSettings:
    """``[agent]``. `tables` has the section of every agent that can be built from this file."""

    use: str = "echo"
    send_files_from: tuple[str, ...] = ()
    tables: Mapping[str, Settings] = field(default_factory=dict)


class GroupKeys(Settings):
    """``[platforms.X.groups.ID]``: one group. What is not set is as for all groups.

    `allowed_users` counts in this group instead of the account's lists.
    """

    allowed_users: tuple[str, ...] | None = None
    require_mention: bool | None = None
    bots: Bots | None = None
    commands: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


class AccountKeys(Settings):
    """The core's own keys of ``[platforms.X]``; the others belong to the plugin.

    `require_mention` is for groups. `bots` says which messages of other bots are taken, at most
    `bot_turns` of them in `bot_window` in one chat. `commands` are the users that may call a
    command, by its name. With `pairing` a stranger gets a code in a direct chat.

    `on_unknown` is for an answer that may or may not have arrived, on a platform that cannot tell:
    send it again with a mark (at least once), or do not (at most once).
    """

    enabled: bool = True
    allowed_users: tuple[str, ...] = ()
    allowed_groups: tuple[str, ...] = ()
    allow_all: bool = False
    admins: tuple[str, ...] = ()
    commands: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    require_mention: bool = True
    groups: dict[str, GroupKeys] = msgspec.field(default_factory=dict)
    bots: Bots = "off"
    bot_turns: Annotated[int, Meta(ge=1, le=10_000)] = 10
    bot_window: PositiveDuration = Duration(600)
    pairing: bool = False
    progress: Progress = "typing"
    streaming: bool = True
    agent: str | None = None
    busy: Busy | None = None
    on_unknown: OnUnknown = "repeat"


ACCESS_KEYS = ("allowed_users", "allowed_groups", "allow_all", "admins", "groups", "pairing")
"""The keys of an account that decide who may speak."""
MISPLACED_KEYS = ("allowed_users", "allowed_groups", "allow_all", "authorizers")
"""Keys that are an error wherever they have no effect. `admins` may belong to a plugin's table."""


class AccountSettings(AccountKeys, kw_only=True):
    """One account: the core's keys, and `settings`, the section that the platform's plugin
    declared.

    The lists hold the ids as they are written; each of them can be normalised.
    """

    platform: str
    account: str
    settings: Settings

    @property
    def name(self) -> str:
        """``telegram`` for the default account, ``telegram.ops`` for another one."""
        return self.platform if self.account == "default" else f"{self.platform}.{self.account}"


@dataclass(frozen=True)
class ProfileSettings:
    """Everything that one profile's file says, with defaults filled in.

    `sections` has the sections that plugins declared: one value, or a tuple for an array of tables.
    `warnings` are what the file says in vain, each in one line.
    """

    name: str = "default"
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    sessions: SessionSettings = field(default_factory=SessionSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    authorization: AuthorizationSettings = field(default_factory=AuthorizationSettings)
    plugins: PluginSettings = field(default_factory=PluginSettings)
    accounts: tuple[AccountSettings, ...] = ()
    sections: Mapping[str, Settings | tuple[Settings, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def account(self, platform: str, account: str = "default") -> AccountSettings | None:
        """The account of that name, None when the profile has none."""
        for found in self.accounts:
            if (found.platform, found.account) == (platform, account):
                return found
        return None
