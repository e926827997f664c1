"""The section of the settings file, and what loading the plugin costs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from hermes_buzz.settings import BuzzSettings
from hermes_core import Secret

KEY = "5".zfill(64)


def settings(**more: Any) -> BuzzSettings:
    values = {"relay_url": "wss://r.example", "private_key": Secret(KEY), **more}
    return BuzzSettings(**values)


@pytest.mark.parametrize(
    ("relay_url", "http_url"),
    [
        ("wss://r.example", "https://r.example"),
        ("ws://127.0.0.1:7/", "http://127.0.0.1:7"),
        ("WSS://R.Example:443/", "https://r.example"),
        ("ws://r.example:80", "http://r.example"),
        ("ws://r.example:443", "http://r.example:443"),
        ("ws://[::1]:80", "http://[::1]"),
    ],
)
def test_the_http_side_has_the_address_of_the_socket(relay_url: str, http_url: str) -> None:
    """As the relay writes it in the addresses of files."""
    assert settings(relay_url=relay_url).http_url == http_url


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({"relay_url": "https://r.example"}, "relay_url"),
        ({"relay_url": "r.example"}, "relay_url"),
        ({"relay_url": "wss://"}, "relay_url"),
        ({"relay_url": "wss://user:word@r.example"}, "relay_url"),
        ({"relay_url": "wss://r.example/?x"}, "relay_url"),
        ({"private_key": Secret("nsec1")}, "private_key"),
        ({"private_key": Secret("0" * 64)}, "private_key"),
        ({"auth_tag": "[]"}, "auth_tag"),
    ],
)
def test_what_can_never_work_is_refused_by_name(more: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        settings(**more)


def test_the_key_is_not_in_an_error() -> None:
    wrong = KEY[:-1] + "x"
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is looked at below
        settings(private_key=Secret(wrong))
    assert wrong not in str(refused.value)
    assert KEY not in repr(settings())


def test_loading_the_plugin_loads_no_client() -> None:
    code = (
        "import sys, hermes_buzz; print(*{'aiohttp', 'coincurve', 'nostr_sdk'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert result.stdout.strip() == ""
