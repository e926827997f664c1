"""`hermes completion`: scripts that the shells understand, and that complete."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]
Install = Callable[..., None]

ASK = {
    "bash": """
        eval "$(hermes completion bash)"
        COMP_WORDS=(hermes %s) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _hermes_completion hermes
        printf '%%s\\n' "${COMPREPLY[@]}"
    """,
    "fish": """
        hermes completion fish | source
        complete --do-complete "hermes %s"
    """,
}


def complete(shell: str, words: str, environment: dict[str, str], tmp_path: Path) -> list[str]:
    """What `shell` offers for the last of `words`."""
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    program = tmp_path / "bin" / "hermes"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hermes_core.cli "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{environment['PATH']}"
    done = subprocess.run(
        [shell, "-c", ASK[shell] % words], env={**environment, "PATH": path},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line.partition("\t")[0] for line in done.stdout.split("\n") if line]


@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_shells_complete_with_the_script(
    shell: str, environment: dict[str, str], install: Install, tmp_path: Path
) -> None:
    install("hermes-plugin-chatty", {"delight": "missing_module:command"})
    assert set(complete(shell, "de", environment, tmp_path)) == {"deliveries", "delight"}
    assert complete(shell, "deliveries re", environment, tmp_path) == ["replay"]
    assert "--failed" in complete(shell, "deliveries list --", environment, tmp_path)
    assert set(complete(shell, "completion ''", environment, tmp_path)) >= {"bash", "zsh", "fish"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_every_shell(shell: str, hermes: Hermes) -> None:
    script = hermes("completion", shell)
    assert (script.returncode, script.stderr) == (0, "")
    assert f"_HERMES_COMPLETE={shell}_complete" in script.stdout
    assert f"hermes completion {shell}" in hermes("completion", "--help").stdout
    if shutil.which(shell):
        arguments = [shell, "-n"] if shell != "fish" else [shell, "--no-execute"]
        subprocess.run(arguments, input=script.stdout, text=True, check=True)


def test_other_shells_are_refused(hermes: Hermes) -> None:
    result = hermes("completion", "tcsh")
    assert result.returncode == 2
    assert "'bash', 'zsh', 'fish'" in result.stderr
