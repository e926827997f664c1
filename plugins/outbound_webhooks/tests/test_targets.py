"""What the settings of a target may say, where it may lead, what a missing secret does."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.config import Declarations, check_profile, parse_document
from hermes_core.profiles import ProfileSecrets
from hermes_core.settings import TableArray
from hermes_outbound_webhooks.addresses import BadAddress, check_address, check_host, check_url
from hermes_outbound_webhooks.client import CheckedResolver, Client
from hermes_outbound_webhooks.targets import SECTION, Target, TargetSettings, make_target

PLAIN = {
    "name": "audit",
    "url": "https://example.org/hook",
    "events": ["on_turn_end"],
    "secret": "env:AUDIT",
}


def read(
    values: Mapping[str, object], secrets: Mapping[str, str] | None = None
) -> tuple[Target | None, str]:
    """The target that these keys make, or what the check of the settings says."""
    import tomli_w

    document = parse_document(
        tomli_w.dumps({"hooks": {"outbound": [dict(values)]}}).encode(), Path("config.toml")
    )
    known = ProfileSecrets({"AUDIT": "s3cret"} if secrets is None else secrets)
    declared = Declarations({}, {}, {SECTION: TableArray(TargetSettings)})
    checked = check_profile(document, "default", declared, known)
    ours = [str(fault) for fault in checked.faults if "hooks" in fault.key]
    if ours:
        return None, "\n".join(ours)
    from hermes_core.config.convert import Converter

    settings = Converter(document, known).section(
        TargetSettings, document.data["hooks"]["outbound"][0], ("hooks", "outbound", 0)
    )
    assert settings is not None
    return make_target(settings, known), ""


LOCAL = [
    "http://localhost/",
    "http://LOCALHOST./",
    "http://x.localhost/",
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0177.0.0.1/",
    "http://[::1]/",
    "http://100.64.0.1/",
    "http://10.0.0.1/",
    "http://172.16.5.4/",
    "http://192.168.1.1/",
    "http://[fd00::1]/",
    "http://１２７.0.0.1/",
    "http://127。0。0。1/",
    "http://ⓛocalhost/",
    "http://[64:ff9b::a00:1]/",
    "http://[2002:a00:1::]/",
]
NEVER = [
    "http://0.0.0.0/",
    "http://0/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://169.254.169.254/",
    "http://169.254.1.1/",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://100.100.100.200/",
    "http://168.63.129.16/",
    "http://[fd00:ec2::254]/",
    "http://[fd00:ec2::23]/",
    "http://[fd20:ce::254]/",
    "http://[fd00:c1::a9fe:a9fe]/",
    "http://[fd00:42::42]/",
    "http://192.0.0.192/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1:a9fe:a9:fe00:808:808]/",
    "http://[::ffff:0:a9fe:a9fe]/",
    "http://[2001:0:a9fe:a9fe::]/",
    "http://169。254。169。254/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://224.0.0.1/",
    "http://[ff02::1]/",
    "http://255.255.255.255/",
    "http://a@127.0.0.1#@b/",
    "http://x:0/",
    "http://x:99999/",
    "http://exa mple.org/",
    "http://example.org/\r\nX: y",
    "http:///x",
    "file:///etc/passwd",
    "gopher://example.org/",
    "ftp://example.org/",
    "example.org",
    "http://./",
    "http://a..b/",
    "http://a*b/",
    "http://ex\u200dample.org\u06dd/",
    f"http://{'a' * 64}.example/",
    "http://⒈.com/",
    "http://example.org\\@127.0.0.1/",
    "https://example.org/" + "x" * 3000,
]


@pytest.mark.case("WH-03")
@pytest.mark.parametrize("url", LOCAL)
def test_local_addresses_are_refused_unless_they_are_asked_for(url: str) -> None:
    _, problem = read({**PLAIN, "url": url})
    assert "private" in problem
    found, problem = read({**PLAIN, "url": url, "allow_private": True})
    assert found is not None, problem


@pytest.mark.case("WH-03")
@pytest.mark.case("WH-18")
@pytest.mark.parametrize("url", NEVER)
def test_some_addresses_are_never_allowed(url: str) -> None:
    for allow_private in (False, True):
        found, _ = read({**PLAIN, "url": url, "allow_private": allow_private})
        assert found is None


@pytest.mark.case("WH-03")
@given(st.ip_addresses())
def test_only_public_addresses_pass(address: Any) -> None:
    try:
        check_address(address, allow_private=False)
    except BadAddress:
        return
    assert address.is_global
    assert not address.is_link_local


@given(st.ip_addresses(v=4))
def test_a_host_is_judged_by_its_number_however_it_is_written(address: Any) -> None:
    def verdict(host: str) -> str:
        try:
            check_host(host, allow_private=True)
        except BadAddress as error:
            return str(error)
        return ""

    number = int(address)
    assert verdict(str(address)) == verdict(str(number)) == verdict(hex(number))


@pytest.mark.case("WH-03")
@pytest.mark.parametrize(
    ("found", "allow_private", "passes"),
    [
        (["93.184.215.14"], False, True),
        (["127.0.0.1"], False, False),
        (["93.184.215.14", "127.0.0.1"], False, False),
        (["127.0.0.1"], True, True),
        (["169.254.169.254"], True, False),
        (["::ffff:127.0.0.1"], True, False),
        (["fe80::1"], True, False),
        ([], True, False),
    ],
)
def test_what_a_name_resolves_to_is_checked_and_used(
    found: list[str], allow_private: bool, passes: bool
) -> None:
    async def lookup(host: str, port: int) -> list[str]:
        return found

    async def main() -> None:
        resolver = CheckedResolver(allow_private=allow_private, lookup=lookup)
        if passes:
            results = await resolver.resolve("example.org", 443)
            assert [result["host"] for result in results] == found
        else:
            with pytest.raises((BadAddress, OSError)):
                await resolver.resolve("example.org", 443)

    asyncio.run(main())


@pytest.mark.case("WH-03")
def test_a_name_that_turns_to_loopback_is_refused_at_the_next_connection(sink: Any) -> None:
    answers = [["127.0.0.1"], ["169.254.169.254"], ["127.0.0.1"]]

    async def lookup(host: str, port: int) -> list[str]:
        return answers.pop(0)

    async def main() -> None:
        url = f"http://hook.example.org:{sink.port}/x/200"
        for allow_private in (True, True, False):
            found, _ = read({**PLAIN, "url": url, "allow_private": allow_private})
            assert found is not None
            client = Client(found, lookup=lookup)
            try:
                outcomes.append(await client.post(b"{}", {}))
            finally:
                await client.close()

    outcomes: list[Any] = []
    asyncio.run(main())
    assert [outcome.state for outcome in outcomes] == ["delivered", "failed", "failed"]
    assert "link-local" in outcomes[1].reason
    assert "private" in outcomes[2].reason
    (arrival,) = sink.rest()
    assert arrival.headers["host"] == f"hook.example.org:{sink.port}"


HANGING = """
import asyncio, socket, threading
from hermes_outbound_webhooks.client import CheckedResolver

