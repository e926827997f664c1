"""Lists and senders as nobody should write or send them."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core import Accepted, Denied
from hermes_core.config import AccountSettings
from hermes_core.errors import ConfigError
from hermes_core.gateway import hosted
from hermes_core.home import Home
from hermes_core.messages import Address
from hermes_core.policy import AccessList
from hermes_core.settings import Settings
from hermes_core.store import open_read_only
from hermes_core.store.database import connection_of
from tests.profiles.wire import Brain, Wire, echo, wire_section, write_profile

ODD_SENDERS = [
    "",
    " 1",
    "1 ",
    "01",
    "+1",
    "1.0",
    "1\n",
    "１",
    "²",
    "1\x00",
    "1\u200b",
    "\u202e1",
    "NaN",
    "true",
    "-1",
    "1" * 10_000,
    "é" * 10_000,
    "1'; DROP TABLE denied; --",
    "../../etc/passwd",
]


@pytest.mark.case("AZ-06")
def test_odd_senders_are_denied_and_leave_little_behind(home: Home) -> None:
    async def main() -> None:
        wire = Wire()
        write_profile(home, "default", wire_section("1"), "WIRE_TOKEN=100-secret\n")
        async with hosted(home, extra=[wire, Brain(echo)], installed=False):
            await wire.until(lambda wire: bool(wire.contexts))
            for user in ODD_SENDERS:
                assert isinstance(await wire.say(user=user, name="x" * 10_000), Denied), user
            assert isinstance(await wire.say(user="1"), Accepted)
            await wire.until(lambda wire: len(wire.sent) == 1)

    asyncio.run(main())
    database = open_read_only(home.database())
    rows = connection_of(database).execute("SELECT sender_id, chat_id, reason FROM denied")
    assert all(len(text) <= 400 for row in rows.fetchall() for text in row)
    database.close()


@pytest.mark.parametrize(
    "entry",
    ['"*"', '""', '"  "', '"1 # boss"', "7", "1.5", "true", '"1,2"', '"１"', '"1\\n"', "[]"],
)
def test_an_entry_that_can_match_nobody_is_an_error_with_its_place(home: Home, entry: str) -> None:
    async def main() -> None:
        write_profile(home, "default", "", "WIRE_TOKEN=100-secret\n")
        for key in ("allowed_users", "admins", "commands.new", "groups.g.allowed_users"):
            config = f'[platforms.wire]\ntoken = "env:WIRE_TOKEN"\n{key} = ["1", {entry}]\n'
            home.config_file().write_text(f'[agent]\nuse = "brain"\n{config}')
            with pytest.raises(ConfigError) as caught:
                async with hosted(home, extra=[Wire(), Brain(echo)], installed=False):
                    pass
            (fault,) = caught.value.faults
            assert fault.key == f"platforms.wire.{key}[1]"
            assert fault.line == 5

    asyncio.run(main())


def test_a_list_of_100_000_entries(home: Home) -> None:
    async def main() -> None:
        wire = Wire()
        users = [str(number) for number in range(1, 100_001)]
        config = (
            f'[platforms.wire]\ntoken = "env:WIRE_TOKEN"\nallowed_users = {json.dumps(users)}\n'
        )
        write_profile(home, "default", config, "WIRE_TOKEN=200000-secret\n")
        async with hosted(home, extra=[wire, Brain(echo)], installed=False):
            await wire.until(lambda wire: bool(wire.contexts))
            assert isinstance(await wire.say(user="100000"), Accepted)
            assert isinstance(await wire.say(user="100001"), Denied)

    asyncio.run(main())


IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(listed=st.sets(IDS, max_size=5), sender=IDS)
@settings(max_examples=200)
def test_a_list_grants_exactly_those_whose_canonical_form_is_on_it(
    listed: set[str], sender: str
) -> None:
    def normalize(user_id: str) -> str:
        return user_id.strip().casefold() or "nothing"

    account = AccountSettings(
        platform="line",
        account="default",
        settings=Settings(),
        allowed_users=tuple(listed),
    )
    access = AccessList.build(account, "line", normalize)
    granted = access.grants(normalize(sender), Address(platform="line", chat_id="c"))
    assert bool(granted) is (normalize(sender) in set(map(normalize, listed)))
