"""BIP-340 and NIP-OA, by their published vectors."""

from __future__ import annotations

import json

import pytest

from hermes_buzz import ownership
from hermes_buzz.keys import LocalSigner, verify

# bips/bip-0340/test-vectors.csv, rows 0, 1, 5 and 6
VALID = [
    (
        "f9308a019258c31049344f85f89d5229b531c845836f99b08601f113bce036f9",
        "00" * 32,
        (
            "e907831f80848d1069a5371b402410364bdf1c5f8307b0084c55f1ce2dca8215"
            "25f66a4a85ea8b71e482a74f382d2ce5ebeee8fdb2172f477df4900d310536c0"
        ),
    ),
    (
        "dff1d77f2a671c5f36183726db2341be58feae1da2deced843240f7b502ba659",
        "243f6a8885a308d313198a2e03707344a4093822299f31d0082efa98ec4e6c89",
        (
            "6896bd60eeae296db48a229ff71dfe071bde413e6d43f917dc8dcf8c78de3341"
            "8906d11ac976abccb20b091292bff4ea897efcb639ea871cfa95f6de339e4b0a"
        ),
    ),
]
INVALID = [
    (
        "eefdea4cdb677750a420fee807eacf21eb9898ae79b9768766e4faa04a2d4a34",
        "243f6a8885a308d313198a2e03707344a4093822299f31d0082efa98ec4e6c89",
        (
            "6cff5c3ba86c69ea4b7376f31a9bcb4f74c1976089b2d9963da2e5543e177769"
            "69e89b4c5564d00349106b8497785dd7d1d713a8ae82b32fa79d5f7fc407d39b"
        ),
    ),
    (
        "dff1d77f2a671c5f36183726db2341be58feae1da2deced843240f7b502ba659",
        "243f6a8885a308d313198a2e03707344a4093822299f31d0082efa98ec4e6c89",
        (
            "fff97bd5755eeea420453a14355235d382f6472f8568a18b2f057a1460297556"
            "3cc27944640ac607cd107ae10923d9ef7a73c643e166be5ebeafa34b1ac553e2"
        ),
    ),
]
OWNER = "79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798"
AGENT = "c6047f9441ed7d6d3045406e95c07cd85c778e4b8cef3ca7abac09b95c709ee5"
SIGNATURE = (
    "8b7df2575caf0a108374f8471722b233c53f9ff827a8b0f91861966c3b9dd5cb"
    "2e189eae9f49d72187674c2f5bd244145e10ff86c9f257ffe65a1ee5f108b369"
)
CONDITIONS = "kind=1&created_at<1713957000"


@pytest.mark.parametrize(("key", "digest", "signature"), VALID)
def test_valid_signatures(key: str, digest: str, signature: str) -> None:
    assert verify(key, bytes.fromhex(digest), signature)
    assert not verify(key, bytes.fromhex(digest)[::-1] + b"", signature[::-1])


@pytest.mark.parametrize(("key", "digest", "signature"), INVALID)
def test_invalid_signatures(key: str, digest: str, signature: str) -> None:
    assert not verify(key, bytes.fromhex(digest), signature)


def test_a_signer_signs_for_its_public_key_and_hides_its_secret() -> None:
    signer = LocalSigner("3".zfill(64))
    assert signer.public_key == VALID[0][0]
    assert verify(signer.public_key, b"\x07" * 32, signer.sign(b"\x07" * 32))
    assert "3".zfill(64) not in repr(signer)


def test_the_published_owner_tag_holds_for_its_agent_alone() -> None:
    tag = ownership.parse(json.dumps(["auth", OWNER, CONDITIONS, SIGNATURE]))
    assert tag.holds_for(AGENT)
    assert not tag.holds_for(VALID[0][0])
    assert tag.tag == ("auth", OWNER, CONDITIONS, SIGNATURE)


@pytest.mark.parametrize(
    ("conditions", "kind", "date", "covered"),
    [
        ("", 22242, 5, True),
        ("kind=9", 9, 5, True),
        ("kind=9", 22242, 5, False),
        ("created_at<5", 9, 4, True),
        ("created_at<5", 9, 5, False),
        ("created_at>5", 9, 6, True),
        ("created_at>5", 9, 5, False),
        ("kind=9&created_at<5&created_at>1", 9, 3, True),
        ("kind=9&created_at<5&created_at>1", 9, 1, False),
        ("kind=9&kind=7", 9, 3, False),
    ],
)
def test_on_which_events_an_owner_tag_may_be(
    conditions: str, kind: int, date: int, covered: bool
) -> None:
    tag = ownership.parse(json.dumps(["auth", OWNER, conditions, SIGNATURE]))
    assert tag.covers(kind, date) is covered


@pytest.mark.parametrize(
    "changed",
    [
        ["auth", OWNER, "", SIGNATURE],
        ["auth", OWNER, "created_at<1713957000&kind=1", SIGNATURE],
        ["auth", AGENT, CONDITIONS, SIGNATURE],
    ],
)
def test_a_changed_owner_tag_holds_for_nobody(changed: list[str]) -> None:
    assert not ownership.parse(json.dumps(changed)).holds_for(AGENT)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '["auth"]',
        json.dumps(["auth", OWNER, CONDITIONS, SIGNATURE, "more"]),
        json.dumps(["owner", OWNER, CONDITIONS, SIGNATURE]),
        json.dumps(["auth", OWNER.upper(), CONDITIONS, SIGNATURE]),
        json.dumps(["auth", OWNER, CONDITIONS, SIGNATURE.upper()]),
        *(
            json.dumps(["auth", OWNER, conditions, SIGNATURE])
            for conditions in (
                "kind=01",
                "kind=65536",
                "kind=1 ",
                "kind=1&",
                "&kind=1",
                "kind=1&&kind=2",
                "created_at=1",
                "created_at<-1",
                "created_at<4294967296",
                "pubkey=1",
            )
        ),
    ],
)
def test_a_malformed_owner_tag_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|does not begin|condition|digits"):
        ownership.parse(text)
