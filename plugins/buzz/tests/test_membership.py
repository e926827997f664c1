"""What the relay says about channels and their members."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hermes_buzz.events import Draft, Event
from hermes_buzz.keys import LocalSigner
from hermes_buzz.membership import Directory
from hermes_buzz.subscriptions import Filter

RELAY, OTHER, ME = LocalSigner("5".zfill(64)), LocalSigner("6".zfill(64)), "a" * 64
ANN, BEN = "b" * 64, "c" * 64


def fact(kind: int, *tags: tuple[str, ...], at: int = 1, by: LocalSigner = RELAY) -> Event:
    return Draft(kind=kind, created_at=at, tags=tags).signed(by)


def known(*events: Event, only: frozenset[str] = frozenset(), key: str = "") -> Directory:
    async def query(filters: Sequence[Filter]) -> list[Event]:
        kinds = [kind for query in filters for kind in query["kinds"]]  # type: ignore[attr-defined]
        return [event for event in events if event.kind in kinds]

    directory = Directory(query, ME, only, key)
    asyncio.run(directory.refresh())
    return directory


def members(channel: str, *keys: str, at: int = 1, by: LocalSigner = RELAY) -> Event:
    return fact(39002, ("d", channel), *(("p", key) for key in (ME, *keys)), at=at, by=by)


def test_kinds_come_from_metadata_alone() -> None:
    directory = known(
        members("pair", ANN),
        members("direct", ANN),
        members("hidden", ANN),
        fact(39000, ("d", "pair"), ("t", "stream"), ("name", "Pair")),
        fact(39000, ("d", "direct"), ("t", "dm")),
        fact(39000, ("d", "hidden"), ("hidden",)),
    )
    kinds = {channel.id: channel.kind for channel in directory.channels.values()}
    assert kinds == {"pair": "channel", "direct": "dm", "hidden": "dm"}
    assert directory.channels["pair"].name == "Pair"


def test_archived_channels_and_those_of_others_are_not_read() -> None:
    directory = known(
        members("old"),
        fact(39000, ("d", "old"), ("archived", "true")),
        fact(39002, ("d", "theirs"), ("p", ANN)),
        members("mine"),
    )
    assert list(directory.channels) == ["mine"]


def test_the_newest_list_counts_and_only_the_relay_s_own() -> None:
    removed = fact(39002, ("d", "left"), ("p", ANN), at=2)
    directory = known(
        members("left"), removed, members("forged", by=OTHER), members("mine"), key=RELAY.public_key
    )
    assert list(directory.channels) == ["mine"]


def test_listed_channels_are_read_whether_the_relay_lists_them_or_not() -> None:
    directory = known(members("a"), members("b"), only=frozenset({"b", "c"}))
    assert list(directory.channels) == ["b", "c"]


def test_a_name_that_two_members_bear_means_nobody() -> None:
    def profile(name: str, signer: LocalSigner) -> Event:
        return Draft(kind=0, created_at=1, content=f'{{"name":"{name}"}}').signed(signer)

    first, second = LocalSigner("7".zfill(64)), LocalSigner("8".zfill(64))
    people = members("c", first.public_key, second.public_key)
    directory = known(people, profile("Ann", first), profile("ann", second))
    assert directory.name(first.public_key) == "Ann"
    assert directory.keys_by_name("c") == {}
    directory = known(people, profile("Ann", first), profile("Ben", second))
    assert directory.keys_by_name("c") == {"ann": first.public_key, "ben": second.public_key}


def test_a_name_means_a_member_of_the_channel() -> None:
    def profile(signer: LocalSigner) -> Event:
        return Draft(kind=0, created_at=1, content='{"name":"Ann"}').signed(signer)

    first, second = LocalSigner("7".zfill(64)), LocalSigner("8".zfill(64))
    lists = members("c", first.public_key), members("d", second.public_key), members("e")
    directory = known(*lists, profile(first), profile(second))
    assert directory.keys_by_name("c") == {"ann": first.public_key}
    assert directory.keys_by_name("d") == {"ann": second.public_key}
    assert directory.keys_by_name("e") == {}


def test_bots_are_members_with_that_role() -> None:
    tags = (("d", "c"), ("p", ME), ("p", ANN, "", "bot"), ("p", BEN, "", "member"))
    assert known(fact(39002, *tags)).channels["c"].bots == {ANN}
