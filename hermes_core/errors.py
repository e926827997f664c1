"""Every error that Hermes raises on purpose, as one tree.

::

    HermesError                     what happened, where, what to do next
    ├── ConfigError                 settings that cannot be used (exit 2)
    ├── PluginError                 a plugin broke the contract
    ├── NotReady                    do not acknowledge; stop taking in, come back
    ├── AgentError                  an agent failed to produce an answer
    ├── StoreError                  the state database cannot be used
    │   ├── ForeignDatabase         the file belongs to another program
    │   └── NewerSchema             the file was written by a newer Hermes
    ├── StoreFault                  an operation on the state database is wrong in itself
    ├── HomeLocked                  another gateway holds this home
    ├── ControlError                a request over the control socket failed
    └── SendError                   an outbound call to a platform did not succeed
        ├── RateLimited             not sent; try again after a given time
        ├── Unreachable             not sent; the chat cannot be reached now
        ├── SendFailed              not sent; trying again may help
        ├── SendRejected            not sent; trying again never helps
        ├── OutcomeUnknown          may or may not have been sent
        └── AccountFailed           the whole account cannot work (exit 78)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

EXIT_FAILURE = 1
EXIT_CONFIG = 2
EXIT_RESTART = 75
"""Ask the supervisor to start the gateway again (sysexits.h, EX_TEMPFAIL)."""
EXIT_NEVER = 78
"""Valid settings that can never work, such as a revoked token (sysexits.h, EX_CONFIG)."""


class HermesError(Exception):
    """The root of all errors raised by Hermes.

    `what` says what happened, `where` names the file, key, account or plugin it happened to, and
    `remedy` says what a person can do about it. All three are safe to show: they hold no secret.
    """

    exit_code: int = EXIT_FAILURE

    def __init__(self, what: str, *, where: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text} ({self.remedy})" if self.remedy else text


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong in a file of settings. Holds no secret.

    `key` is the dotted path of the key, empty for the file as a whole; `line` counts from 1.
    `expected` and `found` are words for a person; `problem` takes their place when they would not
    explain it.
    """

    file: str
    key: str = ""
    line: int | None = None
    expected: str = ""
    found: str = ""
    problem: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        what = self.problem or f"expected {self.expected}, found {self.found}"
        text = ": ".join(part for part in (place, self.key, what) if part)
        return f"{text} ({self.hint})" if self.hint else text


class ConfigError(HermesError):
    """Settings that cannot be used: syntax, type, value, unknown key, missing secret.

    `faults` lists everything that was found wrong, in the order of the file where that is known.
    """

    exit_code = EXIT_CONFIG

    def __init__(
        self, what: str, *, where: str = "", remedy: str = "", faults: tuple[Fault, ...] = ()
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.faults = faults

    @classmethod
    def of(cls, faults: Sequence[Fault]) -> ConfigError:
        """One error that reports every fault, each on its own line."""
        lines = [str(fault) for fault in faults]
        what = lines[0] if len(lines) == 1 else "\n  ".join([f"{len(lines)} faults", *lines])
        return cls(what, faults=tuple(faults))


class PluginError(HermesError):
    """A plugin broke the contract: import error, unknown hook, bad argument, taken name."""


class NotReady(HermesError):
    """The event was not taken in and must not be acknowledged; the network will offer it again."""


class AgentError(HermesError):
    """An agent failed to produce an answer. `what` is shown to the person who asked."""


class StoreError(HermesError):
    """The state database cannot be used: disk full, read-only, damaged, replaced."""


class ForeignDatabase(StoreError):
    """The file at the path of the state database belongs to another program. It is left alone."""


class NewerSchema(StoreError):
    """The state database was written by a newer Hermes. It is left alone."""


class StoreFault(HermesError):
    """An operation on the state database is wrong in itself: bad SQL, a constraint that it breaks.
    It fails however often it is tried."""


class HomeLocked(HermesError):
    """Another gateway holds this home. `pid` is its verified process id, None if unknown."""

    def __init__(self, what: str, *, pid: int | None, where: str = "", remedy: str = "") -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.pid = pid


class ControlError(HermesError):
    """A request over the control socket failed, or its answer did not come in time."""


class SendError(HermesError):
    """An outbound call to a platform did not succeed. Raise a subclass: delivery acts on its
    type."""


class RateLimited(SendError):
    """Not sent: the platform wants a pause of `retry_after` seconds for the `scope`."""

    def __init__(
        self, retry_after: float, *, scope: Literal["chat", "account"] = "chat", where: str = ""
    ) -> None:
        super().__init__(f"rate limited for {retry_after:g} s", where=where)
        self.retry_after = retry_after
        self.scope = scope


class Unreachable(SendError):
    """Not sent: the chat cannot be reached until the adapter reports `context.reachable(chat)`.

    Spends no attempt: the message waits in the outbox until the chat is back or it is too old.
    """


class SendFailed(SendError):
    """Not sent, for certain, and trying again may help (refused connection, server error)."""


class SendRejected(SendError):
    """Not sent, and trying again never helps. `kind` is the reason delivery may react to."""

    def __init__(
        self,
        what: str,
        *,
        kind: Literal["too_long", "bad_format", "forbidden", "not_found", "other"] = "other",
        where: str = "",
        remedy: str = "",
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.kind = kind


class OutcomeUnknown(SendError):
    """The platform may or may not have taken the message (time-out after the request was
    written)."""


class AccountFailed(SendError):
    """The account can never work as configured: token revoked, key rejected, banned."""

    exit_code = EXIT_NEVER


def described(error: BaseException) -> str:
    """The type of an error and what it says, in one line that can be stored; also of one that
    cannot say anything."""
    try:
        text = f"{type(error).__name__}: {error}".removesuffix(": ")
    except Exception:
        return type(error).__name__
    return text.encode("utf-8", "backslashreplace").decode()
