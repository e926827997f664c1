"""Secrets of one profile: where they come from and who may see them.

A profile's secrets are the lines of its own `secrets.env`, the files and keyring entries that its
settings refer to, and, for the default profile alone, the environment of the process. There is no
fall-back from one profile to another.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Protocol

from hermes_core.errors import ConfigError, Fault
from hermes_core.files import UnusableFile, read_bounded, shown

MAX_SECRETS_FILE = 1 << 20
MAX_SECRET = 1 << 16
"""Longest secret in a file of its own, in bytes: certificates with their chain fit."""

_REFERENCE = re.compile(r"(?P<kind>env|file|keyring):(?P<name>.+)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_LINE = re.compile(r"(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(?P<value>.*)")
_QUOTED = re.compile(r"""(?:"(?P<double>(?:[^"\\]|\\.)*)"|'(?P<single>[^']*)')[ \t]*(?:#.*)?""")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$", "'": "'"}

REFERENCE_FORMS = '"env:NAME", "file:PATH" or "keyring:NAME"'


class UnresolvedSecret(Exception):
    """A reference that leads to no secret. The text names the reference, never a value."""


class SecretSource(Protocol):
    """Looks secrets up for one profile only."""

    def get(self, name: str) -> str | None:
        """The secret of that name, None when the profile has none. An empty one counts as none."""

    def resolve(self, reference: str) -> str:
        """The secret that ``env:NAME``, ``file:PATH`` or ``keyring:NAME`` leads to.

        Raises `UnresolvedSecret` when it leads to none, ValueError when it is no reference.
        """


class ProfileSecrets:
    """The secrets of one profile.

    `environment` is the process environment for the default profile and None for every other one.
    """

    def __init__(
        self,
        values: Mapping[str, str] | None = None,
        *,
        profile: str = "default",
        directory: Path | None = None,
        environment: MutableMapping[str, str] | None = None,
    ) -> None:
        self._values = dict(values or {})
        self._profile = profile
        self._directory = directory
        self._environment = environment
        self._taken: dict[str, str] = {}
        self._resolved: set[str] = set()

    @classmethod
    def load(
        cls, directory: Path, profile: str, environment: MutableMapping[str, str] | None
    ) -> ProfileSecrets:
        """The secrets of the profile whose settings are in `directory`. Raises ConfigError."""
        values = read_secrets_file(directory / "secrets.env")
        return cls(values, profile=profile, directory=directory, environment=environment)

    def anew(self) -> ProfileSecrets:
        """The same profile's secrets as its files say now, with what was taken out of the
        environment. Raises ConfigError."""
        assert self._directory is not None, "these secrets were not loaded from a directory"
        fresh = self.load(self._directory, self._profile, self._environment)
        fresh._taken = self._taken
        return fresh

    def get(self, name: str) -> str | None:
        value = self._values.get(name) or self._taken.get(name)
        if not value and self._environment is not None:
            value = self._environment.get(name)
            if value:
                self._resolved.add(value)
        return value or None

    def resolve(self, reference: str) -> str:
        match = _REFERENCE.fullmatch(reference)
        if match is None:
            raise ValueError(f"expected {REFERENCE_FORMS}")
        value = getattr(self, f"_from_{match['kind']}")(match["name"])
        assert isinstance(value, str)
        self._resolved.add(value)
        return value

    def names(self) -> frozenset[str]:
        """Names of the profile's secrets, as far as they are listed in `secrets.env` or were
        taken."""
        return frozenset(self._values).union(self._taken)

    def values(self) -> frozenset[str]:
        """Every value known so far, for redaction."""
        return frozenset(self._resolved.union(value for value in self._values.values() if value))

    def take_environment(self, names: Iterable[str]) -> None:
        """Move `names` out of the environment of the process, the C one included.

        What `secrets.env` already says stays as it is. Afterwards no thread, library or child can
        find these names; this object still gives their values. Names that are not set are no error.
        """
        if self._environment is None:
            raise ValueError(f"the profile {self._profile} does not own the process environment")
        for name in names:
            value = self._environment.pop(name, None)
            if value:
                self._resolved.add(value)
                self._taken[name] = value
            os.unsetenv(name)

    def _from_env(self, name: str) -> str:
        if _NAME.fullmatch(name) is None:
            raise ValueError('expected "env:NAME" with letters, digits and underscores')
        value = self.get(name)
        if value is None:
            place = "secrets.env" if self._environment is None else "secrets.env or the environment"
            raise UnresolvedSecret(f"env:{name} leads to nothing: {name} is not set in {place}")
        return value

    def _from_file(self, name: str) -> str:
        reference = f"file:{shown(name)}"
        path = Path(name).expanduser()
        if not path.is_absolute():
            if self._directory is None:
                raise UnresolvedSecret(f"{reference} is relative, and the profile has no directory")
            path = self._directory / path
        try:
            value = read_bounded(path, limit=MAX_SECRET, private=True).decode().rstrip("\r\n")
        except FileNotFoundError:
            raise UnresolvedSecret(f"{reference} leads to nothing: no such file") from None
        except UnusableFile as error:
            remedy = f"; {error.remedy}" if error.remedy else ""
            raise UnresolvedSecret(f"{reference}: {error.reason}{remedy}") from None
        except UnicodeDecodeError:
            raise UnresolvedSecret(f"{reference}: the file is not UTF-8 text") from None
        if not value:
            raise UnresolvedSecret(f"{reference} leads to an empty file")
        return value

    def _from_keyring(self, name: str) -> str:
        service = f"hermes/{self._profile}"
        try:
            keyring = importlib.import_module("keyring")
        except ImportError:
            raise UnresolvedSecret(
                f"keyring:{shown(name)} needs the keyring library: "
                "pip install 'hermes-gateway[keyring]'"
            ) from None
        try:
            value = keyring.get_password(service, name)
        except Exception as error:  # a back end raises whatever its system raises
            raise UnresolvedSecret(
                f"keyring:{shown(name)}: the keyring failed: {type(error).__name__}"
            ) from error
        if not value:
            raise UnresolvedSecret(
                f"keyring:{shown(name)} leads to nothing: keyring set {service} {shown(name)}"
            )
        return str(value)


