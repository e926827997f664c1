"""`hermes sessions search`: what was said is found, whether a gateway runs or not."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hermes_core.store import search
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from tests.cli.rows import rows_in, run

Hermes = Callable[..., "subprocess.CompletedProcess[str]"]


def found(hermes: Hermes, *words: str) -> list[dict[str, Any]]:
    result = hermes("sessions", "search", "--json", *words)
    assert result.returncode == 0, result.stderr
    hits: list[dict[str, Any]] = json.loads(result.stdout)
    return hits


def test_what_was_said_is_found_while_a_gateway_runs(tmp_path: Path, hermes: Hermes) -> None:
    async def main() -> None:
        platform = ScriptedPlatform()
        async with gateway(tmp_path / "home", platform, ScriptedAgent()) as running:
            await platform.say("the needle")
            await platform.next_text()
            early = await asyncio.to_thread(found, hermes, "needle")
            await search.catch_up(running.profiles["default"].store)
            assert await asyncio.to_thread(found, hermes, "needle") == early
            assert [(hit["role"], hit["sender"]) for hit in early] == [
                ("assistant", ""),
                ("user", "U1"),
            ]
            await platform.say("/undo")
            await platform.next_text()
            assert await asyncio.to_thread(found, hermes, "needle") == []

    run(main())


def test_people_see_the_words_and_where_they_are(tmp_path: Path, hermes: Hermes) -> None:
    nothing = "Nothing that was said has these words.\n"
    assert hermes("sessions", "search", "needle").stdout == nothing
    with rows_in(tmp_path / "home" / "state.db") as rows:
        rows.arrive("?", event="e1")
        taken = rows.take()
        rows.answer(taken, "hay " * 40 + "the needle\x1b[31m\nis here")
    text = hermes("sessions", "search", "Needle").stdout
    assert taken.session_id in text
    assert "the [needle]" in text
    assert "\x1b" not in text
    assert hermes("sessions", "search", "thread").stdout == nothing
    assert found(hermes, '"', "AND", "--", "needle)") == []


def test_without_words_it_is_wrong_usage(hermes: Hermes) -> None:
    assert hermes("sessions", "search").returncode == 2
