"""Default deny, literally: who may speak, who may not, and what is kept of those who may not."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import (
    Accepted,
    Action,
    Deleted,
    DenialInfo,
    Denied,
    Edited,
    Message,
    ProfileScope,
    Reaction,
    Sender,
    Settings,
    hookimpl,
)
from hermes_core import denials as denials_module
from hermes_core.authorization import AccessList, Admitted, Gate, NotAdmitted
from hermes_core.config.sections import (
    AccountSettings,
    AuthorizationSettings,
    ProfileSettings,
)
from hermes_core.errors import ConfigError
from hermes_core.messages import Address, Attachment
from hermes_core.plugins import load_plugins
from hermes_core.secrets import ProfileSecrets
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, WallClock, gateway
from tests.core.support import HASTY, JUDGED, Judge, received, rows, run, until

ADDRESS = Address(platform="line", chat_id="c", kind="group")


def event_of(sender_id: str, name: str = "", chat: str = "c") -> Message:
    return Message(
        address=Address(platform="line", chat_id=chat, kind="group"),
        sender=Sender(id=sender_id, name=name),
        event_id="e",
        text="hello",
        mentions_me=True,
    )


def scope_with(authorizers: Sequence[str]) -> ProfileScope:
    settings = ProfileSettings(authorization=AuthorizationSettings(authorizers=tuple(authorizers)))
    return ProfileScope("default", "uuid", Path("/none"), Path("/none"), settings, ProfileSecrets())


def access(
    *users: str,
    distribution: str = "line",
    normalize: Callable[[str], str] = str,
    **lists: Any,
) -> AccessList:
    settings = AccountSettings(
        platform="line", account="default", settings=Settings(), allowed_users=users, **lists
    )
    return AccessList.build(settings, distribution, normalize)


class Unpaired:
    def has(self, account: str, sender_id: str) -> bool:
        return False


def gate_of(*verdicts: Callable[[Sender], Any], speaks: bool = True) -> Gate:
    """A gate with one plugin for each verdict, that may speak for every platform or for none."""
    plugins = [(f"judge{number}", Judge(verdict)) for number, verdict in enumerate(verdicts)]
    return Gate(
        load_plugins(extra=plugins, path=()),
        scope_with([name for name, _ in plugins] if speaks else []),
        Unpaired(),
    )


def raising(error: BaseException) -> Callable[[Sender], Any]:
    def verdict(sender: Sender) -> Any:
        raise error

    return verdict


def always(value: object) -> Callable[[Sender], Any]:
    return lambda sender: value


# ── lists ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.case("AZ-01")
@pytest.mark.parametrize(
    "section",
    [
        "",
        "[platforms.scripted]\n",
        "[platforms.scripted]\nallowed_users = []\n",
        '[platforms.scripted]\nallowed_users = [""]\n',
        '[platforms.scripted]\nallowed_users = ["   "]\n',
        "[platforms.scripted]\nallow_all = false\n",
    ],
)
def test_nothing_configured_means_nobody(tmp_path: Path, section: str) -> None:
    async def scenario() -> None:
        platform, agent = ScriptedPlatform(allow_all=False), ScriptedAgent()
        async with gateway(tmp_path, platform, agent, config=section):
            for user in ("", " ", "   ", "u1", "*", "None", "bot"):
                assert isinstance(await platform.say("hello", user=user), Denied)
        assert agent.runs == []
        assert platform.attempts == []

    try:
        run(scenario())
    except ConfigError:  # as good: it says which entry can be no id
        assert '" "' in section or '""' in section or '"   "' in section


@pytest.mark.case("AZ-04")
@pytest.mark.parametrize("listed", ["Robin", "42"])
@pytest.mark.parametrize("name", ["Robin", "42", " 42 ", "robin"])
def test_names_grant_nothing(listed: str, name: str) -> None:
    async def scenario() -> None:
        decision = await gate_of().check(event_of("99", name), access(listed))
        assert isinstance(decision, NotAdmitted)

    run(scenario())


@pytest.mark.case("AZ-06")
@pytest.mark.parametrize(
    "sender",
    [
        "１２３",
        "1_23",
        "0123",
        " 123",
        "123 ",
        "+123",
        "123.0",
        "1e2",
        "²",
        "ma\u212ae",
        "ＭＡＫＥ",
        "MAKE",
        "make\u0301",
        "make\u200b",
        "123\n",
        "True",
        "",
    ],
)
def test_look_alikes_are_other_people(sender: str) -> None:
    async def scenario() -> None:
        for users in (access("123", "make"), access("x", admins=("123", "make"))):
            assert isinstance(await gate_of().check(event_of(sender), users), NotAdmitted)
            for same in ("123", "make"):
                assert isinstance(await gate_of().check(event_of(same), users), Admitted)

    run(scenario())


def test_ids_are_compared_in_their_canonical_form_on_both_sides() -> None:
    def normalize(user_id: str) -> str:
        if not user_id.startswith("@"):
            raise ValueError(f"{user_id!r} is no id")
        return user_id.lower()

    async def scenario() -> None:
        users = access("@Robin", normalize=normalize, allow_all=True)
        decision = await gate_of().check(event_of("@ROBIN"), users)
        assert isinstance(decision, Admitted)
        assert decision.event.sender.id == "@robin"
        # Not even everybody includes what can be no id.
        assert isinstance(await gate_of().check(event_of("robin"), users), NotAdmitted)

    run(scenario())
    with pytest.raises(ValueError, match="Robin"):
        access("Robin", normalize=normalize)


def test_a_group_grants_those_who_speak_in_it_and_not_in_a_direct_chat_of_that_id() -> None:
    async def scenario() -> None:
        lists = access(allowed_groups=("c",))
        assert isinstance(await gate_of().check(event_of("9"), lists), Admitted)
        assert isinstance(await gate_of().check(event_of("9", chat="d"), lists), NotAdmitted)
        direct = Message(
            address=Address(platform="line", chat_id="c"),
            sender=Sender(id="9"),
            event_id="e",
            text="",
        )
        assert isinstance(await gate_of().check(direct, lists), NotAdmitted)

    run(scenario())


def test_only_a_listed_admin_is_one() -> None:
    async def scenario() -> None:
        lists = access("1", admins=("2",))
        gate = gate_of(always(True))
        for user, admin in (("1", False), ("2", True), ("3", False)):
            decision = await gate.check(event_of(user), lists)
            assert isinstance(decision, Admitted)
            assert decision.admin is admin

    run(scenario())


# ── plugins ──────────────────────────────────────────────────────────────────────────────────────


async def _coroutine() -> str:
    return "yes"


class Truthy:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return True


BAD: dict[str, Callable[[Sender], Any]] = {
    "a word": always("denied"),
    "no": always("no"),
    "one": always(1),
    "a list": always([]),
    "a mapping": always({}),
    "an object": always(object()),
    "something equal to True": always(Truthy()),
    "False": always(False),
    "a coroutine of a word": lambda sender: _coroutine(),
    "an error": raising(ValueError("scripted")),
    "a system exit": raising(SystemExit(0)),
    "an interrupt": raising(KeyboardInterrupt()),
    "a cancellation": raising(asyncio.CancelledError()),
    "a minute": lambda sender: asyncio.sleep(60, result=True),
}


@pytest.mark.case("AZ-10")
@pytest.mark.parametrize("bad", BAD)
def test_anything_but_true_and_none_is_a_veto(bad: str) -> None:
    async def scenario() -> None:
        for verdicts in ([BAD[bad]], [always(True), BAD[bad]], [BAD[bad], always(True)]):
            decision = await gate_of(*verdicts).check(event_of("1"), access("1", allow_all=True))
            assert isinstance(decision, NotAdmitted)
            assert f"judge{verdicts.index(BAD[bad])}" in decision.reason

    run(scenario(), speed=HASTY)


@pytest.mark.case("AZ-10")
@pytest.mark.parametrize(
    ("verdicts", "admitted"),
    [
        ([], False),
        ([None], False),
        ([None, None], False),
        ([True], True),
        ([None, True], True),
        ([True, None], True),
        ([True, True], True),
        ([True, False], False),
        ([False, True], False),
    ],
)
def test_one_true_and_no_veto_admit(verdicts: list[bool | None], admitted: bool) -> None:
    async def scenario() -> None:
        gate = gate_of(*map(always, verdicts))
        decision = await gate.check(event_of("1"), access("2"))
        assert isinstance(decision, Admitted) is admitted

    run(scenario())


ANSWERS: dict[str, Callable[[Sender], Any]] = {
    "true": always(True),
    "none": always(None),
    **{name: verdict for name, verdict in BAD.items() if name != "a minute"},
}


@given(
    st.lists(st.sampled_from(sorted(ANSWERS)), max_size=4),
    st.sampled_from(["nobody", "the sender", "another", "all", "admins", "group"]),
    st.booleans(),
)
def test_whoever_is_granted_has_a_literal_true_or_a_place_on_a_list_and_no_veto(
    answers: list[str], listed: str, speaks: bool
) -> None:
    lists = {
        "nobody": access(),
        "the sender": access("1"),
        "another": access("2"),
        "all": access(allow_all=True),
        "admins": access(admins=("1",)),
        "group": access(allowed_groups=("c",)),
    }[listed]

    async def scenario() -> None:
        gate = gate_of(*(ANSWERS[answer] for answer in answers), speaks=speaks)
        decision = await gate.check(event_of("1"), lists)
        heard = answers if speaks else []
        granted = "true" in heard or listed not in {"nobody", "another"}
        vetoed = any(answer not in {"true", "none"} for answer in heard)
        assert isinstance(decision, Admitted) is (granted and not vetoed)

    run(scenario())


def test_a_plugin_speaks_for_its_own_distribution_and_for_others_only_when_listed() -> None:
    async def scenario() -> None:
        theirs = access(distribution="judge0")
        for verdict, admitted in ((True, True), (False, False)):
            gate = gate_of(always(verdict), speaks=False)
            assert isinstance(await gate.check(event_of("1"), theirs), Admitted) is admitted
            # Of no consequence on a platform of somebody else, either way.
            assert isinstance(await gate.check(event_of("1"), access("1")), Admitted)
            assert isinstance(await gate.check(event_of("1"), access("2")), NotAdmitted)

    run(scenario())


@pytest.mark.parametrize("error", [RuntimeError("scripted"), SystemExit(1)])
def test_an_adapter_that_cannot_normalise_an_id_denies_it(error: BaseException) -> None:
    from hermes_core import Adapter, Outbound, Platform, Receipt, Settings
    from hermes_core.plugins import normalizer

    class Odd(Adapter[Settings]):
        @staticmethod
        @hookimpl
        def normalize_user_id(user_id: str) -> str:
            raise error

        @hookimpl
        async def connect(self, is_reconnect: bool) -> None: ...

        @hookimpl
        async def send(self, message: Outbound) -> Receipt:
            return Receipt()

    normalize = normalizer(Platform("line", Odd, Settings, max_length=10))

    async def scenario() -> None:
        users = access(normalize=normalize, allow_all=True)
        assert isinstance(await gate_of().check(event_of("1"), users), NotAdmitted)

    run(scenario())


# ── the only way on ──────────────────────────────────────────────────────────────────────────────


def test_nobody_else_makes_an_admitted_event() -> None:
    with pytest.raises(TypeError):
        Admitted(event_of("1"), "me", access(), seal=object())


USES = """\
from hermes_core import Inbound, Message
from hermes_core.authorization import AccessList, Admitted, Gate
from hermes_core.intake import Intake

