"""Where secrets come from, and that they come from nowhere else."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import Secret
from hermes_core.config import Declarations, check_profile, parse_document
from hermes_core.errors import ConfigError
from hermes_core.profiles import ProfileSecrets, UnresolvedSecret
from hermes_core.secrets import parse_secrets, read_secrets_file

VALUE = "0123-marked-value"


def write(path: Path, content: str | bytes, mode: int = 0o600) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return path


@pytest.mark.case("AZ-02")
@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("K=plain", "plain"),
        ("K = plain", "plain"),
        ("export K=plain", "plain"),
        ("  K=plain  ", "plain"),
        ("K=a#b", "a#b"),
        ("K=a=b==", "a=b=="),
        ("K='a # b'", "a # b"),
        ("K='a b' # a comment", "a b"),
        ('K="a b"   # a comment', "a b"),
        (r'K="a\"b\\c\n\t\$"', 'a"b\\c\n\t$'),
        (r"K='a\n'", r"a\n"),
        ("K=$HOME", "$HOME"),
        ("K=", ""),
        ("K=''", ""),
        ("K=ключ", "ключ"),
        ("K=plain\r", "plain"),
    ],
)
def test_lines(line: str, value: str) -> None:
    assert parse_secrets(f"# comment\n\n{line}\nL=1") == {"K": value, "L": "1"}


@pytest.mark.case("AZ-02")
@pytest.mark.parametrize(
    "line",
    [
        "K",
        "=v",
        "1K=v",
        "K-X=v",
        "K=a b",
        "K=a # comment",
        "K=a\tb",
        "K='a",
        "K='a' b",
        'K="a"b',
        r'K="\x41"',
        "K=a\x00b",
        "K=a\rb",
        "K=\u200bv",
        "\ufeffK=v",
        "K: v",
    ],
)
def test_lines_that_are_refused_with_their_number(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_secrets(f"A=1\n{line}\n")
    (fault,) = caught.value.faults
    assert fault.line == 2


def test_every_fault_is_reported_and_no_value_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_secrets("A=marked value\nB\nA=marked\nA=marked\n")
    assert [fault.line for fault in caught.value.faults] == [1, 2, 3, 4]
    assert "marked" not in str(caught.value)
    assert "first on line 1" in str(caught.value.faults[2])


@pytest.mark.case("CF-01")
def test_byte_order_mark_and_line_ends(tmp_path: Path) -> None:
    path = write(tmp_path / "secrets.env", b"\xef\xbb\xbfA=1\r\nB='2 3'\r\n")
    assert read_secrets_file(path) == {"A": "1", "B": "2 3"}


PLAIN = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=20)


@given(st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True), PLAIN))
def test_what_was_written_in_quotes_is_read(values: dict[str, str]) -> None:
    escaped = {k: v.replace("\\", r"\\").replace('"', r"\"") for k, v in values.items()}
    text = "".join(f'{key}="{value}" # x\n' for key, value in escaped.items())
    assert parse_secrets(text) == values


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        values = parse_secrets(text)
    except ConfigError as error:
        assert error.faults  # noqa: PT017 - both ends are fine
    else:
        assert all(isinstance(value, str) for value in values.values())


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666, 0o610])
def test_a_file_that_others_can_open_is_refused(tmp_path: Path, mode: int) -> None:
    path = write(tmp_path / "secrets.env", f"A={VALUE}\n", mode)
    with pytest.raises(ConfigError, match="chmod 600") as caught:
        read_secrets_file(path)
    assert VALUE not in str(caught.value)


def test_no_file_is_no_secrets(tmp_path: Path) -> None:
    assert read_secrets_file(tmp_path / "secrets.env") == {}


@pytest.mark.case("CF-15")
def test_a_pipe_in_place_of_the_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "secrets.env", 0o600)
    with pytest.raises(ConfigError, match="named pipe"):
        read_secrets_file(tmp_path / "secrets.env")


# ── references ───────────────────────────────────────────────────────────────────────────────────


def test_references(tmp_path: Path) -> None:
    write(tmp_path / "token", f"{VALUE}\r\n")
    secrets = ProfileSecrets({"NAME": "of-env"}, directory=tmp_path)
    assert secrets.resolve("env:NAME") == "of-env"
    assert secrets.resolve("file:token") == VALUE
    assert secrets.resolve(f"file:{tmp_path}/token") == VALUE
    assert secrets.values() == {"of-env", VALUE}


@pytest.mark.parametrize("text", ["plain", "", "ENV:NAME", "env:", "http://x", "env:a b", "env:1"])
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        ProfileSecrets({"1": "x"}).resolve(text)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("env:ABSENT", "not set"),
        ("env:EMPTY", "not set"),
        ("file:absent", "no such file"),
        ("file:wide", "chmod 600"),
        ("file:empty", "empty file"),
        ("file:binary", "not UTF-8"),
        ("file:directory", "found a directory"),
        ("file:long", "more than"),
        ("file:a\x00b", "null"),
    ],
)
def test_references_that_lead_to_nothing(tmp_path: Path, reference: str, words: str) -> None:
    write(tmp_path / "wide", VALUE, 0o644)
    write(tmp_path / "empty", "\n")
    write(tmp_path / "binary", b"\xff\xfe")
    write(tmp_path / "long", "x" * (1 << 17))
    (tmp_path / "directory").mkdir()
    secrets = ProfileSecrets({"EMPTY": ""}, directory=tmp_path)
    with pytest.raises(UnresolvedSecret, match=words) as caught:
        secrets.resolve(reference)
    assert VALUE not in str(caught.value)


def test_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("keyring")
    stored = {("hermes/work", "bot"): VALUE}
    module.get_password = lambda service, name: stored.get((service, name))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", module)
    assert ProfileSecrets(profile="work").resolve("keyring:bot") == VALUE
    with pytest.raises(UnresolvedSecret, match="keyring set hermes/default bot"):
        ProfileSecrets().resolve("keyring:bot")


def test_keyring_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(UnresolvedSecret, match="pip install"):
        ProfileSecrets().resolve("keyring:bot")


@pytest.mark.parametrize("written", ["'marked-plain-text'", "'env:ABSENT'", "17", "true", "['x']"])
def test_a_fault_never_shows_a_secret(declarations: Declarations, written: str) -> None:
    text = f"[platforms.line]\ntoken = {written}\nallowed_users = ['1']\n"
    document = parse_document(text.encode(), None)
    checked = check_profile(document, "default", declarations, ProfileSecrets())
    (fault,) = checked.faults
    assert (fault.key, fault.line) == ("platforms.line.token", 2)
    assert "marked" not in str(fault)
    assert "17" not in str(fault)


def test_a_secret_does_not_show_itself() -> None:
    secret = Secret(VALUE)
    assert VALUE not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == VALUE
    assert secret == Secret(VALUE) != Secret("other")


# ── the environment ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.case("PR-03")
def test_only_the_default_profile_sees_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMES_TEST_TOKEN", VALUE)
    default = ProfileSecrets.load(tmp_path, "default", os.environ)
    work = ProfileSecrets.load(tmp_path, "work", None)
    assert default.resolve("env:HERMES_TEST_TOKEN") == VALUE
    assert work.get("HERMES_TEST_TOKEN") is None
    with pytest.raises(UnresolvedSecret, match=r"secrets\.env$"):
        work.resolve("env:HERMES_TEST_TOKEN")


def test_the_file_comes_before_the_environment(tmp_path: Path) -> None:
    write(tmp_path / "secrets.env", "A=of-file\n")
    environment = {"A": "of-environment", "B": "of-environment"}
    secrets = ProfileSecrets.load(tmp_path, "default", environment)
    assert (secrets.get("A"), secrets.get("B")) == ("of-file", "of-environment")


@pytest.mark.case("PR-01")
def test_taken_names_are_gone_for_everybody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMES_TEST_TOKEN", VALUE)
    monkeypatch.setenv("HERMES_TEST_OTHER", "stays")
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    assert getenv(b"HERMES_TEST_TOKEN") == VALUE.encode()
    secrets = ProfileSecrets(environment=os.environ)
    secrets.take_environment(["HERMES_TEST_TOKEN", "HERMES_TEST_ABSENT"])
    assert secrets.get("HERMES_TEST_TOKEN") == VALUE
    assert "HERMES_TEST_TOKEN" in secrets.names()
    assert VALUE in secrets.values()
    assert "HERMES_TEST_TOKEN" not in os.environ
    assert getenv(b"HERMES_TEST_TOKEN") is None
    child = subprocess.run(
        [sys.executable, "-c", "import os; print(sorted(os.environ))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "HERMES_TEST_TOKEN" not in child.stdout
    assert "HERMES_TEST_OTHER" in child.stdout


def test_another_profile_cannot_take_the_environment() -> None:
    with pytest.raises(ValueError, match="does not own"):
        ProfileSecrets(profile="work").take_environment(["HOME"])
