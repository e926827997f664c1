"""What may stand in the place of a settings file, and how texts are written."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import hermes_core
from hermes_core.config import Declarations, ProfileSettings, load_profile, read_document
from hermes_core.config.document import MAX_SETTINGS_FILE
from hermes_core.errors import ConfigError
from hermes_core.profiles import ProfileSecrets
from tests.config.support import Load, Refused

TEXT = b"[sessions]\nbusy = 'steer'\n\n[agent]\nuse = '''\nllm'''\n"
BOM = b"\xef\xbb\xbf"


@pytest.mark.case("CF-01")
@pytest.mark.parametrize(
    "content",
    [BOM + TEXT, TEXT.replace(b"\n", b"\r\n"), BOM + TEXT.replace(b"\n", b"\r\n")],
    ids=["bom", "crlf", "both"],
)
def test_byte_order_mark_and_line_ends_change_nothing(load: Load, content: bytes) -> None:
    assert load(content) == load(TEXT)


@pytest.mark.case("CF-01")
def test_byte_order_mark_inside_is_an_error_with_its_line(refused: Refused) -> None:
    (fault,) = refused(b"[sessions]\n" + BOM + b"busy = 'steer'\n").faults
    assert fault.line == 2
    assert "byte order mark" in fault.problem


@pytest.mark.case("CF-02")
@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("[sessions]\nbusy = \n", 2, "Invalid value"),
        ("[sessions\nbusy = 1\n", 1, "not TOML"),
        ("[sessions]\nbusy = 'queue\n", 2, "not TOML"),
        ("[sessions]\n\nbusy = 'queue", 3, "at the end of the file"),
        ("[sessions]\n\nbusy = 'queue\n\n", 3, "at the end of the file"),
    ],
)
def test_syntax_error_has_line_and_cause(
    refused: Refused, text: str, line: int, words: str
) -> None:
    (fault,) = refused(text).faults
    assert fault.line == line
    assert words in str(fault)
    assert fault.file.endswith("config.toml")


@pytest.mark.case("CF-12")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[sessions]\nbusy = 'queue'\nbusy = 'steer'\n", 3),
        ("[sessions]\nbusy = 'queue'\n\n[sessions]\n", 4),
        ("sessions.busy = 'queue'\n[sessions]\ngroup = 'shared'\n", 2),
    ],
)
def test_what_is_defined_twice_is_an_error_with_its_line(
    refused: Refused, text: str, line: int
) -> None:
    (fault,) = refused(text).faults
    assert fault.line == line
    assert "defined twice" in fault.problem


@pytest.mark.case("CF-12")
def test_a_name_used_twice_in_an_array_of_tables_names_both_places(refused: Refused) -> None:
    table = "[[hooks.outbound]]\nname = 'audit'\nurl = 'https://example.org'\n"
    (fault,) = refused(table + "\n" + table).faults
    assert fault.key == "hooks.outbound[1].name"
    assert fault.line == 6
    assert "first on line 2" in fault.problem


def test_what_is_no_utf8_is_an_error_with_its_line(refused: Refused) -> None:
    (fault,) = refused(b"[sessions]\nbusy = '\xff'\n").faults
    assert (fault.line, fault.problem) == (2, "the file is not UTF-8 text")


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 5000, ".".join("a" * 100) + " = 1", "a = " + "9" * 5000]
)
def test_absurd_documents_are_errors(refused: Refused, text: str) -> None:
    assert len(refused(text).faults) == 1


# What is no ordinary file. Read by a process of its own: a hang must not take the tests along.

_LOAD = """
import sys
from pathlib import Path
import hermes_core
from hermes_core.config import load_profile
from hermes_core.errors import ConfigError
from hermes_core.profiles import ProfileSecrets
try:
    load_profile(Path(sys.argv[1]), "default", platforms={}, agents={}, sections={},
                 secrets=ProfileSecrets())
except ConfigError as error:
    print(error)
    sys.exit(error.exit_code)
"""
_MEMORY = 512 << 20


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


def _load_elsewhere(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _LOAD, str(path)],
        env={**os.environ, "PYTHONPATH": str(Path(hermes_core.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        preexec_fn=_limit_memory,
    )


@pytest.mark.case("CF-15")
def test_a_directory(config_file: Path) -> None:
    config_file.mkdir()
    done = _load_elsewhere(config_file)
    assert (done.returncode, "found a directory" in done.stdout) == (2, True)


@pytest.mark.case("CF-15")
def test_a_pipe_without_a_writer(config_file: Path) -> None:
    os.mkfifo(config_file)
    done = _load_elsewhere(config_file)
    assert (done.returncode, "found a named pipe" in done.stdout) == (2, True)


@pytest.mark.case("CF-15")
def test_a_device_without_an_end(config_file: Path) -> None:
    config_file.symlink_to("/dev/zero")
    done = _load_elsewhere(config_file)
    assert (done.returncode, "found a device" in done.stdout) == (2, True)


@pytest.mark.case("CF-15")
def test_a_file_of_200_megabytes(config_file: Path) -> None:
    with config_file.open("wb") as file:
        file.truncate(200 << 20)
    done = _load_elsewhere(config_file)
    assert (done.returncode, str(MAX_SETTINGS_FILE) in done.stdout) == (2, True)


@pytest.mark.case("CF-15")
def test_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("config.toml")
        done = _load_elsewhere(tmp_path / "config.toml")
    assert done.returncode == 2


@pytest.mark.case("CF-15")
def test_a_loop_of_links(config_file: Path) -> None:
    config_file.symlink_to(config_file)
    done = _load_elsewhere(config_file)
    assert (done.returncode, "loop" in done.stdout) == (2, True)


@pytest.mark.case("CF-15")
def test_a_link_to_nothing(config_file: Path) -> None:
    config_file.symlink_to(config_file.with_name("gone"))
    done = _load_elsewhere(config_file)
    assert (done.returncode, "points to nothing" in done.stdout) == (2, True)


@pytest.mark.case("CF-15")
def test_a_path_with_a_line_end_is_shown_escaped(tmp_path: Path) -> None:
    path = tmp_path / "a\nb.toml"
    path.write_text("x = ")
    done = _load_elsewhere(path)
    assert done.returncode == 2
    assert "a\\nb.toml" in done.stdout


@pytest.mark.case("CF-15")
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(config_file: Path) -> None:
    config_file.write_text("")
    config_file.chmod(0)
    with pytest.raises(ConfigError, match="permission denied"):
        read_document(config_file)


def test_a_large_allow_list_is_fine(load: Load) -> None:
    users = ", ".join(f'"{number}"' for number in range(100_000, 200_000))
    settings = load(f'[platforms.line]\ntoken = "env:LINE_TOKEN"\nallowed_users = [{users}]\n')
    assert len(settings.accounts[0].allowed_users) == 100_000


def test_reading_makes_nothing(tmp_path: Path, declarations: Declarations) -> None:
    settings = load_profile(
        tmp_path / "absent" / "config.toml",
        "default",
        platforms=declarations.platforms,
        agents=declarations.agents,
        sections=declarations.sections,
        secrets=ProfileSecrets(),
    )
    assert isinstance(settings, ProfileSettings)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_read_names_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_document(tmp_path)
    assert caught.value.faults[0].file == str(tmp_path)
