"""Settings files that are broken, half written, edited while messages flow."""

from __future__ import annotations

import time

import pytest

from tests.e2e.stage import SETTINGS, Stage, until

RELOADED = "the settings changed: apply: sessions.max_waiting"


@pytest.mark.case("CF-02")
def test_a_broken_file_is_no_start_and_stays_as_it_is(stage: Stage) -> None:
    text = f'{SETTINGS}[sessions]\nbusy = "queue\nmax_waiting = 5\n'
    stage.settings(text)
    path = stage.home / "config.toml"
    for command in (("run",), ("run", "--replace"), ("config", "check")):
        began = time.monotonic()
        refused = stage.hermes(*command)
        assert time.monotonic() - began < 5
        assert refused.returncode == 2
        assert f"{path}:4" in refused.stdout + refused.stderr
        assert "Traceback" not in refused.stderr
    assert path.read_text() == text
    assert not (stage.scene / "sent").exists()
    assert not (stage.home / "state.db").exists()


@pytest.mark.case("CF-03")
@pytest.mark.case("CF-05")
@pytest.mark.case("CF-17")
def test_edits_by_another_process_while_messages_flow(stage: Stage) -> None:
    (stage.scene / "strict").touch()
    stage.settings(f'{SETTINGS}[platforms.wire]\nallowed_users = ["u1"]\n')
    gateway = stage.run().ready()
    stage.say_all(["gate long", "behind"])
    stage.began("gate long")

    edited = stage.hermes("config", "set", "sessions.max_waiting", "7")
    assert edited.returncode == 0, edited.stderr
    gateway.logged(RELOADED)
    good = (stage.home / "config.toml").read_text()

    for bad in (good + "[sessions\n", good.replace("7", '"many"')):
        stage.settings(bad)
        until(lambda: stage.profile()["settings"]["refused"])
        assert "degraded: the settings are refused" in stage.hermes("status").stdout
        assert stage.say(f"during {len(bad)}", chat="c2")["type"] == "Accepted"
        stage.settings(good)
        until(lambda: not stage.profile()["settings"]["refused"])

    lines = good.replace("7", "8").splitlines(keepends=True)
    with (stage.home / "config.toml").open("w") as file:
        for number, line in enumerate(lines):
            file.write(line)
            file.flush()
            assert stage.say(f"line {number}", chat="c3")["type"] == "Accepted"
            assert stage.say("let me in", chat="c4", user="stranger")["type"] == "Denied"
    gateway.logged(RELOADED, 2)
    stage.open_gate("long")
    stage.answered("gate long", "behind", *(f"line {number}" for number in range(len(lines))))
    assert stage.answers("c1") == ["gate long", "behind"]
    assert stage.runs().count(("gate long", 1)) == 1
    assert gateway.log.count(RELOADED) == 2
    assert gateway.log.count("connected (profile=default account=wire)") == 1
    assert gateway.stop() == 0
