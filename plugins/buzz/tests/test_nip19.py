"""Keys in the forms that people write. Vectors: NIP-19, BIP-173; BZ-01 and BZ-02."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hermes_buzz
from hermes_buzz import nip19
from hermes_buzz.adapter import BuzzAdapter
from hermes_core.errors import ConfigError
from hermes_core.startup import prepare
from hermes_core.testing import ScriptedAgent, home_at

NPUB = "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg"
NPUB_HEX = "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e"
NSEC = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5"
NSEC_HEX = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa"
ALICE_HEX = "25e797afccb2558eb50718974c17b011bb937a1032c9f932d9618c77e70c40af"
ALICE = "npub1yhne0t7vkf2cadg8rzt5c9aszxaex7ssxtyljvkevxx80ecvgzhszvl3ep"

normalize = BuzzAdapter.normalize_user_id


def test_the_published_examples() -> None:
    assert nip19.public_key(NPUB) == NPUB_HEX
    assert nip19.npub(NPUB_HEX) == NPUB
    assert nip19.secret_key(NSEC).hex() == NSEC_HEX
    assert nip19.nsec(bytes.fromhex(NSEC_HEX)) == NSEC


@pytest.mark.case("BZ-01")
@pytest.mark.parametrize("form", [ALICE, ALICE_HEX, ALICE.upper(), ALICE_HEX.upper()])
def test_every_form_of_a_key_is_one_identity(form: str) -> None:
    assert normalize(form) == ALICE_HEX


@pytest.mark.case("BZ-02")
@pytest.mark.parametrize(
    "form",
    [
        ALICE[:20].upper() + ALICE[20:],
        ALICE[:20] + ALICE[20:].upper(),
        "NPUB" + ALICE[4:],
        ALICE_HEX[:32].upper() + ALICE_HEX[32:],
    ],
)
def test_mixed_case_is_no_key(form: str) -> None:
    with pytest.raises(ValueError, match="expected npub1"):
        normalize(form)


@pytest.mark.parametrize(
    "form",
    [
        "",
        "*",
        "alice",
        f" {ALICE}",
        f"{ALICE}\n",
        ALICE[:-1],
        ALICE[:-1] + "q",
        ALICE.replace("1", "l"),
        NSEC,
        ALICE_HEX[:-1],
        ALICE_HEX + "0",
        "٣" * 64,
        "npub1" + "q" * 10_000,
        "npub1yhne0t7vkf2cadg8rzt5c9aszxaex7ssxtyljvkevxx80ecvgzhszvl3eé",
        nip19.encode("npub", b"\x01" * 31),
    ],
)
def test_anything_else_is_no_key(form: str) -> None:
    with pytest.raises(ValueError, match="expected npub1"):
        normalize(form)


@pytest.mark.parametrize("number", [0, nip19.ORDER, 2**256 - 1])
def test_a_secret_key_out_of_range_is_refused(number: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        nip19.secret_key(number.to_bytes(32).hex())


def test_a_refused_secret_key_is_not_shown() -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is looked at below
        nip19.secret_key(NSEC[:-1] + "q")
    assert NSEC[5:20] not in str(refused.value)


@given(st.binary(min_size=32, max_size=32))
def test_a_key_comes_back_from_its_text(key: bytes) -> None:
    text = nip19.npub(key.hex())
    assert nip19.public_key(text) == nip19.public_key(text.upper()) == key.hex()


@given(
    st.binary(min_size=32, max_size=32),
    st.integers(5, 62),
    st.sampled_from("qpzry9x8gf2tvdw0s3jn54khce6mua7l"),
)
def test_a_mistyped_key_is_noticed(key: bytes, place: int, symbol: str) -> None:
    text = nip19.npub(key.hex())
    mistyped = text[:place] + symbol + text[place + 1 :]
    if mistyped != text:
        with pytest.raises(ValueError, match="mistyped"):
            nip19.public_key(mistyped)


@pytest.mark.case("BZ-02")
def test_a_list_with_a_mixed_case_key_is_refused_by_name(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(NSEC)
    key.chmod(0o600)
    mixed = ALICE[:20].upper() + ALICE[20:]
    config = (
        '[agent]\nuse = "scripted"\n[platforms.buzz]\nrelay_url = "ws://127.0.0.1:1"\n'
        f'private_key = "file:{key}"\nallowed_users = ["{ALICE.upper()}", "{mixed}"]\n'
    )
    home = home_at(tmp_path / "home", config)
    with pytest.raises(ConfigError) as refused:
        prepare(home, extra=[hermes_buzz, ScriptedAgent()], installed=False)
    assert "allowed_users[1]" in str(refused.value)
    assert "mixed" in str(refused.value)
