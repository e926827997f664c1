"""`hermes telegram check` as a person calls it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes_telegram.testing import TOKEN, BotApi, Drop, Fault, Page, flood

LIMIT = 60.0
Finding = dict[str, str]


def configure(home: Path, url: str, settings: str = "") -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        f'[platforms.telegram]\ntoken = "env:BOT"\nbase_url = "{url}"\n{settings}\n'
    )


async def hermes(home: Path, *arguments: str, token: str = TOKEN) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "hermes_core.cli", "telegram", *arguments),
        env={**os.environ, "HERMES_HOME": str(home), "BOT": token},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def check(
    path: Path,
    prepare: Callable[[BotApi], object] = lambda _: None,
    *,
    settings: str = 'allowed_users = ["1"]',
    token: str = TOKEN,
) -> tuple[int, dict[str, Finding]]:
    """The exit code, and the findings by what they are about."""

    async def main() -> tuple[int, str, str]:
        async with asyncio.timeout(LIMIT), BotApi() as api:
            prepare(api)
            configure(path / "home", api.url, settings)
            done = await hermes(path / "home", "check", "--json", token=token)
            assert api.of("getUpdates", "deleteWebhook", "setWebhook") == []
            return done

    code, out, err = asyncio.run(main())
    assert token.partition(":")[2] not in out + err
    return code, {finding["about"]: finding for finding in json.loads(out)}


def test_a_bot_that_is_ready(tmp_path: Path) -> None:
    def prepare(api: BotApi) -> None:
        api.me["can_read_all_group_messages"] = True

    code, found = check(tmp_path, prepare)
    assert code == 0
    assert {about: finding["verdict"] for about, finding in found.items()} == {
        "access": "ok",
        "token": "ok",
        "privacy": "ok",
        "webhook": "ok",
        "waiting": "ok",
    }
    assert "@hermes_test_bot" in found["token"]["text"]


def test_what_may_surprise_is_noted(tmp_path: Path) -> None:
    def prepare(api: BotApi) -> None:
        api.me["can_join_groups"] = False
        api.webhook |= {"url": "https://old.example/hook/secret", "pending_update_count": 3}

    code, found = check(tmp_path, prepare, settings="allow_all = true")
    assert code == 0
    assert {about for about, finding in found.items() if finding["verdict"] == "note"} == {
        "access",
        "groups",
        "privacy",
        "webhook",
    }
    assert "old.example" in found["webhook"]["text"]
    assert "secret" not in found["webhook"]["text"]
    assert found["waiting"]["text"] == "3 updates"


def test_a_wrong_token_is_a_fault(tmp_path: Path) -> None:
    code, found = check(tmp_path, token="100:wrong")
    assert code == 1
    assert found["token"]["verdict"] == "fault"


FAULTS: list[tuple[str, Fault, str]] = [
    ("getMe", Page(502), "502"),
    ("getMe", flood(8), "rate limited for 8 s"),
    ("getMe", Page(200, b'{"ok":true,"result":{"id":1}}'), "shape"),
    ("getMe", Page(200, b'{"ok":true,"result":7}'), "shape"),
    ("getMe", Page(200, b'{"ok":true,"result":[]}'), "shape"),
    ("getWebhookInfo", Drop(), "no answer"),
]


@pytest.mark.parametrize(("method", "fault", "text"), FAULTS)
def test_a_server_that_has_troubles_is_no_wrong_token(
    tmp_path: Path, method: str, fault: Fault, text: str
) -> None:
    code, found = check(tmp_path, lambda api: api.faults[method].append(fault))
    assert code == 1
    assert found["server"]["verdict"] == "fault"
    assert text in found["server"]["text"]


@pytest.mark.parametrize(("waiting", "verdict"), [(0, "note"), (3, "fault")])
def test_an_old_failure_of_a_webhook_is_no_fault_once_all_is_delivered(
    tmp_path: Path, waiting: int, verdict: str
) -> None:
    def prepare(api: BotApi) -> None:
        api.webhook |= {"url": "https://e.org/x", "pending_update_count": waiting}
        api.webhook |= {"last_error_message": "Connection refused", "last_error_date": 1}

    settings = 'allowed_users = ["1"]\nwebhook_url = "https://e.org/x"'
    _, found = check(tmp_path, prepare, settings=settings)
    assert found["webhook"]["verdict"] == verdict
    assert "refused" in found["webhook"]["text"]


def test_people_get_lines_and_an_account_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT), BotApi() as api:
            home = tmp_path / "home"
            configure(home, api.url)
            code, out, _ = await hermes(home, "check")
            assert code == 0
            assert "valid: @hermes_test_bot" in out
            code, _, err = await hermes(home, "check", "--account", "ops")
            assert code == 2
            assert "no such account" in err

    asyncio.run(main())
