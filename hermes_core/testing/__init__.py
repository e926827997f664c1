"""For plugin authors and for Hermes itself: a gateway in a test, with a scripted platform and
agent.

::

    async def test_it(tmp_path):
        platform, agent = ScriptedPlatform(), ScriptedAgent()
        async with gateway(tmp_path, platform, agent):
            await platform.say("hello")
            assert await platform.next_text() == "hello"

Everything in it is real except the network and the model: files, SQLite, tasks, the control socket.
"""

from hermes_core.testing import conformance
from hermes_core.testing.agent import AgentRun, ScriptedAgent
from hermes_core.testing.clock import WallClock
from hermes_core.testing.host import gateway, home_at
from hermes_core.testing.platform import (
    OK,
    After,
    Hang,
    Result,
    ScriptedPlatform,
    Sent,
    StoreThenRaise,
)

__all__ = [
    "OK",
    "After",
    "AgentRun",
    "Hang",
    "Result",
    "ScriptedAgent",
    "ScriptedPlatform",
    "Sent",
    "StoreThenRaise",
    "WallClock",
    "conformance",
    "gateway",
    "home_at",
]
