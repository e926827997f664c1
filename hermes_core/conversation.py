"""The commands of the core that act on a conversation. Each acts in one transaction, answer
included."""

from __future__ import annotations

import msgspec

from hermes_core.commands import Call, Command, Effect
from hermes_core.messages import Message, decode_inbound, encode
from hermes_core.store import Tx, inbox, sessions, turns

MAX_LISTED = 20


def stop(tx: Tx, call: Call) -> Effect:
    """Cancel the running turn; keep what waits, or drop it."""
    if call.arguments not in {"", "drop"}:
        return Effect("Use /stop to end the running turn, /stop drop to drop what waits as well.")
    cancelled = turns.cancel(tx, call.session_key, "stopped", call.now)
    freed = 0
    if call.arguments == "drop":
        freed = inbox.end_waiting(tx, call.session_key, "dropped by /stop", call.now, call.sequence)
    waiting = inbox.count_waiting(tx, call.session_key)
    return Effect(_stopped(call, cancelled, freed, waiting), cancelled=cancelled, freed=freed)


def _stopped(call: Call, cancelled: str | None, freed: int, waiting: int) -> str:
    if cancelled is None:
        parts = ["Nothing is running."]
    elif call.acted is False:
        parts = ["Stopped before it did anything: send it again if you still want it."]
    else:
        parts = ["Stopped."]
    if freed:
        parts.append(f"{_messages(freed)} dropped.")
    if waiting:
        parts.append(f"{_messages(waiting)} waiting: answered next. /stop drop would drop them.")
    return " ".join(parts)


def new(tx: Tx, call: Call) -> Effect:
    """Begin a new session: what runs is cancelled, what waits belonged to the old one and ends with
    it."""
    cancelled = turns.cancel(tx, call.session_key, "superseded by /new", call.now)
    freed = inbox.end_waiting(tx, call.session_key, "superseded by /new", call.now, call.sequence)
    ended = sessions.reset(tx, call.session_key, "/new", call.now)
    parts = ["A new session begins."]
    if cancelled is not None:
        parts.append("The running turn was stopped.")
    if freed:
        parts.append(f"{_messages(freed)} that waited will not be answered.")
    return Effect(
        " ".join(parts), cancelled=cancelled, ended=(ended,) if ended else (), freed=freed
    )


def undo(tx: Tx, call: Call) -> Effect:
    """Take the last exchanges out of what the agent remembers."""
    count = int(call.arguments) if call.arguments.isascii() and call.arguments.isdigit() else 0
    if call.arguments and not 1 <= count <= MAX_LISTED:
        return Effect(f"Use /undo, or /undo N with a number from 1 to {MAX_LISTED}.")
    found = sessions.current(tx, call.session_key)
    last = sessions.last_turns(tx, found[0], count or 1) if found else []
    if not found or not last:
        return Effect("There is nothing to undo.")
    for turn_id in last:
        sessions.hide_turn(tx, found[0], turn_id)
    what = "The last exchange is" if len(last) == 1 else f"The last {len(last)} exchanges are"
    return Effect(f"{what} taken back: the agent does not remember it any more.")


def retry(tx: Tx, call: Call) -> Effect:
    """Take the last exchange back and run its message again, right here in the lane."""
    found = sessions.current(tx, call.session_key)
    last = sessions.last_turns(tx, found[0], 1) if found else []
    row = (
        tx.execute(
            "SELECT payload FROM inbox WHERE turn_id = ? AND type = 'message'"
            " ORDER BY sequence DESC LIMIT 1",
            (last[0],),
        ).fetchone()
        if last
        else None
    )
    if found is None or row is None:
        return Effect("There is nothing to try again.")
    if not row[0]:
        return Effect("The last message is not kept any more: send it again.")
    original = decode_inbound(row[0])
    if not isinstance(original, Message):
        return Effect("There is nothing to try again.")
    sessions.hide_turn(tx, found[0], last[0])
    again = msgspec.structs.replace(
        call.event, text=original.text, attachments=original.attachments, quoted=original.quoted
    )
    tx.execute(
        "UPDATE inbox SET type = 'message', payload = ? WHERE sequence = ?",
        (encode(again), call.sequence),
    )
    return Effect(again=True)


def resume(tx: Tx, call: Call) -> Effect:
    """Go back to an earlier session of this chat."""
    listed = sessions.earlier(tx, call.session_key, MAX_LISTED)
    chosen = [row for row in listed if call.arguments and row[0].startswith(call.arguments)]
    if call.arguments.isascii() and call.arguments.isdigit():
        chosen = listed[int(call.arguments) - 1 : int(call.arguments)]
    if len(chosen) != 1:
        return Effect(f"Use /resume NUMBER with one of these.\n{_listing(listed)}")
    found = sessions.current(tx, call.session_key)
    if found is not None and found[0] == chosen[0][0]:
        return Effect("That is the session you are in.")
    ended = sessions.resume(tx, call.session_key, chosen[0][0], call.now)
    return Effect(f"Back in session {chosen[0][0]}.", ended=(ended,) if ended else ())


def list_sessions(tx: Tx, call: Call) -> Effect:
    """List this chat's sessions, or with `all` those of the whole profile."""
    if call.arguments == "all":
        if not call.admin:
            return Effect("/sessions all is for admins. /sessions lists those of this chat.")
        rows = tx.execute(
            "SELECT session_key, COUNT(*), MAX(active_at) FROM session GROUP BY session_key"
            " ORDER BY MAX(active_at) DESC LIMIT ?",
            (MAX_LISTED,),
        ).fetchall()
        return Effect("\n".join(f"{key}: {count} sessions" for key, count, _ in rows))
    if call.arguments:
        return Effect("Use /sessions, or /sessions all.")
    return Effect(_listing(sessions.earlier(tx, call.session_key, MAX_LISTED)))


def _listing(rows: list[tuple[str, float, int, str]]) -> str:
    if not rows:
        return "There are no sessions yet."
    return "\n".join(
        f"{number}. {session_id}: {lines} lines, {' '.join(text.split())[:60]}"
        for number, (session_id, _, lines, text) in enumerate(rows, start=1)
    )


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


COMMANDS = (
    Command("stop", "end the running turn; /stop drop also drops what waits", transact=stop),
    Command("new", "begin a new session", transact=new),
    Command("undo", "take back the last exchange, or the last N", transact=undo, in_order=True),
    Command("retry", "run the last message again", transact=retry, in_order=True),
    Command("resume", "go back to an earlier session", transact=resume, in_order=True),
    Command("sessions", "list the sessions of this chat", transact=list_sessions),
    Command("queue", "answer the text that follows after what runs", rewrite="queue"),
    Command("steer", "hand the text that follows to what runs", rewrite="steer"),
)