def read_secrets_file(path: Path) -> dict[str, str]:
    """The names and values of a `secrets.env`; empty when there is none. Raises ConfigError."""
    file = shown(path)
    try:
        content = read_bounded(path, limit=MAX_SECRETS_FILE, private=True)
    except FileNotFoundError:
        return {}
    except UnusableFile as error:
        raise ConfigError.of([Fault(file=file, problem=error.reason, hint=error.remedy)]) from None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        fault = Fault(file=file, line=line, problem="the file is not UTF-8 text")
        raise ConfigError.of([fault]) from None
    return parse_secrets(text, file=file)


def parse_secrets(text: str, *, file: str = "secrets.env") -> dict[str, str]:
    r"""Read ``NAME=VALUE`` lines. Raises ConfigError with every line that cannot be understood.

    A value is plain without white space, or in quotes: single quotes take everything as it is,
    double quotes know ``\n \r \t \" \\ \$``. A line that begins with ``#`` is a comment; so
    is what follows a quoted value. ``#`` inside a plain value is part of it.
    """
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    faults: list[Fault] = []
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.removesuffix("\r").strip(" \t")
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            faults.append(Fault(file=file, line=number, problem=_unreadable(line)))
            continue
        name = match["name"]
        if name in lines:
            problem = f"the name is set twice, first on line {lines[name]}"
            faults.append(Fault(file=file, key=name, line=number, problem=problem))
            continue
        lines[name] = number
        try:
            values[name] = _secret_value(match["value"])
        except ValueError as error:
            faults.append(Fault(file=file, key=name, line=number, problem=str(error)))
    if faults:
        raise ConfigError.of(faults)
    return values


def _unreadable(line: str) -> str:
    if line.startswith("\ufeff"):
        return "a byte order mark inside the file"
    return "expected NAME=VALUE"


def _secret_value(written: str) -> str:
    if not written.replace("\t", "").isprintable():
        raise ValueError("the value holds a character that cannot be seen")
    if written[:1] in ("'", '"'):
        match = _QUOTED.fullmatch(written)
        if match is None:
            raise ValueError("the quotes of the value do not close, or text follows them")
        double = match["double"]
        return match["single"] if double is None else _unescape(double)
    if re.search(r"\s", written):
        raise ValueError("a value with white space needs quotes; comments have lines of their own")
    return written


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        try:
            return _ESCAPES[match[1]]
        except KeyError:
            raise ValueError(
                'the value holds an escape other than \\n \\r \\t \\" \\\\ \\$'
            ) from None

    return re.sub(r"\\(.)", replace, text)
