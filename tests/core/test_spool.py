"""Files that an agent attaches: which are taken, and what becomes of the copies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hermes_core import AgentEvent, Attach, OutcomeUnknown, Text, Turn
from hermes_core.testing import After, ScriptedAgent, ScriptedPlatform, gateway
from tests.core.support import until


def run(directory: Path, attach: list[Attach], text: str = "here", **platform: int) -> list[str]:
    """What people see of one answer: its text, then `file NAME: CONTENT` for each file."""

    async def behave(turn: Turn) -> AsyncIterator[AgentEvent]:
        if text:
            yield Text(text)
        for wanted in attach:
            yield wanted

    async def talk() -> list[str]:
        network = ScriptedPlatform(max_attachment=platform.get("limit", 1000))
        async with gateway(directory, network, ScriptedAgent(behave)):
            await network.say("please")
            message = (await network.next_sent()).message
            seen = [message.text]
            files = message.attachments
            return [*seen, *(f"file {f.name}: {network.files[f.path].decode()}" for f in files)]

    return asyncio.run(talk())


def own_file(directory: Path, name: str = "a.txt", content: bytes = b"content") -> Path:
    path = directory / "files" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_file_of_the_profile_is_sent_and_its_copy_goes(tmp_path: Path) -> None:
    path = own_file(tmp_path)
    assert run(tmp_path, [Attach(path=str(path))]) == ["here", "file a.txt: content"]
    assert list((tmp_path / "spool").iterdir()) == []
    assert path.read_bytes() == b"content"


def test_an_answer_may_be_a_file_alone(tmp_path: Path) -> None:
    path = own_file(tmp_path)
    assert run(tmp_path, [Attach(path=str(path))], text="") == ["", "file a.txt: content"]


def test_a_file_comes_also_with_an_answer_that_was_shown_before(tmp_path: Path) -> None:
    path = own_file(tmp_path)
    shown = asyncio.Event()

    async def behave(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Text("he")
        await shown.wait()
        yield Text("re")
        yield Attach(path=str(path))

    async def talk() -> None:
        network = ScriptedPlatform(edit=True, max_attachment=1000)
        async with asyncio.timeout(20), gateway(tmp_path, network, ScriptedAgent(behave)):
            await network.say("please")
            await until(lambda: bool(network.sent))  # the preview
            shown.set()
            await until(lambda: any(sent.message.attachments for sent in network.sent))
            assert network.texts() == ["here", ""]
            assert network.sent[-1].call == "send"
            assert [file.name for file in network.sent[-1].message.attachments] == ["a.txt"]

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda home: home / "files" / "missing.txt", "there is no such file"),
        (lambda home: home / "config.toml", "not in a directory that files may be sent from"),
        (lambda home: own_file(home, content=b"x" * 1001), "larger than"),
        (lambda home: own_file(home).parent, "not a regular file"),
    ],
)
@pytest.mark.case("DL-15")
def test_what_is_not_sent_is_said(tmp_path: Path, make: object, why: str) -> None:
    assert callable(make)
    (text,) = run(tmp_path, [Attach(path=str(make(tmp_path)))])
    assert text.startswith("here\n\n[file not sent: ")
    assert why in text


@pytest.mark.case("DL-15")
def test_an_answer_of_missing_files_alone_is_not_nothing(tmp_path: Path) -> None:
    (text,) = run(tmp_path, [Attach(path="/nowhere/a b.png")], text="")
    assert text == "[file not sent: a b.png: there is no such file]"


def test_a_link_out_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "config.toml"
    link = own_file(tmp_path).with_name("link.txt")
    link.symlink_to(secret)
    (text,) = run(tmp_path, [Attach(path=str(link))])
    assert "not in a directory that files may be sent from" in text


def test_a_platform_without_files_says_so(tmp_path: Path) -> None:
    path = own_file(tmp_path)
    (text,) = run(tmp_path, [Attach(path=str(path), name="a.txt")], limit=0)
    assert text == "here\n\n[file not sent: a.txt: no files can be sent here]"


def test_the_copy_is_sent_although_the_file_changed(tmp_path: Path) -> None:
    path = own_file(tmp_path)

    async def behave(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Attach(path=str(path))
        yield Text("here")

    async def talk() -> bytes:
        network = ScriptedPlatform(max_attachment=1000, idempotent=True)
        network.results.append(OutcomeUnknown("once"))
        network.results.append(held := After(asyncio.Event()))
        async with gateway(tmp_path, network, ScriptedAgent(behave)):
            await network.say("please")
            await held.begun.wait()
            path.write_bytes(b"changed")
            held.event.set()
            sent = await network.next_sent()
            return network.files[sent.message.attachments[0].path]

    assert asyncio.run(talk()) == b"content"


def test_a_directory_that_is_taken_out_of_the_settings_is_closed_at_once(tmp_path: Path) -> None:
    shared, home = tmp_path / "shared", tmp_path / "home"
    shared.mkdir()
    (shared / "a.txt").write_bytes(b"content")
    agent = '[agent]\nuse = "scripted"\n'

    async def behave(turn: Turn) -> AsyncIterator[AgentEvent]:
        yield Attach(path=str(shared / "a.txt"))
        yield Text("here")

    async def talk() -> None:
        network = ScriptedPlatform(max_attachment=1000)
        config = f'{agent}send_files_from = ["{shared}"]\n'
        async with gateway(home, network, ScriptedAgent(behave), config=config) as running:
            await network.say("please")
            assert (await network.next_sent()).message.attachments
            (home / "config.toml").write_text(agent)
            profile = running.profiles["default"]
            await until(lambda: profile.settings.agent.send_files_from == ())
            await network.say("please")
            assert "not in a directory that files may be sent from" in await network.next_text()

    asyncio.run(talk())
