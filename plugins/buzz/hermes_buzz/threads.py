"""Threads by marked e-tags (NIP-10, as Buzz reads it).

A direct reply carries one tag, ``["e", root, "", "reply"]``. A reply further down carries
``["e", root, "", "root"]`` and ``["e", parent, "", "reply"]``. Without a ``reply`` mark there is no
thread, except in the unmarked form of old clients, where the first e-tag is the root and the last
one the parent.
"""

from __future__ import annotations

from typing import NamedTuple

from hermes_buzz.events import ID, MESSAGES, Event


class Place(NamedTuple):
    """Where a message stands: the root of its thread and its parent, "" at the top level."""

    root: str = ""
    parent: str = ""


def place_of(event: Event) -> Place:
    """Where `event` stands."""
    tags = [tag for tag in event.tags if len(tag) > 1 and tag[0] == "e"]
    if event.kind not in MESSAGES or not tags:
        return Place()
    marked = {tag[3]: tag[1] for tag in reversed(tags) if len(tag) > 3 and tag[3]}  # noqa: PLR2004
    if "reply" in marked:
        parent = marked["reply"]
        place = Place(marked.get("root", parent), parent)
    elif marked:
        return Place()
    else:
        place = Place(tags[0][1], tags[-1][1])
    return place if all(map(ID.fullmatch, place)) else Place()


def reply_tags(root: str, parent: str) -> list[tuple[str, ...]]:
    """The tags of a reply to `parent` in the thread `root`."""
    if root == parent:
        return [("e", root, "", "reply")]
    return [("e", root, "", "root"), ("e", parent, "", "reply")]
