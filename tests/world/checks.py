"""What must be true of a world that has come to rest. Read from its database and its chats."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterator

import msgspec

from hermes_core.messages import Message, Outbound, decode_inbound
from tests.world.world import World

_decode = msgspec.json.Decoder(Outbound).decode
TOLD = {"stopped", "interrupted", "dropped by /stop", "superseded by /new", "timed out"}
"""Reasons to end a message without its answer that a person asked for, or was told."""


def check_at_rest(world: World) -> list[str]:
    """Faults of a world in which everything that could happen has happened."""
    connection = sqlite3.connect(f"{world.database.as_uri()}?mode=ro", uri=True)
    try:
        return [
            *world.faults,
            *_everything_ended(connection, world),
            *_in_order(connection),
            *_answered_once(connection, world),
            *_delivered(connection, world),
            *_chosen(connection, world),
        ]
    finally:
        connection.close()


def check_accepted(world: World) -> list[str]:
    """Faults that show right after the end of a process: what was accepted is there."""
    connection = sqlite3.connect(f"{world.database.as_uri()}?mode=ro", uri=True)
    try:
        found = {row[0] for row in connection.execute("SELECT sequence FROM inbox")}
        return [
            f"C: {text!r} was accepted and is gone"
            for sequence, text in world.accepted.items()
            if sequence not in found
        ]
    finally:
        connection.close()


def _everything_ended(connection: sqlite3.Connection, world: World) -> list[str]:
    faults: list[str] = []
    rows = connection.execute("SELECT sequence, payload, type, state, reason FROM inbox").fetchall()
    for sequence, payload, _, state, _ in rows:
        if not payload and state in {"waiting", "running"}:
            faults.append(f"C: row {sequence} is {state} and erased")
    states = {sequence: (state, reason) for sequence, _, _, state, reason in rows}
    for sequence, payload, _, state, reason in rows:
        if state in {"waiting", "running"}:
            faults.append(f"C: {decode_inbound(payload)!r:.120} is still {state}")
        if state == "dead" and "crash" not in reason:
            faults.append(f"C: row {sequence} is dead: {reason}")
    faults += [
        f"C: {text!r} was accepted and is gone"
        for sequence, text in world.accepted.items()
        if sequence not in states
    ]
    open_turns = connection.execute("SELECT id FROM turn WHERE state = 'running'").fetchall()
    return faults + [f"E: turn {turn} still runs" for (turn,) in open_turns]


def _in_order(connection: sqlite3.Connection) -> list[str]:
    """Turns of a session begin in the order of their messages, as far as they were not cut."""
    faults: list[str] = []
    last: dict[str, int] = defaultdict(int)
    for key, sequence, reason in connection.execute(
        "SELECT turn.session_key, MIN(inbox.sequence), inbox.reason FROM turn"
        " JOIN inbox ON inbox.turn_id = turn.id GROUP BY turn.id ORDER BY turn.rowid"
    ):
        if reason == "steered":
            continue
        if sequence < last[key]:
            faults.append(f"C: {key}: {sequence} was answered after {last[key]}")
        last[key] = sequence
    return faults


def _answered_once(connection: sqlite3.Connection, world: World) -> list[str]:
    """Each message has one answered turn at most, and nobody runs the agent after it."""
    faults: list[str] = []
    rows = connection.execute(
        "SELECT sequence, payload, inbox.reason, turn.state FROM inbox LEFT JOIN turn"
        " ON turn.id = inbox.turn_id WHERE type = 'message'"
    ).fetchall()
    for sequence, payload, reason, state in rows:
        event = decode_inbound(payload or world.erased["inbox", sequence])
        assert isinstance(event, Message)
        runs = [run for run in world.runs if event.text in run.texts]
        habit = event.text.split()[-1]
        crashed = world.habit.end in {"crash", "shutdown"}
        if len(runs) > 1 and not crashed:
            faults.append(f"B: the agent was given {event.text!r} {len(runs)} times")
        if state is None and reason not in TOLD and reason != "the gateway crashed":
            faults.append(f"C: {event.text!r} ended without a turn: {reason!r}")
        known = reason in TOLD or reason == "the gateway crashed"
        if state in {"interrupted", "running"} and not known:
            faults.append(f"C: {event.text!r} ended with a turn that was {state}: {reason!r}")
        if state == "cancelled" and reason not in TOLD:
            faults.append(f"C: {event.text!r} was cancelled, and nobody wanted it: {reason!r}")
        mute = habit in {"fail", "exit", "silent"} and world.habit.busy != "coalesce"
        if state == "answered" and mute and len(runs) == 1:
            faults.append(f"D: {event.text!r} was answered by an agent that gave no answer")
    return faults


def _delivered(connection: sqlite3.Connection, world: World) -> list[str]:
    rows = connection.execute(
        "SELECT sequence, chat_id, payload, state, reason FROM outbox ORDER BY sequence"
    ).fetchall()
    shown = _shown(world)
    faults: list[str] = []
    rows = [
        (sequence, chat, payload or world.erased["outbox", sequence], state, reason)
        for sequence, chat, payload, state, reason in rows
    ]
    for _, _, payload, state, reason in rows:
        message = _decode(payload)
        faults += _fate(message, state, reason, shown.pop(message.id, []), world)
    faults += [f"D: {texts!r} was sent and is in no outbox" for texts in shown.values()]
    places = {_decode(payload).id: (chat, sequence) for sequence, chat, payload, _, _ in rows}
    return [*faults, *_overtaking(world, places), *_answers(connection, world)]


def _shown(world: World) -> dict[str, list[str]]:
    """The messages that arrived for each row of the outbox. An edit shows what it edits again."""
    shown: dict[str, dict[str, str]] = defaultdict(dict)
    for sent in world.platform.sent:
        if sent.message.kind != "preview":
            shown[sent.message.id][sent.message_id] = sent.message.text
    return {row: list(messages.values()) for row, messages in shown.items()}


def _fate(
    message: Outbound, state: str, reason: str, texts: list[str], world: World
) -> Iterator[str]:
    if state in {"pending", "attempting"}:
        yield f"D: {message.text!r} is still {state}"
    if state == "delivered" and not texts:
        yield f"D: {message.text!r} has a receipt and was never sent"
    if state == "expired" and message.kind == "question":
        return
    if state in {"failed", "unknown", "expired"}:
        yield f"D: {message.text!r} was not delivered: {reason}"
    if len(texts) > 1 and (world.habit.kind != "neither" or "[repeated]" not in texts[-1]):
        yield f"D: {message.text!r} was shown {len(texts)} times: {texts!r}"


def _chosen(connection: sqlite3.Connection, world: World) -> list[str]:
    """What people are told that was chosen is what the turn was told, unless it was cut."""
    faults: list[str] = []
    told: dict[str, list[str]] = defaultdict(list)
    for sequence, payload in connection.execute("SELECT sequence, payload FROM outbox"):
        text = _decode(payload or world.erased["outbox", sequence]).text
        if "?\n→ " in text:
            turn, _, choice = text.removeprefix("[repeated] ").partition("?\n→ ")
            told[turn].append(choice)
    for run in world.runs:
        wanted, found = world.chosen.get(run.turn_id), told[run.turn_id]
        cut = run.cancelled or not run.ended
        if len(found) > 1 or (found and not cut and wanted != found[0]):
            faults.append(f"D: {run.turn_id} was told {wanted!r}, and people {found!r}")
    return faults


def _overtaking(world: World, places: dict[str, tuple[str, int]]) -> list[str]:
    """Texts arrive first in the order of the outbox."""
    faults: list[str] = []
    last: dict[str, int] = defaultdict(int)
    seen: set[str] = set()
    for sent in world.platform.sent:
        if sent.message.id in seen or sent.message.id not in places:
            continue
        seen.add(sent.message.id)
        chat, sequence = places[sent.message.id]
        if sequence < last[chat]:
            faults.append(f"D: {sent.message.text!r} overtook another in {chat}")
        last[chat] = sequence
    return faults


def _answers(connection: sqlite3.Connection, world: World) -> list[str]:
    """Each answered turn has its whole answer in the outbox, and only answered ones have one."""
    faults: list[str] = []
    finals: dict[str, str] = defaultdict(str)
    for sequence, payload, turn_id in connection.execute(
        "SELECT sequence, payload, turn_id FROM outbox ORDER BY sequence"
    ):
        message = _decode(payload or world.erased["outbox", sequence])
        if message.kind == "final":
            finals[turn_id] += message.text.removeprefix("[repeated] ")
    for turn_id, state in connection.execute("SELECT id, state FROM turn"):
        said = next((run for run in world.runs if run.turn_id == turn_id), None)
        answer = finals.pop(turn_id, "")
        if state != "answered" and answer:
            faults.append(f"B: turn {turn_id} is {state} and said {answer!r}")
        if state == "answered" and (said is None or not answer.startswith(f"{turn_id}: ")):
            faults.append(f"D: turn {turn_id} is answered and said {answer!r}")
        if (
            state == "answered"
            and said is not None
            and answer != f"{turn_id}: {' | '.join(said.texts)}"
        ):
            faults.append(f"D: turn {turn_id} said {answer!r} in the end")
    return faults
