from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hermes_outbound_webhooks
from hermes_core import Address, SubagentInfo, ToolCallEnd, TurnEnd, TurnInfo
from hermes_core.plain import BUDGET
from hermes_outbound_webhooks.document import document, facts_of
from hermes_outbound_webhooks.names import ALIASES, EVENTS, TEST

SCHEMA = json.loads(
    Path(hermes_outbound_webhooks.__file__).with_name("event.schema.json").read_text()
)
ADDRESS = Address(platform="scripted", chat_id="c1")
TURN = TurnInfo(
    turn_id="t_1", session_id="s_1", session_key="k", address=ADDRESS, attempt=1, messages=("hi",)
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=15,
)


def body(values: dict[str, object], event: str = "on_turn_end", **options: Any) -> dict[str, Any]:
    """The document of an event, as a strict reader of JSON finds it, checked by the schema."""
    jsonschema = pytest.importorskip("jsonschema")
    facts, cut = facts_of(values)
    defaults: dict[str, Any] = {
        "event": event,
        "profile": "default",
        "delivery_id": "0123456789abcdef" * 2,
        "created_at": 1_700_000_000.5,
        "cut": cut,
        "redact": (),
        "mask": lambda text: text,
    }

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    raw = document(facts, **{**defaults, **options})
    found = json.loads(raw.decode(), parse_constant=refuse)
    jsonschema.validate(found, SCHEMA)
    assert isinstance(found, dict)
    return found


def call(**keys: Any) -> ToolCallEnd:
    return ToolCallEnd(
        turn_id="t_1",
        session_id="s_1",
        session_key="k",
        address=ADDRESS,
        call_id="1",
        **{"name": "grep", **keys},
    )


def test_the_schema_knows_every_event() -> None:
    known = SCHEMA["properties"]["hook_event_name"]["enum"]
    assert sorted(known) == sorted([*EVENTS, *ALIASES, TEST])


def test_the_facts_of_a_turn_stand_where_the_manual_says() -> None:
    found = body({"scope": object(), "turn": TurnEnd(turn=TURN, outcome="answered", text="yes")})
    assert (found["session_id"], found["turn_id"]) == ("s_1", "t_1")
    assert found["timestamp"] == "2023-11-14T22:13:20.500Z"
    assert found["extra"]["text"] == "yes"
    assert found["extra"]["turn"]["messages"] == ["hi"]
    assert (found["tool_name"], found["tool_input"]) == (None, None)


def test_a_tool_and_a_helper_say_whose_they_are() -> None:
    found = body({"call": call(input={"pattern": "x"}, output="2")}, "post_tool_call")
    assert (found["tool_name"], found["tool_input"]) == ("grep", {"pattern": "x"})
    assert (found["turn_id"], found["extra"]["output"]) == ("t_1", "2")
    helper = SubagentInfo(
        turn_id="t_1", session_id="s_1", session_key="k", address=ADDRESS, id="h", name="scout"
    )
    found = body({"subagent": helper}, "subagent_stop")
    assert (found["tool_name"], found["extra"]["name"]) == (None, "scout")


@pytest.mark.case("WH-10")
@given(st.dictionaries(st.text(), ANYTHING, max_size=4), st.text(st.characters()))
def test_whatever_an_agent_yields_becomes_strict_json(given: dict[str, Any], text: str) -> None:
    body({"call": call(input=given, output=text)}, "on_tool_call_end")


@pytest.mark.case("WH-10")
def test_lone_surrogates_nul_and_what_is_no_number() -> None:
    found = body({"call": call(input={"a": float("nan"), "b": 10**40}, output="x\ud800\0😀")})
    assert found["extra"]["output"] == "x?\0😀"
    assert found["tool_input"] == {"a": None, "b": 1e40}


@pytest.mark.case("WH-10")
def test_a_document_is_bounded() -> None:
    many = {str(number): "x" * 1000 for number in range(5000)}
    found = body({"call": call(input=many, output="y" * 1_000_000)}, "on_tool_call_end")
    assert found["extra"]["truncated"] is True
    assert len(json.dumps(found)) < 2 * BUDGET


def test_redacted_keys_are_left_out_at_any_depth() -> None:
    given = {"password": "p1", "deep": [{"Password": {"a": "p2"}}], "text": "t"}
    found = body({"call": call(input=given, output="o")}, redact=["password", "OUTPUT"])
    assert "p1" not in json.dumps(found)
    assert "p2" not in json.dumps(found)
    assert found["extra"]["output"] == "[redacted]"
    found = body({"call": call(input=given)}, redact=["tool_input"])
    assert found["tool_input"] == dict.fromkeys(given, "[redacted]")


def test_known_secrets_are_masked_in_keys_and_values() -> None:
    given = {"tok-123": "see tok-123"}
    found = body({"call": call(input=given)}, mask=lambda text: text.replace("tok-123", "***"))
    assert found["tool_input"] == {"***": "see ***"}


def test_a_known_secret_of_digits_is_masked_where_it_is_a_number() -> None:
    given = {"pin": 80751234, "deep": [{"sum": 80751235}], "yes": True}
    found = body({"call": call(input=given)}, mask=lambda text: text.replace("80751234", "***"))
    assert found["tool_input"] == {"pin": "***", "deep": [{"sum": 80751235}], "yes": True}
