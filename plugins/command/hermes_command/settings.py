"""What ``[agent.command]`` holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from hermes_core import Duration, Secret, Settings

if TYPE_CHECKING:
    from hermes_core import ProfileScope

Input: TypeAlias = Literal["json", "text"]
Output: TypeAlias = Literal["auto", "text", "jsonl"]


class CommandSettings(Settings):
    """Which program answers, and how it is spoken to.

    `argv` is the program and its arguments, never a shell line. `input` is what its stdin gets: the
    JSON document of `document.py`, or just the text of the messages. `output` is what its stdout
    means: plain text, JSON lines of events, or "auto", which tells them apart by the first line.
    With `dialogue` stdin stays open after the first line, and what the program asks is answered
    there.

    `timeout` is for a whole run, `history` a budget in characters, `max_output` one in bytes.
    `cwd` is absolute or begins with ``~``; without it, the program runs in a directory of its own
    under the profile's state. `env` are secrets that the program finds in its environment.
    """

    argv: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    input: Input = "json"
    output: Output = "auto"
    dialogue: bool = False
    timeout: Duration = Duration(1800.0)
    history: Annotated[int, msgspec.Meta(ge=0)] = 100_000
    max_output: Annotated[int, msgspec.Meta(ge=1)] = 1 << 20
    cwd: str = ""
    env: dict[str, Secret] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0].strip():
            raise ValueError("argv must begin with the name or the path of a program")
        if any("\0" in argument for argument in (*self.argv, self.cwd)):
            raise ValueError("argv and cwd cannot hold a NUL character")
        if self.dialogue and self.input == "text":
            raise ValueError('dialogue needs input = "json", whose end can be told')
        if self.timeout <= 0:
            raise ValueError("timeout must be more than nothing")
        if self.cwd and not self.cwd.startswith(("/", "~")):
            raise ValueError('cwd must be an absolute path, or begin with "~"')
        expand(self.argv[0])
        expand(self.cwd)
        for name in self.env:
            if not name or "=" in name or "\0" in name:
                raise ValueError(f"env: {name!r} cannot name a variable")

    @property
    def program(self) -> str:
        """The name of the program, for messages."""
        return Path(self.argv[0]).name


def run_in(settings: CommandSettings, scope: ProfileScope) -> Path:
    """The directory that the program runs in."""
    return Path(expand(settings.cwd)) if settings.cwd else scope.state_dir / "command"


def expand(path: str) -> str:
    """`path` with the home directory in place of a leading ``~``. Raises ValueError without one."""
    if not path.startswith("~"):
        return path  # as it is: Path would take the "./" away that keeps a program from the PATH
    try:
        return str(Path(path).expanduser())
    except RuntimeError:
        raise ValueError(f"there is no home directory for {path!r}") from None
