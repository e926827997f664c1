"""Plugins that are broken, slow, removed or missing, in a gateway that runs."""

from __future__ import annotations

import shutil
import signal

import pytest

from hermes_core.errors import HermesError
from tests.e2e.stage import SETTINGS, Stage, until

ESCAPING = """
import os
from hermes_core import hookimpl

@hookimpl
def on_message_received():
    raise SystemExit(3)

@hookimpl
async def on_turn_start():
    raise KeyboardInterrupt

@hookimpl
async def on_turn_end():
    raise GeneratorExit
"""

UPGRADED = """
from hermes_core import hookimpl

@hookimpl
async def on_turn_end(turn):
    import hermes_plugin_later
"""

SLOW = """
import asyncio, logging, os
from hermes_core import Service, hookimpl

ready = False

class Slow:
    def __init__(self, context):
        pass

    async def start(self):
        global ready
        while not os.path.exists(os.environ["SCENE"] + "/gates/service"):
            await asyncio.sleep(0.01)
        ready = True
        logging.getLogger("slow").warning("the service is ready")

    async def stop(self):
        pass

@hookimpl
def services():
    return [Service("slow", Slow)]

@hookimpl
def on_message_received(message):
    with open(os.environ["SCENE"] + "/seen", "a") as file:
        print(message.event_id, ready, file=file)
"""


@pytest.mark.case("PL-04")
def test_hooks_that_would_end_the_process_do_not_and_ctrl_c_does(stage: Stage) -> None:
    stage.install("escaping", ESCAPING)
    gateway = stage.run().ready()
    for number in range(3):
        stage.say(f"n{number}")
        stage.answered(f"n{number}")
    gateway.logged("on_turn_end")
    assert gateway.process.poll() is None
    gateway.signal(signal.SIGINT)
    assert gateway.wait() == 0
    for name in ("on_message_received", "on_turn_start", "on_turn_end"):
        assert f"failed in {name}" in gateway.log


@pytest.mark.case("PL-04")
def test_a_plugin_that_exits_while_it_is_imported_is_left_out(stage: Stage) -> None:
    stage.install("leaving", "import sys\nsys.exit(5)\n")
    stage.install("interrupted", "raise KeyboardInterrupt\n")
    gateway = stage.run().ready()
    broken = {one["plugin"]: one["reason"] for one in stage.status()[1]["quarantined"]}
    assert "SystemExit" in broken["leaving"]
    assert "KeyboardInterrupt" in broken["interrupted"]
    stage.say("hello")
    stage.answered("hello")
    assert gateway.stop() == 0


@pytest.mark.parametrize("kind", ["missing", "broken"])
def test_without_a_required_plugin_nothing_is_taken_in_and_everything_says_so(
    stage: Stage, kind: str
) -> None:
    if kind == "broken":
        stage.install("needed", "import nothing_like_this\n")
    stage.settings(f'{SETTINGS}[plugins]\nrequired = ["needed"]\n')
    gateway = stage.run().ready()
    reason = "required plugins are missing or broken: needed"
    assert f"nothing is taken in: {reason}" in gateway.log
    code, facts = stage.status()
    assert (code, facts["blocked"]) == (0, reason)
    assert facts["profiles"][0]["accounts"]["wire"] == {"state": "stopped", "reason": reason}
    assert f"nothing is taken in: {reason}" in stage.hermes("status").stdout
    doctor = stage.hermes("doctor")
    assert doctor.returncode == 1
    assert "needed is required, and not there" in doctor.stdout
    with pytest.raises((HermesError, AssertionError)):
        stage.say("hello")
    assert stage.runs() == []
    assert gateway.stop() == 78
    # What is missing is put in its place, and the next start takes everything in.
    stage.settings(SETTINGS)
    second = stage.run().ready()
    stage.say("hello")
    stage.answered("hello")
    assert second.stop() == 0


@pytest.mark.case("PL-16")
def test_a_plugin_that_is_removed_or_upgraded_runs_on_and_status_says_restart(
    stage: Stage,
) -> None:
    stage.install("later", "")
    upgraded = stage.install("upgraded", UPGRADED)
    removed = stage.install("removed", UPGRADED.replace("import hermes_plugin_later", "pass"))
    gateway = stage.run("--disable", "later").ready()
    assert stage.status()[1]["changed"] == []
    shutil.rmtree(removed)
    (stage.site / "hermes_plugin_removed.py").unlink()
    upgraded.rename(upgraded.with_name("hermes_plugin_upgraded-2.0.dist-info"))
    metadata = stage.site / "hermes_plugin_upgraded-2.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 1.0", "Version: 2.0"))
    (stage.site / "hermes_plugin_later.py").unlink()
    stage.say("hello")
    stage.answered("hello")
    line = gateway.logged("failed in on_turn_end")
    assert "No module named 'hermes_plugin_later'" in line
    assert "removed or upgraded since the start?" in line
    assert stage.status()[1]["changed"] == [
        {"plugin": "removed", "runs": "1.0", "installed": ""},
        {"plugin": "upgraded", "runs": "1.0", "installed": "2.0"},
    ]
    shown = stage.hermes("status").stdout
    assert "plugin removed needs a restart: 1.0 runs, nothing is installed" in shown
    assert "plugin upgraded needs a restart: 1.0 runs, 2.0 is installed" in shown
    assert gateway.stop() == 0


@pytest.mark.case("SH-15")
@pytest.mark.case("PL-14")
def test_nothing_is_taken_in_before_a_slow_service_is_ready(stage: Stage) -> None:
    stage.install("slow", SLOW)
    gateway = stage.run()
    until(lambda: stage.status()[1]["state"] == "starting")
    with pytest.raises(HermesError):
        stage.say("too early", event_id="e-early")
    stage.open_gate("service")
    gateway.ready()
    gateway.logged("account=wire")
    assert gateway.log.index("the service is ready") < gateway.log.index("connected (profile")
    # The network offers again what was not taken.
    stage.say("too early", event_id="e-early")
    stage.say("in time", event_id="e-later")
    stage.answered("too early", "in time")
    assert stage.answers() == ["too early", "in time"]
    assert gateway.stop() == 0
    assert (stage.scene / "seen").read_text() == "e-early True\ne-later True\n"


@pytest.mark.case("SH-15")
def test_a_service_that_never_starts_is_named_and_does_not_keep_the_gate_shut(
    stage: Stage,
) -> None:
    stage.settings(f'[gateway]\nstart_grace = "1s"\n{SETTINGS}')
    stage.install("slow", SLOW)
    gateway = stage.run().ready()
    assert stage.profile()["services"]["slow"] == "start was not done within 1 s"
    assert "service slow: start was not done within 1 s" in stage.hermes("status").stdout
    stage.say("hello", event_id="e-hello")
    stage.answered("hello")
    assert gateway.stop() == 0
    assert (stage.scene / "seen").read_text() == "e-hello False\n"