async def right(gate: Gate, intake: Intake, event: Inbound, access: AccessList) -> None:
    decision = await gate.check(event, access)
    if isinstance(decision, Admitted):
        intake.submit(decision, "key", b"")
        await intake.perform(decision, "key", 1)

async def wrong(gate: Gate, intake: Intake, event: Inbound, access: AccessList) -> None:
    decision = await gate.check(event, access)
    intake.submit(event, "key", b"")                                   # error
    intake.submit(decision, "key", b"")                                # error
    await intake.perform(event, "key", 1)                              # error
    await intake.perform(decision, "key", 1)                           # error
    Admitted(event, "me", admin=True)                                  # error
    decision.event                                                     # error

class Mine(Admitted[Message]): ...                                     # error
"""


def test_a_type_checker_lets_no_event_past_the_gate(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "uses.py").write_text(USES)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", "uses.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(Path(__file__).parents[2]), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    found = {int(n) for n in re.findall(r"^uses\.py:(\d+): error", checked.stdout, re.MULTILINE)}
    planted = {n for n, line in enumerate(USES.splitlines(), 1) if line.endswith("# error")}
    assert found == planted, checked.stdout + checked.stderr


# ── what is kept of those who are denied ─────────────────────────────────────────────────────────


class Listener:
    """Hears what is told about denials."""

    def __init__(self) -> None:
        self.heard: list[DenialInfo] = []

    @hookimpl
    def on_message_denied(self, scope: ProfileScope, denial: DenialInfo) -> None:
        self.heard.append(denial)


def everything_of(sender: Sender, address: Address, secret: str) -> list[Any]:
    """One event of each type, with a secret in every place that holds content."""
    common: dict[str, Any] = {"sender": sender, "address": address}
    return [
        Message(
            **common,
            event_id="1",
            text=secret,
            quoted=secret,
            mentions_me=True,
            attachments=(Attachment(ref=secret, name=secret),),
        ),
        Message(**common, event_id="2", text=f"/stop {secret}", mentions_me=True),
        Edited(**common, event_id="3", message_id="m", text=secret),
        Deleted(**common, event_id="4", message_id="m"),
        Reaction(**common, event_id="5", message_id="m", emoji=secret),
        Action(**common, event_id="6", message_id="m", value=secret),
    ]


@pytest.mark.case("AZ-08")
def test_of_a_denied_event_nothing_is_stored_told_run_or_answered(tmp_path: Path) -> None:
    secret = "the-secret-words"

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(allow_all=False), ScriptedAgent()
        listener = Listener()
        config = '[platforms.scripted]\nallowed_users = ["u1"]\n'
        async with gateway(tmp_path, platform, agent, listener, config=config) as running:
            stranger = Sender(id="u9", name=secret)
            for event in everything_of(stranger, platform.address("c1", kind="group"), secret):
                assert isinstance(await platform.inject(event), Denied)
            await until(lambda: len(listener.heard) == 6)
            assert received(running) == {"received": 6, "denied": 6}
            assert {denial.sender_id for denial in listener.heard} == {"u9"}
            assert secret not in repr(listener.heard)
        assert agent.runs == []
        assert platform.attempts == []

    run(scenario())
    assert rows(tmp_path, "SELECT account, chat_id, sender_id FROM denied") == [
        ("scripted", "c1", "u9")
    ]
    for table in ("inbox", "outbox", "session", "message", "turn"):
        assert rows(tmp_path, f"SELECT * FROM {table}") == []  # noqa: S608
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes()


@pytest.mark.case("AZ-12")
def test_a_stranger_is_noted_once_an_hour_and_never_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "hermes_core.denials")
    clock = WallClock()

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(allow_all=False), ScriptedAgent()
        async with gateway(tmp_path, platform, agent, wall=clock):
            for _ in range(30):
                await platform.say("let me in", user="u9")
            assert len(caplog.records) == 1
            clock.advance(3601)
            await platform.say("let me in", user="u9")
            assert len(caplog.records) == 2
            clock.advance(-86_400)  # a clock that was set back does not silence the log for a day
            await platform.say("let me in", user="u9")
            assert len(caplog.records) == 3
        assert platform.attempts == []

    run(scenario())
    assert rows(tmp_path, "SELECT sender_id, count FROM denied") == [("u9", 32)]


@pytest.mark.case("AZ-12")
def test_strangers_cannot_fill_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denials_module, "MAX_REMEMBERED", 40)

    async def scenario() -> None:
        platform, agent = ScriptedPlatform(allow_all=False), ScriptedAgent()
        async with gateway(tmp_path, platform, agent):
            for number in range(200):
                await platform.say("let me in", user=f"u{number}" + "x" * 10_000)
        assert platform.attempts == []

    run(scenario())
    kept = rows(tmp_path, "SELECT sender_id FROM denied ORDER BY id")
    assert len(kept) == 40
    assert kept[-1][0].startswith("u199x")
    assert all(len(sender) <= 200 for (sender,) in kept)


@pytest.mark.parametrize("place", ["chat", "thread", "user", "event_id"])
@pytest.mark.parametrize("fault", ["\ud83d", "\x00"])
def test_an_id_that_is_no_text_is_nobodys(tmp_path: Path, place: str, fault: str) -> None:
    async def scenario() -> None:
        platform, agent, listener = ScriptedPlatform(), ScriptedAgent(), Listener()
        ids: dict[str, Any] = {place: f"a{fault}"}
        async with gateway(tmp_path, platform, agent, listener) as running:
            assert isinstance(await platform.say("hello", **ids), Denied)
            assert isinstance(await platform.say("ping"), Accepted)
            assert await platform.next_text() == "ping"
            await until(lambda: len(listener.heard) == 1)
            repr(listener.heard).encode()
            assert received(running) == {"received": 2, "denied": 1, "accepted": 1}
        assert len(agent.runs) == 1

    run(scenario())


def test_a_grant_that_is_gone_when_the_turn_would_start_is_gone(tmp_path: Path) -> None:
    async def scenario() -> None:
        allowed = {"u1", "u2"}
        platform, agent = ScriptedPlatform(allow_all=False), ScriptedAgent()
        judge = Judge(lambda sender: True if sender.id in allowed else None)
        gate = agent.gate("first")
        shared = f'{JUDGED}[sessions]\ngroup = "shared"\n'
        async with gateway(tmp_path, platform, agent, ("judge", judge), config=shared):
            assert isinstance(await platform.say("first", kind="group"), Accepted)
            await agent.started(1)
            assert isinstance(await platform.say("waits", user="u2", kind="group"), Accepted)
            assert isinstance(await platform.say("last", kind="group"), Accepted)
            allowed.remove("u2")
            gate.set()
            assert [await platform.next_text() for _ in range(2)] == ["first", "last"]
        assert [turn.texts for turn in agent.runs] == [("first",), ("last",)]

    run(scenario())
    assert rows(tmp_path, "SELECT COUNT(*) FROM message WHERE text = 'waits'") == [(0,)]
