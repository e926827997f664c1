from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_core.profiles import ProfileSecrets
from hermes_core.settings import SecretText
from hermes_outbound_webhooks.client import Client
from hermes_outbound_webhooks.retry import Outcome
from hermes_outbound_webhooks.targets import TargetSettings, make_target

trustme = pytest.importorskip("trustme")


@pytest.fixture
def authority() -> Any:
    return trustme.CA()


@pytest.fixture
def secure(tmp_path: Path, authority: Any, start_sink: Callable[..., Any]) -> Any:
    """A sink with a certificate for 127.0.0.1."""
    certificate = tmp_path / "certificate.pem"
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(certificate))
    return start_sink(certificate)


def post(url: str) -> Outcome:
    async def main() -> Outcome:
        settings = TargetSettings(
            name="a",
            url=url,
            events=("on_turn_end",),
            secret=SecretText("env:S"),
            allow_private=True,
        )
        client = Client(make_target(settings, ProfileSecrets({"S": "x"})))
        try:
            return await client.post(b"{}", {})
        finally:
            await client.close()

    return asyncio.run(main())


def test_a_certificate_that_nobody_vouches_for_is_refused(secure: Any) -> None:
    outcome = post(secure.url("/hook/200"))
    assert outcome.state == "retry"
    assert "certificate" in outcome.reason
    assert secure.rest() == []


def test_a_certificate_of_a_known_authority_is_accepted(
    secure: Any, tmp_path: Path, authority: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "authorities.pem"
    authority.cert_pem.write_to_path(str(bundle))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert post(secure.url("/hook/200")).state == "delivered"


def test_a_certificate_for_another_name_is_refused(
    tmp_path: Path, authority: Any, start_sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, certificate = tmp_path / "authorities.pem", tmp_path / "certificate.pem"
    authority.cert_pem.write_to_path(str(bundle))
    issued = authority.issue_cert("example.org")
    issued.private_key_and_cert_chain_pem.write_to_path(str(certificate))
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert post(start_sink(certificate).url("/hook/200")).state == "retry"