looked = []
def hang(*_, **__):
    looked.append(1)
    threading.Event().wait()
socket.getaddrinfo = hang

async def main():
    resolver = CheckedResolver(allow_private=False)
    for _ in range(3):
        try:
            async with asyncio.timeout(0.05):
                await resolver.resolve("example.org", 443)
        except TimeoutError:
            pass
    await resolver.close()
    print(len(looked), end="")

asyncio.run(main())
"""


def test_a_name_server_that_does_not_answer_holds_up_no_exit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=20, check=True
    )
    assert done.stdout == "1", "lookups pile up"


def test_a_name_that_does_not_exist_is_told() -> None:
    async def main() -> None:
        found, _ = read({**PLAIN, "url": "https://no-such-host.invalid/"})
        assert found is not None
        client = Client(found)
        outcome = await client.post(b"{}", {})
        assert (outcome.state, outcome.reason) == ("retry", "the name cannot be resolved")
        await client.close()

    asyncio.run(main())


@pytest.mark.case("WH-18")
def test_an_idn_host_goes_out_as_punycode(sink: Any) -> None:
    async def lookup(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async def main() -> None:
        url = f"http://bücher.example:{sink.port}/x/200"
        found, _ = read({**PLAIN, "url": url, "allow_private": True})
        assert found is not None
        client = Client(found, lookup=lookup)
        await client.post(b"{}", {})
        await client.close()

    asyncio.run(main())
    (arrival,) = sink.rest()
    assert arrival.headers["host"].startswith("xn--bcher-kva.example:")


@pytest.mark.case("WH-09")
@pytest.mark.parametrize(
    ("keys", "secrets", "signing", "said"),
    [
        ({"secret_env": "AUDIT"}, {}, "REFUSED", "AUDIT is not set"),
        ({"secret_env": "AUDIT"}, {"AUDIT": ""}, "REFUSED", "AUDIT is not set"),
        ({"secret_env": "AUDIT"}, {"AUDIT": "  "}, "REFUSED", "empty"),
        ({"secret": "file:/nowhere/at/all"}, {}, "REFUSED", "no such file"),
        ({"secret": "  "}, {}, "REFUSED", "empty"),
        ({"secret_env": "AUDIT"}, {"AUDIT": "abc\n"}, "signed", "white space"),
        ({"secret_env": "AUDIT"}, {"AUDIT": "abc"}, "signed", "timeout 10s"),
        ({"secret": "plain text"}, {}, "signed", "better keep it in secrets.env"),
        ({}, {}, "REFUSED", "there is no secret"),
        ({"allow_unsigned": True}, {}, "UNSIGNED", "timeout"),
        ({"secret_env": "AUDIT", "allow_unsigned": True}, {}, "REFUSED", "AUDIT"),
        (
            {"secret_env": "AUDIT", "previous_secret": "env:OLD"},
            {"AUDIT": "abc"},
            "REFUSED",
            "OLD",
        ),
        (
            {"secret_env": "AUDIT", "headers": {"Authorization": "env:BEARER"}},
            {"AUDIT": "abc"},
            "REFUSED",
            "BEARER",
        ),
    ],
)
def test_without_its_secret_a_target_is_refused_and_never_unsigned(
    keys: dict[str, object], secrets: dict[str, str], signing: str, said: str
) -> None:
    plain = {key: value for key, value in PLAIN.items() if key != "secret"}
    found, problem = read({**plain, **keys}, secrets)
    assert found is not None, problem
    assert found.signing == signing
    assert said in found.line()
    assert "abc" not in found.line() + repr(found)


@pytest.mark.case("WH-09")
def test_two_places_for_one_secret_are_an_error() -> None:
    _, problem = read({**PLAIN, "secret_env": "AUDIT"})
    assert "both secret and secret_env" in problem


@pytest.mark.case("WH-18")
@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"events": ["on_turn_ended"]}, "did you mean 'on_turn_end'"),
        ({"events": ["post_tool_cal"]}, "did you mean 'post_tool_call'"),
        ({"events": ["on_turn_end\r\nX: y"]}, "there is no event"),
        ({"events": ["connect"]}, "there is no event"),
        ({"events": []}, ""),
        ({"events": ["post_tool_call", "on_tool_call_end"]}, "twice"),
        ({"events": ["on_tool_call_end"], "matcher": "("}, "regular expression"),
        ({"matcher": "grep"}, "no event of a tool"),
        ({"timeout": "61s"}, "at most 1m"),
        ({"timeout": "500ms"}, "at least 1s"),
        ({"max_retries": -1}, ""),
        ({"headers": {"X\r\nY": "z"}}, "cannot be set"),
        ({"headers": {"Content-Length": "0"}}, "cannot be set"),
        ({"headers": {"X-Hermes-Signature-256": "sha256="}}, "cannot be set"),
        ({"headers": {"Webhook-Id": "1"}}, "cannot be set"),
        ({"headers": {"Héader": "1"}}, "cannot be set"),
        ({"headers": {"Expect": "100-continue"}}, "cannot be set"),
        ({"headers": {"Content-Encoding": "gzip"}}, "cannot be set"),
        ({"headers": {"Proxy-Authorization": "Basic YTpi"}}, "cannot be set"),
        ({"headers": {"TE": "trailers"}}, "cannot be set"),
        ({"headers": {"X-Team": "a", "x-team": "b"}}, "twice"),
        (
            {"url": "https://a:b@example.org/", "headers": {"authorization": "Bearer x"}},
            "both a header Authorization and a user",
        ),
        ({"name": "a b"}, ""),
        ({"proxy": "socks5://x/"}, "https:// or http://"),
    ],
)
def test_what_cannot_be_is_an_error(keys: dict[str, object], problem: str) -> None:
    found, said = read({**PLAIN, **keys})
    assert found is None
    assert problem in said


@pytest.mark.case("WH-18")
@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "nul\0", "ключ", "x" * 100_000])
def test_a_header_value_that_cannot_be_sent_refuses_the_target(value: str) -> None:
    keys = {"headers": {"X-Team": "env:TEAM"}}
    found, _ = read({**PLAIN, **keys}, {"AUDIT": "abc", "TEAM": value})
    assert found is not None
    assert found.signing == "REFUSED"


def test_a_matcher_has_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    keys = {"events": ["on_tool_call_end"], "matcher": "(a|aa)+b|read_.*"}
    found, problem = read({**PLAIN, **keys})
    assert found is not None, problem
    assert found.wants("on_tool_call_end", "read_file")
    assert not found.wants("on_tool_call_end", "unread_file")
    assert not caplog.text
    assert not found.wants("on_tool_call_end", "a" * 200)
    assert "the matcher takes too long" in caplog.text


def test_a_url_shows_without_what_may_be_secret() -> None:
    url = "https://user:pass@example.org:8443/a/token?key=value"
    assert str(check_url(url, allow_private=False)) == "https://example.org:8443"
