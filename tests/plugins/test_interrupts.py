"""A plugin cannot end the process, and a person still can."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.plugins.support import Installer

RAISING = """
    from hermes_core import hookimpl

    @hookimpl
    async def on_gateway_start():
        raise KeyboardInterrupt

    @hookimpl
    def on_gateway_stop():
        raise SystemExit(9)
"""
GATEWAY = """
import asyncio, sys
from hermes_core import GatewayInfo, hookspecs as specs
from hermes_core.plugins import load_plugins

async def main():
    hooks = load_plugins()
    info = GatewayInfo(version="1", pid=1, profiles=())
    await hooks.start()
    try:
        while not hooks.stats["raising", "on_gateway_start"].errors:
            hooks.notify(specs.on_gateway_start, gateway=info)
            await asyncio.sleep(0)
        print("alive", flush=True)
        await asyncio.get_running_loop().create_future()
    finally:
        hooks.notify(specs.on_gateway_stop, gateway=info)
        await hooks.stop(10)
        print("errors", sum(tally.errors for tally in hooks.stats.values()), flush=True)

asyncio.run(main())
"""


@pytest.mark.case("PL-04")
def test_a_signal_stops_what_a_plugin_cannot(site: Installer) -> None:
    site.install("hermes-plugin-raising", RAISING)
    with subprocess.Popen(
        [sys.executable, "-c", GATEWAY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=site.environment,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "alive\n"
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert output.startswith("errors ")
    assert errors.endswith("KeyboardInterrupt\n")
    assert process.returncode not in {0, 9}


@pytest.mark.case("PL-04")
def test_a_signal_during_an_import_is_not_taken_for_a_fault_of_the_plugin(
    site: Installer,
) -> None:
    source = """
        import os, signal
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            pass
    """
    site.install("hermes-plugin-swallowing", source)
    program = "from hermes_core.plugins import load; load(); print('loaded')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=site.environment,
        timeout=30,
        check=False,
    )
    assert "loaded" not in done.stdout
    assert done.stderr.endswith("KeyboardInterrupt\n")
