"""For tests and for trying things out: a relay on loopback that behaves like Buzz, and people.

::

    async with BuzzRelay() as relay:
        alice, bot = Person("alice"), Person("bot")
        channel = relay.channel("general", alice, bot)
        await relay.say(alice, channel, "hello", mentions=[bot])
        answer = await relay.next_event(bot)

Events are stored, served and broadcast by the LocalRelay of the package ``nostr-sdk``, and signed
by that package: that is the second opinion. What Buzz has beyond it is the front of this package:
authentication at once, membership, threads that must exist, queries and files over HTTP.
``pip install 'hermes-plugin-buzz[test]'``.
"""

from hermes_buzz.testing.faults import Faults
from hermes_buzz.testing.people import Person
from hermes_buzz.testing.relay import BuzzRelay
from hermes_buzz.testing.world import (
    QuickBuzz,
    Witness,
    config_for,
    eventually,
    listening,
    talking,
)

__all__ = [
    "BuzzRelay",
    "Faults",
    "Person",
    "QuickBuzz",
    "Witness",
    "config_for",
    "eventually",
    "listening",
    "talking",
]
