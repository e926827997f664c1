"""Names on lists: only the platform can turn them into ids, and never into more than was listed."""

from __future__ import annotations

import asyncio

import pytest

from hermes_core import Accepted, Denied
from hermes_core.errors import ConfigError
from hermes_core.gateway import hosted
from hermes_core.home import Home
from tests.profiles.wire import Brain, Wire, echo, eventually, wire_section, write_profile


def write(home: Home, *users: str) -> None:
    write_profile(home, "default", wire_section(*users), "WIRE_TOKEN=100-secret\n")


def test_a_name_stands_for_the_one_id_that_it_leads_to(home: Home) -> None:
    async def main() -> None:
        wire = Wire()
        wire.people = {"@robin": "5", "@mallory": "6", "@nobody": "no id"}
        write(home, "1", "@robin", "@nobody", "@later")
        async with hosted(home, extra=[wire, Brain(echo)], installed=False, settle=0.05) as gateway:
            (account,) = gateway.profiles["default"].accounts
            await eventually(lambda: account.connected)
            for user, outcome in (("1", Accepted), ("5", Accepted), ("6", Denied), ("7", Denied)):
                assert type(await wire.say(user=user)) is outcome

    asyncio.run(main())


def test_what_was_resolved_survives_a_reload_and_new_names_are_resolved(home: Home) -> None:
    async def main() -> None:
        wire = Wire()
        wire.people = {"@robin": "5"}
        write(home, "1", "@robin")
        async with hosted(home, extra=[wire, Brain(echo)], installed=False, settle=0.05) as gateway:
            (account,) = gateway.profiles["default"].accounts
            await eventually(lambda: account.connected)
            wire.people = {"@robin": "5", "@sam": "8"}
            write(home, "2", "@robin", "@sam")
            await eventually(lambda: "8" in account.access.users)
            assert account.access.users == {"2", "5", "8"}
            write(home, "2")
            await eventually(lambda: account.access.users == {"2"})
            assert wire.connected == ["100-secret"]

    asyncio.run(main())


def test_a_name_that_changes_hands_grants_nobody_any_more(home: Home) -> None:
    async def main() -> None:
        wire = Wire()
        wire.people = {"@robin": "5"}
        write(home, "1", "@robin")
        async with hosted(home, extra=[wire, Brain(echo)], installed=False) as gateway:
            (account,) = gateway.profiles["default"].accounts
            await eventually(lambda: account.connected)
            assert isinstance(await wire.say(user="5"), Accepted)
            wire.people = {"@robin": "6"}
            await account.resolve()
            assert account.access.users == {"1"}
            wire.people = {"@robin": "5"}
            await account.resolve()
            assert account.access.users == {"1"}

    asyncio.run(main())


@pytest.mark.case("AZ-04")
def test_a_name_without_its_mark_can_be_no_id_and_is_an_error(home: Home) -> None:
    async def main() -> None:
        write(home, "robin")
        with pytest.raises(ConfigError, match='"robin" can never be a user id on wire'):
            async with hosted(home, extra=[Wire(), Brain(echo)], installed=False):
                pass

    asyncio.run(main())
