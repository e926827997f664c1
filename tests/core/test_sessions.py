"""One key for one session, whoever asks."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hermes_core.messages import Address
from hermes_core.sessions import SessionPolicy, session_key

SHARINGS = ("per_user", "shared")
POLICIES = [SessionPolicy(group, thread) for group in SHARINGS for thread in SHARINGS]  # type: ignore[arg-type]

part = st.text(st.sampled_from("ab:%3A25/ é\n"), min_size=1, max_size=4)
addresses = st.builds(
    Address,
    platform=st.sampled_from(["line", "lin"]),
    account=st.sampled_from(["default", "e", "ops"]),
    chat_id=part,
    thread_id=st.none() | part,
    kind=st.sampled_from(["dm", "group", "channel", "thread"]),
)
profiles = st.sampled_from(["default", "work"])


def speaks_to(
    profile: str, address: Address, user: str, policy: SessionPolicy
) -> tuple[object, ...]:
    """What the key stands for, as a value that cannot be ambiguous."""
    threaded = address.thread_id is not None
    kind = "thread" if threaded and address.kind != "dm" else address.kind
    sharing = policy.thread if kind == "thread" else policy.group
    return (
        profile,
        (address.platform, address.account),
        kind,
        address.chat_id,
        address.thread_id,
        user if kind != "dm" and sharing == "per_user" else None,
    )


@given(st.tuples(profiles, addresses, part), st.tuples(profiles, addresses, part), st.data())
@example(
    ("default", Address(platform="line", chat_id="a:b", kind="group"), "c"),
    ("default", Address(platform="line", chat_id="a", kind="group"), "b:c"),
    None,
)
@example(
    ("default", Address(platform="line", chat_id="a", thread_id="u", kind="group"), "x"),
    ("default", Address(platform="line", chat_id="a", kind="group"), "u"),
    None,
)
@example(
    ("default", Address(platform="line", chat_id="a:", kind="dm"), "x"),
    ("default", Address(platform="line", chat_id="a%3A", kind="dm"), "x"),
    None,
)
def test_two_keys_are_equal_exactly_when_they_mean_the_same_session(
    one: tuple[str, Address, str],
    other: tuple[str, Address, str],
    data: st.DataObject | None,
) -> None:
    policies = POLICIES if data is None else [data.draw(st.sampled_from(POLICIES))]
    for policy in policies:
        same = speaks_to(*one, policy) == speaks_to(*other, policy)
        assert (session_key(*one, policy) == session_key(*other, policy)) is same


@given(profiles, addresses, part)
def test_the_key_begins_with_who_and_where(profile: str, address: Address, user: str) -> None:
    for policy in POLICIES:
        agent, name, account, kind, *rest = session_key(profile, address, user, policy).split(":")
        assert agent == "agent"
        assert name == ("main" if profile == "default" else profile)
        assert account == address.account_key
        assert kind in {"dm", "group", "channel", "thread"}
        assert 1 <= len(rest) <= 3


@pytest.mark.case("TH-02")
def test_the_established_shape() -> None:
    default = SessionPolicy()

    def key(user: str, policy: SessionPolicy = default, **fields: object) -> str:
        return session_key("default", Address(platform="line", **fields), user, policy)  # type: ignore[arg-type]

    assert key("7", chat_id="42") == "agent:main:line:dm:42"
    assert key("7", chat_id="42", thread_id="9") == "agent:main:line:dm:42:9"
    assert key("7", chat_id="42", kind="group") == "agent:main:line:group:42:7"
    assert key("7", chat_id="42", kind="channel") == "agent:main:line:channel:42:7"
    assert key("7", chat_id="42", kind="group", thread_id="9") == "agent:main:line:thread:42:9"
    assert key("7", chat_id="42", account="ops") == "agent:main:line.ops:dm:42"
    assert key("7", chat_id="4:2", kind="group") == "agent:main:line:group:4%3A2:7"
    shared = SessionPolicy("shared", "per_user")
    assert key("7", shared, chat_id="42", kind="group") == "agent:main:line:group:42"
    assert (
        key("7", shared, chat_id="42", kind="group", thread_id="9")
        == "agent:main:line:thread:42:9:7"
    )


@pytest.mark.case("TH-01")
@pytest.mark.parametrize("policy", POLICIES)
def test_a_thread_has_one_key_whoever_opened_it(policy: SessionPolicy) -> None:
    """A platform may call the kind of chat a thread's place has `group`, `channel` or `thread`."""
    keys = {
        session_key(
            "default", Address(platform="line", chat_id="c", thread_id="t", kind=kind), "u", policy
        )
        for kind in ("group", "channel", "thread")
    }
    assert len(keys) == 1


def test_people_and_threads_of_equal_ids_never_share_a_key() -> None:
    ids = ["1", "2", "1:2", "%3A"]
    seen = set()
    for chat, thread, user in itertools.product(ids, [None, *ids], ids):
        address = Address(platform="line", chat_id=chat, thread_id=thread, kind="group")
        seen.add(session_key("default", address, user, SessionPolicy("per_user", "per_user")))
    assert len(seen) == len(ids) * (len(ids) + 1) * len(ids)
