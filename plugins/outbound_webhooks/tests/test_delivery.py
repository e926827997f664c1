from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import hermes_outbound_webhooks
from hermes_core import HermesError, Text, ToolEnd, ToolStart, Turn
from hermes_core.gateway import Gateway
from hermes_core.messages import AgentEvent
from hermes_core.testing import ScriptedAgent, ScriptedPlatform, gateway
from hermes_outbound_webhooks import retry, service
from hermes_outbound_webhooks.delivery import QUEUE
from hermes_outbound_webhooks.signing import verify

Target = Callable[..., str]
SECRET = "correct horse battery staple"


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await work

    asyncio.run(limited())


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE", 0.01)


class Chat:
    """A gateway with the plugin, and somebody who talks."""

    def __init__(self, running: Gateway, platform: ScriptedPlatform) -> None:
        self.running = running
        self.platform = platform

    async def say(self, text: str = "hello") -> str:
        await self.platform.say(text)
        return await self.platform.next_text()

    async def ask(self, **request: object) -> dict[str, Any]:
        services = self.running.profiles["default"].services
        return dict(await services.request("webhooks", request))

    async def row(self, state: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until `count` deliveries have come to `state`."""
        while True:
            rows = (await self.ask(do="deliveries"))["deliveries"]
            found = [row for row in rows if row["state"] == state]
            if len(found) >= count:
                return found


@asynccontextmanager
async def chat(path: Path, config: str, agent: ScriptedAgent | None = None) -> AsyncIterator[Chat]:
    platform = ScriptedPlatform()
    plugins = (platform, agent or ScriptedAgent(), hermes_outbound_webhooks)
    async with gateway(path, *plugins, config=config) as running:
        yield Chat(running, platform)


def test_a_turn_arrives_signed(tmp_path: Path, sink: Any, target: Target) -> None:
    async def main() -> None:
        async with chat(tmp_path, target()) as someone:
            await someone.say("hello")
            arrival = await sink.next()
            document = arrival.document
            assert verify(arrival.body, arrival.headers, [SECRET])
            assert document["hook_event_name"] == arrival.headers["x-hermes-event"] == "on_turn_end"
            assert document["delivery_id"] == arrival.headers["x-hermes-delivery"]
            assert document["extra"]["text"] == "hello"
            assert document["extra"]["outcome"] == "answered"
            assert document["profile"] == "default"
            assert document["session_id"]
            assert document["turn_id"]
            (row,) = await someone.row("delivered")
            assert (row["id"], row["attempts"]) == (document["delivery_id"], 1)

    run(main())


@pytest.mark.case("WH-01")
@pytest.mark.parametrize("status", ["301", "302", "303", "307", "308"])
def test_redirects_are_not_followed(
    tmp_path: Path, sink: Any, target: Target, start_sink: Any, status: str
) -> None:
    other = start_sink()

    async def main() -> None:
        config = target(f"/hook/{status}?to={other.url('/stolen/200')}", max_retries=5)
        async with chat(tmp_path, config) as someone:
            await someone.say()
            await sink.next()
            (row,) = await someone.row("failed")
            assert "redirect" in row["reason"]
            assert row["attempts"] == 1

    run(main())
    assert other.rest() == []
    assert sink.rest() == []


@pytest.mark.case("WH-05")
@pytest.mark.parametrize("answer", ["429;1", "503;1", "429;d2"])
def test_retry_after_is_heeded(tmp_path: Path, sink: Any, target: Target, answer: str) -> None:
    async def main() -> None:
        async with chat(tmp_path, target(f"/hook/{answer},200")) as someone:
            await someone.say()
            first, second = await sink.next(), await sink.next()
            assert second.time - first.time >= 0.9  # a date has whole seconds
            assert second.headers["x-hermes-delivery"] == first.headers["x-hermes-delivery"]
            await someone.row("delivered")

    run(main())
    assert sink.rest() == []


@pytest.mark.case("WH-05")
def test_the_longer_of_both_pauses_counts_and_no_receiver_asks_for_ever() -> None:
    asked = retry.judge(503, "2", 0.0)
    assert retry.pause(1, asked, 0.0) == 2.0
    assert retry.pause(20, asked, 0.0) > 2.0
    assert retry.judge(429, "999999999", 0.0).retry_after == retry.LONGEST_RETRY_AFTER
    assert retry.judge(429, "0000000000006", 0.0).retry_after == 6.0
    assert retry.judge(429, "9" * 5000, 0.0).retry_after == retry.LONGEST_RETRY_AFTER
    far = "Fri, 31 Dec 9999 23:59:59 GMT"
    assert retry.judge(503, far, 0.0).retry_after == retry.LONGEST_RETRY_AFTER
    big = "9" * 20
    for nonsense in (
        *("", "soon", "-5", "1e9", "nan", "Mon, 99 Foo", "\u0663"),
        "Thu, 01 Jan 1970 00:00:00 GMT",
        f"Thu, 01 Jan {big} 00:00:00 GMT",
        f"Thu, 01 Jan 2026 00:00:00 +{big}",
    ):
        assert retry.judge(429, nonsense, 0.0).retry_after == 0.0


ATTEMPTS = {
    **dict.fromkeys(("200", "204", "299"), (1, "delivered")),
    **dict.fromkeys(("304", "400", "401", "404", "410", "413"), (1, "failed")),
    **dict.fromkeys(("408", "429", "500", "502", "504", "reset"), (3, "failed")),
}


@pytest.mark.case("WH-14")
@pytest.mark.parametrize(("answer", "expected"), ATTEMPTS.items())
def test_what_is_retried(
    tmp_path: Path, sink: Any, target: Target, answer: str, expected: tuple[int, str]
) -> None:
    attempts, state = expected

    async def main() -> None:
        async with chat(tmp_path, target(f"/hook/{answer}", max_retries=2)) as someone:
            await someone.say()
            await sink.next(attempts)
            (row,) = await someone.row(state)
            assert row["attempts"] == attempts

    run(main())
    assert sink.rest() == []
    assert len({arrival.headers["x-hermes-delivery"] for arrival in sink.arrivals}) == 1
    assert len({arrival.body for arrival in sink.arrivals}) == 1


@pytest.mark.case("WH-14")
def test_a_refused_connection_is_retried(tmp_path: Path, target: Target) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def main() -> None:
        config = target(url=f"http://127.0.0.1:{port}/", max_retries=2)
        async with chat(tmp_path, config) as someone:
            await someone.say()
            (row,) = await someone.row("failed")
            assert row["attempts"] == 3
            assert "after 3 attempts" in row["reason"]

    run(main())


def test_a_host_that_cannot_be_costs_no_other_target(
    tmp_path: Path, sink: Any, target: Target
) -> None:
    async def main() -> None:
        config = target(name="odd", url="http://ex\u200dample.org/") + target("/hook/200")
        async with chat(tmp_path, config) as someone:
            await someone.say()
            await sink.next()
            (row,) = await someone.row("failed")
            assert (row["target"], row["reason"]) == ("odd", "the url has no host that can be used")

    run(main())


def test_a_date_that_cannot_be_is_no_reason_to_give_up(
    tmp_path: Path, sink: Any, target: Target
) -> None:
    async def main() -> None:
        path = "/hook/503;1%20Jan%2099999999999999999999%2000:00:00%20GMT,200"
        async with chat(tmp_path, target(path)) as someone:
            await someone.say()
            await someone.row("delivered")

    run(main())
    assert len(sink.rest()) == 2


def test_gone_switches_the_target_off(tmp_path: Path, sink: Any, target: Target) -> None:
    async def main() -> None:
        async with chat(tmp_path, target("/hook/410")) as someone:
            await someone.say()
            await someone.row("failed")
            await someone.say()
            await someone.say()
            status = (await someone.ask(do="status"))["targets"]["audit"]
            assert status["state"] == "gone"
            (row,) = await someone.row("failed")
            with pytest.raises(HermesError, match="nothing is sent to audit"):
                await someone.ask(do="replay", id=row["id"])

    run(main())
    assert len(sink.rest()) == 1


@pytest.mark.case("WH-07")
@pytest.mark.parametrize(
    "behaviour", ["hang", "slowhead", "slowbody", "reset", "hugebody", "hugehead"]
)
def test_no_target_delays_a_turn_or_another_target(
    tmp_path: Path, sink: Any, target: Target, start_sink: Any, behaviour: str
) -> None:
    other = start_sink()

    async def main() -> None:
        config = target(f"/bad/{behaviour}", "bad", timeout="1s", max_retries=0)
        config += target(name="good", url=other.url("/good/200"))
        async with chat(tmp_path, config) as someone:
            for _ in range(20):
                await someone.say()
            await other.next(20)
            # Each attempt is over by its deadline, whatever trickles in.
            first, second = await sink.next(), await sink.next()
            assert second.time - first.time < 5
            state = "delivered" if behaviour in ("slowbody", "hugebody") else "failed"
            rows = [row for row in await someone.row(state) if row["target"] == "bad"]
            assert state == "delivered" or rows

    run(main())


async def _tools(turn: Turn) -> AsyncIterator[AgentEvent]:
    for number, name in enumerate(("grep", "write", "grep_all")):
        yield ToolStart(call_id=str(number), name=name, input={"token": "t-0815", "n": number})
        yield ToolEnd(call_id=str(number), name=name, output="out")
    yield Text("done")


def test_a_matcher_chooses_tools_and_an_alias_names_the_event(
    tmp_path: Path, sink: Any, target: Target
) -> None:
    async def main() -> None:
        config = target(events=["post_tool_call", "on_turn_end"], matcher="grep", redact=["token"])
        async with chat(tmp_path, config, ScriptedAgent(_tools)) as someone:
            await someone.say()
            tool, turn = await sink.next(), await sink.next()
            assert tool.document["hook_event_name"] == "post_tool_call"
            assert tool.document["tool_name"] == "grep"
            assert tool.document["tool_input"] == {"token": "[redacted]", "n": 0}
            assert tool.document["extra"]["output"] == "out"
            assert turn.document["hook_event_name"] == "on_turn_end"
            assert turn.document["tool_name"] is None

    run(main())
    assert sink.rest() == []


@pytest.mark.parametrize("overflow", ["drop_newest", "drop_oldest"])
def test_a_full_queue_drops_and_counts(
    tmp_path: Path, sink: Any, target: Target, overflow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "FLUSH", 0.05)

    async def main() -> None:
        config = target("/hook/hang,200", overflow=overflow, timeout="60s")
        async with chat(tmp_path, config) as someone:
            await someone.say("first")
            await sink.next()
            for number in range(QUEUE + 3):
                await someone.platform.say(str(number), chat=f"c{number % 8}")
            for _ in range(QUEUE + 3):
                await someone.platform.next_text()
            while (await someone.ask(do="status"))["targets"]["audit"]["dropped"] < 3:
                await someone.ask(do="deliveries")
            status = (await someone.ask(do="status"))["targets"]["audit"]
            assert (status["dropped"], status["waiting"]) == (3, QUEUE + 1)

    run(main())


@pytest.mark.case("WH-17")
def test_the_end_is_in_time_and_every_event_is_accounted_for(
    tmp_path: Path,
    sink: Any,
    target: Target,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "FLUSH", 0.5)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with chat(tmp_path, target("/hook/200,200,200,hang", timeout="60s")) as someone:
            for number in range(10):
                await someone.platform.say(str(number), chat=f"c{number}")
            for _ in range(10):
                await someone.platform.next_text()
            began = loop.time()
        assert loop.time() - began < 10

    run(main())
    dropped = re.findall(r"(\d+) events were dropped", caplog.text)
    assert dropped == ["7"]
    assert len(sink.rest()) == 4  # three answered, one under way


def test_what_waits_at_the_end_is_flushed(tmp_path: Path, sink: Any, target: Target) -> None:
    async def main() -> None:
        async with chat(tmp_path, target()) as someone:
            for number in range(10):
                await someone.platform.say(str(number), chat=f"c{number}")
            for _ in range(10):
                await someone.platform.next_text()

    run(main())
    assert len(sink.rest()) == 10


def test_a_failed_delivery_is_replayed_under_its_id(
    tmp_path: Path, sink: Any, target: Target
) -> None:
    async def main() -> None:
        async with chat(tmp_path, target("/hook/400,200")) as someone:
            await someone.say()
            (row,) = await someone.row("failed")
            assert (await someone.ask(do="replay", id=row["id"])) == {"target": "audit"}
            await someone.row("delivered")

    run(main())
    first, second = sink.rest()
    assert first.body == second.body


def test_a_change_of_the_settings_counts_at_once(tmp_path: Path, sink: Any, target: Target) -> None:
    async def main() -> None:
        async with chat(tmp_path, target("/old/200", durable=True)) as someone:
            await someone.say()
            assert (await sink.next()).path == "/old/200"
            both = target("/new/200", secret="new one", previous_secret=SECRET, durable=True)
            file = someone.running.home.config_file()
            file.write_text('[agent]\nuse = "scripted"\n' + both)
            path = "/old/200"
            while path != "/new/200":
                await someone.say()
                arrival = await sink.next()
                path = arrival.path
            for secret in (SECRET, "new one"):
                assert verify(arrival.body, arrival.headers, [secret])

    run(main())


def test_a_change_of_the_settings_costs_no_event_of_other_targets(
    tmp_path: Path, sink: Any, target: Target, start_sink: Any
) -> None:
    other = start_sink()

    async def main() -> None:
        config = target("/slow/hang", timeout="60s") + target(name="good", url=other.url("/x/200"))
        async with chat(tmp_path, config) as someone:
            await someone.say("before")
            await sink.next()
            await other.next()
            services = someone.running.profiles["default"].services
            reload = asyncio.create_task(services.restart(["hooks.outbound"]))
            await asyncio.sleep(0)  # it has begun, and waits for what hangs
            await someone.say("meanwhile")
            assert (await other.next()).document["extra"]["text"] == "meanwhile"
            await reload

    run(main())
