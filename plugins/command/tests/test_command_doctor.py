"""What the plugin adds to `hermes doctor`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hermes_command import CommandSettings, doctor_checks


def verdict(settings: CommandSettings | None, path: str = "/nonexistent") -> tuple[str, str]:
    tables: dict[str, object] = {} if settings is None else {"command": settings}
    scope: Any = SimpleNamespace(
        settings=SimpleNamespace(agent=SimpleNamespace(tables=tables)),
        state_dir=Path("/nonexistent"),
        child_environment=lambda: {"PATH": path},
    )
    checks = doctor_checks(scope)
    if not checks:
        return ("", "")
    found = checks[0].run()
    return found.verdict, found.text


def test_a_program_is_looked_for_as_it_would_be_run(tmp_path: Path) -> None:
    program = tmp_path / "my-agent"
    program.write_text("#!/bin/sh\n")
    by_name = CommandSettings(argv=("my-agent", "--json"))
    assert verdict(by_name, str(tmp_path))[0] == "failed", "it cannot be executed"
    program.chmod(0o755)
    assert verdict(by_name, str(tmp_path)) == ("ok", str(program))
    assert verdict(by_name) == ("failed", "'my-agent' is not on the PATH, or cannot be executed")
    assert verdict(CommandSettings(argv=(str(program),))) == ("ok", str(program))


def test_a_path_begins_where_the_program_runs(tmp_path: Path) -> None:
    program = tmp_path / "my-agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    settings = CommandSettings(argv=("./my-agent",), cwd=str(tmp_path))
    assert verdict(settings) == ("ok", str(program))
    assert verdict(CommandSettings(argv=("./absent",), cwd=str(tmp_path)))[0] == "failed"


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    settings = CommandSettings(argv=("/bin/sh",), cwd=str(tmp_path / "absent"))
    assert verdict(settings)[0] == "failed"
    assert verdict(CommandSettings(argv=("/bin/sh",), cwd=str(tmp_path)))[0] == "ok"


def test_nothing_to_check_where_nobody_uses_it() -> None:
    assert verdict(None) == ("", "")
