"""`hermes setup`: a settings file that works, from a few questions."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin

import click

from hermes_core.cli.invocation import Invocation
from hermes_core.cli.questions import Questions
from hermes_core.errors import ConfigError, HermesError

if TYPE_CHECKING:
    from hermes_core.config import Checked, Declarations
    from hermes_core.config.convert import FieldInfo
    from hermes_core.settings import Settings

_HEAD = "# Written by `hermes setup`. docs/settings.md explains every key.\n\n"
_PLAIN = re.compile(r"[A-Za-z0-9_./+=:@,~-]+", re.ASCII)


@click.command()
@click.option("--agent", metavar="NAME", help="The agent that answers; asked for without it.")
@click.option(
    "--platform",
    "platforms",
    multiple=True,
    metavar="NAME",
    help="A chat network to connect, and no question about others. May be repeated.",
)
@click.option("--defaults", is_flag=True, help="Ask nothing: take the default of every question.")
@click.pass_obj
def setup(
    invocation: Invocation, agent: str | None, platforms: tuple[str, ...], defaults: bool
) -> None:
    """Write a settings file that works, from a few questions.

    Asks which installed agent answers and which chat networks it is connected to, and then only for
    what has no default. Secrets go to secrets.env, which only you can read, and the settings refer
    to them. What is written was checked before; an existing file is replaced only if you say so,
    and kept as config.toml.bak.
    """
    from hermes_core.profiles import require_profile

    require_profile(invocation.home, invocation.profile)
    questions = Questions(defaults)
    wizard = Wizard(invocation, questions, _declared())
    wizard.require(agent, platforms)
    if not _may_write(invocation, questions):
        click.echo("Nothing was changed.")
        return
    wizard.choose_agent(agent)
    wizard.choose_platforms(platforms)
    checked = wizard.checked()
    if checked.faults:
        raise ConfigError.of(checked.faults)
    wizard.write()
    _tell(invocation, checked)


@dataclass
class Wizard:
    """The draft of a settings file and of the secrets that it refers to."""

    invocation: Invocation
    questions: Questions
    declared: Declarations
    tables: dict[str, Any] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)

    def require(self, agent: str | None, platforms: Sequence[str]) -> None:
        """Raise HermesError, before anything is asked, for what can never be set up."""
        agents = sorted(self.declared.agents)
        if not agents:
            raise HermesError(
                "no agent is installed",
                remedy="pip install hermes-plugin-echo for a first try, or hermes-plugin-command",
            )
        if agent is not None:
            _require_known("agent", agent, agents)
        for name in platforms:
            _require_known("platform", name, sorted(self.declared.platforms))
        self._all_secrets()

    def choose_agent(self, name: str | None) -> None:
        """Settle who answers, and what that agent needs to know."""
        known = self.declared.agents
        name = name or self._offer_agent(sorted(known))
        self.tables["agent"] = {"use": name}
        self._section(("agent", name), known[name].settings)

    def choose_platforms(self, names: Sequence[str]) -> None:
        """Settle which networks are connected, what they need to know, and who may speak there."""
        known = {
            name: platform
            for name, platform in sorted(self.declared.platforms.items())
            if not platform.implicit
        }
        for name, platform in known.items():
            wanted = name in names
            if not names:
                wanted = self.questions.confirm(f"Connect {name}?", default=False)
            if wanted:
                self._section(("platforms", name), platform.settings)

    def checked(self) -> Checked:
        """What the loader of the gateway says about the draft."""
        from hermes_core.config import check_profile, parse_document

        document = parse_document(self.text().encode(), self._file)
        profile = self.invocation.profile
        return check_profile(document, profile, self.declared, self._all_secrets())

    def text(self) -> str:
        """The settings file."""
        import tomli_w

        return _HEAD + tomli_w.dumps(self.tables)

    def write(self) -> None:
        """Write the secrets, then the settings. Raises HermesError when that cannot be done."""
        from hermes_core.files import write_atomic

        home, profile = self.invocation.home, self.invocation.profile
        home.ensure(profile)
        try:
            if self.secrets:
                _add_secrets(home.secrets_file(profile), self.secrets)
            if self._file.exists():
                write_atomic(self._file.with_name("config.toml.bak"), self._file.read_bytes())
            write_atomic(self._file, self.text().encode())
            self._file.chmod(0o600)
        except OSError as error:
            reason = error.strerror or str(error)
            raise HermesError(f"not written: {reason}", where=str(self._file)) from error

    @property
    def _file(self) -> Path:
        return self.invocation.home.config_file(self.invocation.profile)

    def _offer_agent(self, known: Sequence[str]) -> str:
        if len(known) == 1:
            click.echo(f"The agent is {known[0]}: it is the only one installed.")
            return known[0]
        easy = [name for name in known if not _required(self.declared.agents[name].settings)]
        return self.questions.choose("Which agent answers?", known, (easy or known)[0])

    def _section(self, path: tuple[str, str], section: type[Settings]) -> None:
        """Fill in one table; again, while somebody is there and it is not right."""
        while True:
            table = {
                name: self._value(path, name, info) for name, info in _required(section).items()
            }
            if path[0] == "platforms":
                table |= self._access(path[1])
            if table or path[0] == "platforms":
                self.tables.setdefault(path[0], {})[path[1]] = table
            faults = self.checked().faults
            if not faults or not table or not self.questions.patient:
                return
            for fault in faults:
                click.echo(f"That does not work: {fault.key}: {_words(fault)}")

    def _access(self, platform: str) -> dict[str, Any]:
        """Nobody may speak who is not on a list: without one, a new account is deaf."""
        answer = self.questions.optional(
            f"Who may speak on {platform}? Their user ids, with commas (empty: nobody yet)"
        )
        ids = [entry for entry in re.split(r"[,\s]+", answer) if entry]
        return {"allowed_users": ids} if ids else {}

    def _value(self, path: tuple[str, str], name: str, info: FieldInfo) -> object:
        from hermes_core.config.convert import describe_type, holds_secret
        from hermes_core.config.edit import parse_value

        key = f"{path[1]} {name}"
        if holds_secret(info.type):
            return self._secret(f"{path[1]}_{name}", key)
        if _is_list(info.type):
            return shlex.split(self._words(f"{key} (words as in a shell)"))
        answer = self.questions.text(f"{key} ({describe_type(info.type)})")
        return answer if info.type is str else parse_value(answer)

    def _words(self, question: str) -> str:
        while True:
            answer = self.questions.text(question)
            try:
                shlex.split(answer)
            except ValueError as error:
                click.echo(f"That cannot be read: {error}")
            else:
                return answer

    def _secret(self, place: str, key: str) -> str:
        """A reference to a secret that is there already, or is put into secrets.env."""
        from hermes_core.secrets import parse_secrets

        name = re.sub(r"[^A-Za-z0-9]", "_", place).upper()
        if self._known(name) and self.questions.confirm(
            f"{name} is set already. Use it as {key}?", default=True
        ):
            return f"env:{name}"
        if self.questions.defaults:
            file = self.invocation.home.secrets_file(self.invocation.profile)
            raise HermesError(
                f"there is no default for this: {key}",
                remedy=f"write {name}=... into {file}, or run it without --defaults",
            )
        while True:
            value = self.questions.text(f"{key} (a secret, kept in secrets.env)", hidden=True)
            if value.partition(":")[0] in ("env", "file", "keyring") and ":" in value:
                return value
            try:
                parse_secrets(_secret_line(name, value))
            except ConfigError as error:
                click.echo(f"That cannot be kept: {_words(error.faults[0])}")
                continue
            self.secrets[name] = value
            return f"env:{name}"

    def _known(self, name: str) -> bool:
        return name not in self.secrets and self._all_secrets().get(name) is not None

    def _all_secrets(self) -> Any:
        from hermes_core.profiles import DEFAULT_PROFILE, ProfileSecrets
        from hermes_core.secrets import read_secrets_file

        home, profile = self.invocation.home, self.invocation.profile
        directory = home.config_dir(profile)
        return ProfileSecrets(
            {**read_secrets_file(home.secrets_file(profile)), **self.secrets},
            profile=profile,
            directory=directory,
            environment=os.environ if profile == DEFAULT_PROFILE else None,
        )


def _declared() -> Declarations:
    from hermes_core.cli.installed import declared_by
    from hermes_core.plugins import load

    with contextlib.redirect_stdout(sys.stderr):
        return declared_by(load())


def _may_write(invocation: Invocation, questions: Questions) -> bool:
    file = invocation.home.config_file(invocation.profile)
    if not os.path.lexists(file):
        return True
    if not file.is_file():
        raise HermesError("this is no file", where=str(file), remedy="move it away")
    if questions.defaults:
        raise HermesError(
            "there are settings already: nothing is written",
            where=str(file),
            remedy="run `hermes setup` without --defaults, or change them with `hermes config set`",
        )
    return questions.confirm(
        f"{file} is there already. Replace it, and keep it as config.toml.bak?", default=False
    )


def _require_known(kind: str, name: str, known: Sequence[str]) -> None:
    from hermes_core.names import did_you_mean

    if name not in known:
        hint = did_you_mean(name, known) or f"pip install hermes-plugin-{name}"
        remedy = f"{hint}; `hermes plugins list` shows what is installed"
        raise HermesError(f"no plugin that works brings the {kind} {name!r}", remedy=remedy)


def _required(section: type[Settings]) -> dict[str, FieldInfo]:
    from hermes_core.config.convert import fields_of

    return {name: info for name, info in fields_of(section).items() if info.required}


def _is_list(kind: Any) -> bool:
    inner = get_args(kind)[0] if hasattr(kind, "__metadata__") else kind
    return get_origin(inner) in (tuple, list)


def _words(fault: Any) -> str:
    """What is wrong, without the file: it is not written yet."""
    what = fault.problem or f"expected {fault.expected}, found {fault.found}"
    return f"{what} ({fault.hint})" if fault.hint else what


def _secret_line(name: str, value: str) -> str:
    """A line of secrets.env (see `secrets.parse_secrets`)."""
    if _PLAIN.fullmatch(value):
        return f"{name}={value}"
    if "'" not in value:
        return f"{name}='{value}'"
    escaped = re.sub(r'(["\\$])', r"\\\1", value)
    return f'{name}="{escaped}"'


def _add_secrets(file: Path, secrets: dict[str, str]) -> None:
    """Write secrets into a file, in place of older ones of the same name; the rest stays."""
    from hermes_core.files import write_atomic

    old = file.read_text(encoding="utf-8-sig").splitlines() if file.exists() else []
    taken = re.compile(rf"\s*(?:export\s+)?(?:{'|'.join(secrets)})\s*=")
    lines = [line for line in old if not taken.match(line)]
    lines += [_secret_line(name, value) for name, value in secrets.items()]
    write_atomic(file, ("\n".join(lines) + "\n").encode(), mode=0o600)


def _tell(invocation: Invocation, checked: Checked) -> None:
    file = invocation.home.config_file(invocation.profile)
    click.echo(f"Written to {file}, and valid.")
    for warning in checked.warnings:
        click.echo(f"warning: {warning}")
    click.echo("Next: `hermes doctor` looks at everything, `hermes run` starts the gateway,")
    click.echo("      `hermes chat` talks to it from another terminal.")
