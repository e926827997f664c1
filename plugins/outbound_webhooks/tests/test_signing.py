from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_outbound_webhooks.signing import sign, verify

SECRET = "correct horse battery staple"
OLD = "whsec_" + base64.b64encode(b"twenty-four bytes of key").decode()
BODY = '{"text": "é \\u0000"}'.encode()
NOW = 1_700_000_000
RECEIVERS = Path(__file__).parent.parent / "receivers"


def signed(body: bytes = BODY, at: float = NOW, *secrets: str) -> dict[str, str]:
    return sign(body, delivery_id="0" * 32, timestamp=int(at), secrets=secrets or (SECRET,))


def ours_only(headers: dict[str, str]) -> dict[str, str]:
    return {"X-Hermes-Signature-256": headers["X-Hermes-Signature-256"]}


@given(st.binary(max_size=300), st.text(min_size=1, max_size=50))
def test_what_is_signed_verifies_and_nothing_else_does(body: bytes, secret: str) -> None:
    try:
        secret.encode()
    except UnicodeEncodeError:
        return
    headers = signed(body, NOW, secret)
    for some in (headers, ours_only(headers)):
        assert verify(body, some, [secret], now=NOW)
        assert not verify(body + b" ", some, [secret], now=NOW)
        assert not verify(body, some, [secret + "x"], now=NOW)


def test_both_secrets_are_valid_during_a_rotation() -> None:
    headers = signed(BODY, NOW, SECRET, OLD)
    for some in (headers, ours_only(headers)):
        for secret in (SECRET, OLD):
            assert verify(BODY, some, [secret], now=NOW)
            assert verify(BODY, some, ["another", secret], now=NOW)
        assert not verify(BODY, some, ["another"], now=NOW)


def test_a_replay_is_refused_to_either_side() -> None:
    for age in (-299, 0, 299):
        assert verify(BODY, signed(), [SECRET], now=NOW + age)
    for age in (-301, 301, 10**9):
        assert not verify(BODY, signed(), [SECRET], now=NOW + age)


@pytest.mark.case("WH-12")
def test_hostile_headers_prove_nothing() -> None:
    good = ours_only(signed())["X-Hermes-Signature-256"]
    for bad in (
        "",
        "sha256=é",
        "sha256=",
        good[:-1],
        good + "0",
        good.replace("sha256", "sha1"),
        good.upper(),
        "sha256=" + "a" * 1_000_000,
        f"{good}" + "," * 5000,
        "\ud800",
    ):
        assert not verify(BODY, {"X-Hermes-Signature-256": bad}, [SECRET])
    again = json.dumps(json.loads(BODY)).encode()
    assert not verify(again, {"X-Hermes-Signature-256": good}, [SECRET])
    assert not verify(BODY, {}, [SECRET])
    assert verify(BODY, {"x-hermes-signature-256": good}, [SECRET])


@pytest.mark.case("WH-12")
def test_without_a_secret_everything_is_refused() -> None:
    for secrets in ([], [""], ["", ""]):
        assert not verify(BODY, sign(BODY, delivery_id="1", timestamp=NOW, secrets=[""]), secrets)


@pytest.mark.case("WH-12")
@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": ""},
        {"webhook-id": "other"},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "1e9"},
        {"webhook-timestamp": "\u0661"},
        {"webhook-timestamp": "9" * 400},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,é"},
        {"webhook-signature": "v1a,AAAA"},
    ],
)
def test_hostile_standard_headers_prove_nothing(change: dict[str, str]) -> None:
    assert not verify(BODY, {**signed(), **change}, [SECRET], now=NOW)
    assert not verify(BODY, {**signed(), **change}, [SECRET])


@pytest.mark.case("WH-10")
def test_the_standard_webhooks_library_verifies() -> None:
    standardwebhooks = pytest.importorskip("standardwebhooks")
    for secret, encoded in (
        (OLD, OLD),
        (SECRET, "whsec_" + base64.b64encode(SECRET.encode()).decode()),
    ):
        headers = signed(BODY, time.time(), secret)
        standardwebhooks.Webhook(encoded).verify(BODY, headers)
        with pytest.raises(standardwebhooks.WebhookVerificationError):
            standardwebhooks.Webhook(encoded).verify(BODY + b" ", headers)


@pytest.mark.case("WH-10")
def test_openssl_computes_the_same() -> None:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl")
    done = subprocess.run(
        ["openssl", "dgst", "-sha256", "-hmac", SECRET], input=BODY, capture_output=True, check=True
    )
    digest = done.stdout.decode().rsplit("= ", 1)[1].strip()
    assert signed()["X-Hermes-Signature-256"] == f"sha256={digest}"


@pytest.mark.parametrize("program", ["receiver.py", "receiver.mjs"])
def test_the_receivers_of_the_manual_accept_and_refuse(program: str) -> None:
    runner = sys.executable if program.endswith("py") else shutil.which("node")
    if runner is None:
        pytest.skip("there is no node")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [runner, str(RECEIVERS / program), str(port)],
        env={**os.environ, "SECRET": SECRET},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(port, process)
        now = time.time()
        assert post(port, BODY, signed(BODY, now)) == 204
        assert post(port, BODY, signed(BODY, now, OLD, SECRET)) == 204
        assert post(port, BODY, signed(BODY, now, OLD)) == 401
        assert post(port, BODY + b" ", signed(BODY, now)) == 401
        assert post(port, BODY, {}) == 401
    finally:
        process.kill()
        process.wait()


def test_the_manual_shows_the_receivers_as_they_are() -> None:
    manual = (RECEIVERS.parent / "README.md").read_text()
    for program in RECEIVERS.iterdir():
        assert program.read_text() in manual, f"README.md does not show {program.name}"


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until somebody listens."""
    while True:
        assert process.poll() is None
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            continue
        return


def post(port: int, body: bytes, headers: dict[str, str]) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", body, headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=20) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code
