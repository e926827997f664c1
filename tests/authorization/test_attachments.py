"""Files that people send: fetched for those with a grant alone, bounded, and never at the cost of
the message."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from hermes_core import Accepted, Attachment, Denied, Turn
from hermes_core import attachments as module
from hermes_core.gateway import hosted
from hermes_core.home import Home
from hermes_core.store import open_read_only
from hermes_core.store.database import connection_of
from tests.core.support import until
from tests.profiles.wire import Brain, Wire, wire_section, write_profile


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def refs(*names: str, size: int | None = None) -> tuple[Attachment, ...]:
    return tuple(Attachment(ref=name, name=name, size=size) for name in names)


class Reader:
    """An agent that reads what it is given."""

    def __init__(self) -> None:
        self.files: list[Attachment] = []

    async def __call__(self, turn: Turn) -> str:
        self.files = [file for message in turn.messages for file in message.attachments]
        return "; ".join(map(_content, self.files))


def _content(file: Attachment) -> str:
    return Path(file.path).read_text() if file.path else file.problem


@pytest.fixture
def wire() -> Wire:
    wire = Wire()
    wire.files = {
        "a.TXT": b"content of a",
        "copy/../of a.txt": b"content of a",
        "odd\x00name.x y": b"odd",
        "gone": ConnectionError("secret detail"),
        "large": b"x" * 1001,
    }
    return wire


def one_answer(home: Home, wire: Wire, reader: Reader, *files: Attachment) -> str:
    async def main() -> None:
        write_profile(home, "default", wire_section("1"), "WIRE_TOKEN=100-secret\n")
        async with hosted(home, extra=[wire, Brain(reader)], installed=False):
            await wire.until(lambda wire: bool(wire.contexts))
            assert isinstance(await wire.say("look", attachments=files), Accepted)
            await wire.until(lambda wire: bool(wire.sent))

    run(main())
    return wire.sent[0][2]


def test_an_agent_reads_the_files_by_path(home: Home, wire: Wire) -> None:
    reader = Reader()
    files = refs("a.TXT", "copy/../of a.txt", "odd\x00name.x y")
    assert one_answer(home, wire, reader, *files) == "content of a; content of a; odd"
    directory = home.state_dir() / "attachments"
    first, second, third = (Path(file.path) for file in reader.files)
    assert first == second == directory / f"{hashlib.sha256(b'content of a').hexdigest()}.txt"
    assert third.suffix == ""
    assert sorted(directory.iterdir()) == sorted({first, third})
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert [file.size for file in reader.files] == [12, 12, 3]
    assert wire.fetched == [file.ref for file in files]


def test_what_cannot_be_had_is_a_note_and_not_the_end_of_the_message(
    home: Home, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    monkeypatch.setattr(module, "MAX_FILES", 4)
    files = (*refs("gone", "large"), *refs("big", size=1001), *refs("a.TXT", "one too many"))
    answer = one_answer(home, wire, Reader(), *files)
    notes = answer.split("; ")
    assert notes[3] == "content of a"
    assert [note for note in notes if not note] == []
    assert "secret detail" not in answer
    assert "big" not in wire.fetched
    assert "one too many" not in wire.fetched
    assert len(list((home.state_dir() / "attachments").iterdir())) == 1


def test_nothing_is_fetched_for_strangers_and_nothing_before_the_commit(
    home: Home, wire: Wire
) -> None:
    async def main() -> None:
        write_profile(home, "default", wire_section("1"), "WIRE_TOKEN=100-secret\n")
        async with hosted(home, extra=[wire, Brain(Reader())], installed=False):
            await wire.until(lambda wire: bool(wire.contexts))
            for said in ({"user": "9"}, {"kind": "group", "mentions_me": False}):
                outcome = await wire.say(attachments=refs("a.TXT"), **said)
                assert isinstance(outcome, Denied)
            assert wire.fetched == []

    run(main())
    assert not (home.state_dir() / "attachments").exists()
    database = open_read_only(home.database())
    assert connection_of(database).execute("SELECT COUNT(*) FROM inbox").fetchone() == (0,)
    database.close()


def test_the_directory_keeps_its_quota(
    home: Home, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "QUOTA", 25)
    wire.files = {f"file {number}": b"%010d" % number for number in range(5)}

    async def main() -> None:
        write_profile(home, "default", wire_section("1"), "WIRE_TOKEN=100-secret\n")
        async with hosted(home, extra=[wire, Brain(Reader())], installed=False):
            await wire.until(lambda wire: bool(wire.contexts))
            for number in range(5):
                await wire.say(attachments=refs(f"file {number}"))
                await wire.until(lambda wire, sent=number: len(wire.sent) > sent)  # type: ignore[misc]

    run(main())
    assert [text for _, _, text in wire.sent] == [f"{number:010}" for number in range(5)]
    kept = {path.read_bytes() for path in (home.state_dir() / "attachments").iterdir()}
    assert kept == {b"0000000003", b"0000000004"}


def test_a_file_that_is_gone_when_its_turn_comes_is_fetched_again(home: Home, wire: Wire) -> None:
    """The message waits for longer than files are kept."""
    reader, go = Reader(), asyncio.Event()

    async def held(turn: Turn) -> str:
        await go.wait()
        return await reader(turn)

    async def main() -> None:
        write_profile(home, "default", wire_section("1"), "WIRE_TOKEN=100-secret\n")
        async with hosted(home, extra=[wire, Brain(held)], installed=False) as running:
            await wire.until(lambda wire: bool(wire.contexts))
            await wire.say("first")
            await wire.say("look", attachments=refs("a.TXT"))
            directory = home.state_dir() / "attachments"
            await until(lambda: any(file.suffix == ".txt" for file in _listed(directory)))
            for file in directory.iterdir():
                os.utime(file, (0, 0))
            await running.profiles["default"].retention.erase()
            assert list(directory.iterdir()) == []
            go.set()
            await wire.until(lambda wire: len(wire.sent) == 2)

    run(main())
    assert wire.sent[1][2] == "content of a"


def _listed(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []
