from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import hermes_outbound_webhooks
from hermes_core import Text, ToolEnd, ToolStart, Turn
from hermes_core.cli.doctor import doctor
from hermes_core.cli.frame import hermes
from hermes_core.cli.hooks import hooks
from hermes_core.cli.invocation import Invocation
from hermes_core.messages import AgentEvent
from hermes_core.redaction import Redactor
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from hermes_outbound_webhooks.cli import webhooks
from hermes_outbound_webhooks.signing import sign

Target = Callable[..., str]
SECRET = "correct horse battery staple"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HERMES_HOME", str(tmp_path))
    return tmp_path


def invoke(command: Any, *arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(command, arguments, obj=Invocation(), **options)


def test_list_shows_each_target_as_it_is(home: Path, target: Target) -> None:
    config = target(secret="env:AUDIT", events=["post_tool_call"], matcher="grep", timeout="5s")
    config += target(name="open", secret=None, allow_unsigned=True)
    config += target(name="broken", secret="env:NOWHERE")
    (home / "config.toml").write_text(config)
    (home / "secrets.env").write_text(f"AUDIT='{SECRET}'\n")
    (home / "secrets.env").chmod(0o600)
    result = invoke(webhooks, "list", "--json")
    assert result.exit_code == 0, result.output
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert {name: row["signing"] for name, row in rows.items()} == {
        "audit": "signed",
        "open": "UNSIGNED",
        "broken": "REFUSED",
    }
    assert (rows["audit"]["matcher"], rows["audit"]["timeout"]) == ("grep", 5.0)
    plain = invoke(webhooks, "list").stdout
    assert "UNSIGNED" in plain
    assert "NOWHERE" in plain
    listed = invoke(hooks, "list", "on_tool_call_end")
    assert "audit: signed; http://127.0.0.1" in listed.stdout
    assert "timeout 5s; matcher grep" in listed.stdout
    assert "open: UNSIGNED" in invoke(hooks, "list").stdout


def test_doctor_names_a_target_that_nothing_is_sent_to(home: Path, target: Target) -> None:
    config = target() + target(name="broken", secret="env:NOWHERE")
    (home / "config.toml").write_text(config)
    result = invoke(doctor, "--json")
    found = {row["check"]: row for row in json.loads(result.stdout)}
    broken = found["webhook broken"]
    assert broken["verdict"] == "failed"
    assert "NOWHERE" in broken["text"]
    assert found["webhook audit"]["verdict"] == "warning", "it is http"


def test_test_sends_one_that_verify_accepts(
    home: Path, sink: Any, target: Target, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (home / "config.toml").write_text(target())
    result = invoke(webhooks, "test", "audit", "--json")
    assert result.exit_code == 0, result.output
    row = json.loads(result.stdout)
    (arrival,) = sink.rest()
    assert (row["id"], row["status"]) == (arrival.document["delivery_id"], 200)
    body = tmp_path_factory.mktemp("body") / "body.json"
    body.write_bytes(arrival.body)
    lines = [
        part
        for name in ("webhook-id", "webhook-timestamp", "webhook-signature")
        for part in ("-H", f"{name}: {arrival.headers[name]}")
    ]
    assert invoke(webhooks, "verify", "--target", "audit", *lines, str(body)).exit_code == 0
    env = {"S": SECRET, "T": "another"}
    arguments = ("verify", "--secret-env", "S", *lines)
    assert invoke(webhooks, *arguments, input=arrival.body, env=env).exit_code == 0
    for worse in (
        ("verify", "--secret-env", "T", *lines),
        ("verify", "--secret-env", "ABSENT", *lines),
        ("verify", "--secret-env", "S"),
    ):
        assert invoke(webhooks, *worse, input=arrival.body, env=env).exit_code == 1
    absent = invoke(webhooks, "verify", "--secret-env", "ABSENT", *lines, input=b"{}", env=env)
    assert "ABSENT is set neither" in str(absent.exception)
    (home / "secrets.env").write_text(f"KEPT='{SECRET}'\n")
    (home / "secrets.env").chmod(0o600)
    kept = ("verify", "--secret-env", "KEPT", *lines)
    assert invoke(webhooks, *kept, input=arrival.body, env=env).exit_code == 0
    (home / "config.toml").write_text(target(secret="env:NOWHERE"))
    refused = invoke(webhooks, "verify", "--target", "audit", *lines, input=arrival.body)
    assert "NOWHERE" in str(refused.exception)
    old = sign(b"{}", delivery_id="1", timestamp=1_700_000_000, secrets=[SECRET])
    lines = [part for name, value in old.items() for part in ("-H", f"{name}: {value}")]
    assert invoke(webhooks, "verify", "--secret-env", "S", *lines, input=b"{}", env=env).exit_code
    any_time = ("verify", "--secret-env", "S", "--any-time", *lines)
    assert invoke(webhooks, *any_time, input=b"{}", env=env).exit_code == 0


@pytest.mark.parametrize(
    ("path", "keys", "said"),
    [
        ("/hook/500", {}, "status 500"),
        ("/hook/200", {"secret": "env:NOWHERE"}, "is refused"),
        ("/hook/302", {}, "redirect"),
    ],
)
def test_a_test_that_fails_says_why(
    home: Path, target: Target, path: str, keys: dict[str, object], said: str
) -> None:
    (home / "config.toml").write_text(target(path, **keys))
    result = invoke(webhooks, "test", "audit")
    assert result.exit_code == 1
    assert said in result.output + str(result.exception)


def test_the_settings_are_shown_while_a_gateway_does_not_know_the_plugin(
    home: Path, target: Target
) -> None:
    async def main() -> None:
        async with gateway(home, ScriptedPlatform(), ScriptedAgent()):
            (home / "config.toml").write_text(target())
            for command, said in (("list", "audit"), ("deliveries", "There are none")):
                shown = await asyncio.to_thread(invoke, webhooks, command)
                assert shown.exit_code == 0, shown.exception
                assert said in shown.stdout
                assert "does not tell" in shown.stderr

    asyncio.run(main())


def test_deliveries_of_durable_targets_are_listed_without_a_gateway(
    home: Path, sink: Any, target: Target
) -> None:
    config = target("/hook/400", durable=True)

    async def main() -> None:
        platform = ScriptedPlatform()
        plugins = (platform, ScriptedAgent(), hermes_outbound_webhooks)
        async with gateway(home, *plugins, config=config) as running:
            await platform.say("hello")
            services = running.profiles["default"].services
            wanted = {"do": "deliveries", "failed": True}
            while not (await services.request("webhooks", wanted))["deliveries"]:
                pass
            listed = await asyncio.to_thread(invoke, webhooks, "deliveries", "--failed")
            assert "status 400" in listed.stdout
            (row,) = json.loads(
                (await asyncio.to_thread(invoke, webhooks, "deliveries", "--json")).stdout
            )
            done = await asyncio.to_thread(invoke, webhooks, "replay", row["id"])
            assert "waits for audit again" in done.stdout

    asyncio.run(main())
    rows = json.loads(invoke(webhooks, "deliveries", "--json").stdout)
    assert [row["target"] for row in rows] == ["audit"]
    assert "no gateway is running" in str(invoke(webhooks, "replay", "x").exception)


async def _leak(turn: Turn) -> AsyncIterator[AgentEvent]:
    yield ToolStart(call_id="1", name="http", input={"authorization": "s3cr3t-of-the-profile"})
    yield ToolEnd(call_id="1", name="http", output="done")
    yield Text("done")


@pytest.mark.case("WH-16")
def test_no_secret_shows_anywhere(
    home: Path, sink: Any, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    hidden = ("url-pass", "url-token", "s3cr3t-of-the-profile", "header-value", SECRET)
    url = sink.url("/hook/500?token=url-token").replace("://", "://user:url-pass@")
    config = target(
        url=url,
        durable=True,
        events=["on_tool_call_end", "on_turn_end"],
        headers={"X-Key": "env:KEY"},
    )
    config += target(name="dead", url="http://user:url-pass@127.0.0.1:1/?token=url-token")
    (home / "secrets.env").write_text("OTHER=s3cr3t-of-the-profile\nKEY=header-value\n")
    (home / "secrets.env").chmod(0o600)

    async def main() -> list[str]:
        platform = ScriptedPlatform()
        plugins = (platform, ScriptedAgent(_leak), hermes_outbound_webhooks)
        async with gateway(home, *plugins, config=config) as running:
            await platform.say("hello")
            await sink.next()
            found = [json.dumps(running.profiles["default"].status())]
            for request in ({"do": "status"}, {"do": "deliveries"}):
                services = running.profiles["default"].services
                found.append(json.dumps(dict(await services.request("webhooks", request))))
            return found

    shown = asyncio.run(main())
    for arguments in (("list",), ("list", "--json"), ("deliveries",), ("test", "audit")):
        result = invoke(webhooks, *arguments)
        shown += [result.output, str(result.exception)]
    shown.append(invoke(hooks, "list").output)
    shown.append(caplog.text)
    with sqlite3.connect(home / "state.db") as database:
        shown += [
            str(row) for row in database.execute("SELECT reason, event FROM webhook_delivery")
        ]
    database.close()
    for text in shown:
        for secret in hidden:
            assert secret not in text
    assert Redactor(hidden)(sink.arrivals[0].body.decode()) == sink.arrivals[0].body.decode()


def test_the_plugin_is_light_until_it_runs() -> None:
    code = (
        "import hermes_outbound_webhooks as m, sys; m.settings(); m.models(); m.services();"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"aiohttp", "yarl", "asyncio", "ssl", "peewee"} & set(done.stdout.split())
    assert hermes.name == "hermes"
