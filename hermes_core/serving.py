"""`hermes run`: one process from its start to its end, with signals, drains and restarts."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hermes_core.errors import EXIT_FAILURE, EXIT_NEVER, EXIT_RESTART
from hermes_core.gateway import Gateway, make_home
from hermes_core.startup import prepare
from hermes_core.supervision.exits import ExitLedger
from hermes_core.supervision.lock import HomeLock
from hermes_core.supervision.pulse import Pulse
from hermes_core.supervision.service import READY, manager, stopping, tell
from hermes_core.supervision.trouble import cannot
from hermes_core.supervision.watchdog import ESCORT, Deadline

if TYPE_CHECKING:
    from hermes_core.home import Home
    from hermes_core.redaction import Redactor

log = logging.getLogger(__name__)

START_LIMIT = 300.0
"""Seconds from the lock to a gateway that serves. Imports, migrations and a cold disk fit."""
STOP_MARGIN = 30.0
"""Seconds beyond the grace period for cancelled turns, deliveries, accounts and observers to
end."""
EXECUTOR_GRACE = 2.0
EXIT_GRACE = 5.0
"""Seconds between the end of the gateway and the end of the process: for tasks and threads that
plugins left, and for what libraries do at exit."""
_SUPERVISED = ("INVOCATION_ID", "NOTIFY_SOCKET", "HERMES_SUPERVISED")
"""Variables that say that something starts this process again (systemd.exec(5), sd_notify(3),
ours)."""


def run_gateway(
    home: Home, *, disabled: Sequence[str] = (), redactor: Redactor | None = None
) -> int:
    """Run a gateway until SIGTERM, SIGINT or a request, and return the exit code.

    `redactor` is the one of the logs: it learns every secret before a plugin is loaded.

    A second signal ends the drain at once: what is left stays in the database. A restart without a
    supervisor does not return: the process is replaced by a new one.
    """
    environment = dict(os.environ)
    code = asyncio.run(_serve(home, disabled, redactor, environment))
    if code == EXIT_RESTART:
        _start_again(environment)
    return code


async def _serve(
    home: Home,
    disabled: Sequence[str],
    redactor: Redactor | None,
    environment: Mapping[str, str],
) -> int:
    signals: asyncio.Queue[signal.Signals] = asyncio.Queue()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, signals.put_nowait, number)
    make_home(home)
    with HomeLock(home.lock_path, runs="hermes run") as lock:
        lock.enter("starting")
        ledger = _open_ledger(home)
        try:
            plan = (disabled, redactor)
            code, lingering = await _live(home, plan, lock, ledger, signals)
        except BaseException:
            ledger.end(time.time(), EXIT_FAILURE)
            raise
        ledger.end(time.time(), code, lingering)
    if lingering:
        # The event loop would wait for these for ever.
        log.warning("left behind at the end: %s", ", ".join(lingering))
        _leave(code, environment)
    _see_out(lambda: _leave(code, environment))
    return code


async def _live(
    home: Home,
    plan: tuple[Sequence[str], Redactor | None],
    lock: HomeLock,
    ledger: ExitLedger,
    signals: asyncio.Queue[signal.Signals],
) -> tuple[int, list[str]]:
    """Start, serve, stop. The exit code, and what did not end."""
    disabled, redactor = plan
    service = manager()
    with Deadline(START_LIMIT, code=EXIT_RESTART, report=ledger.report, what="the start"):
        gateway = Gateway(home, prepare(home, disabled=disabled, redactor=redactor))
        await gateway.start()
        _say_who_is_there(gateway)
        settle_memory()
    lock.enter("serving")
    tell(service, READY)
    with Pulse(lambda: _suspect(gateway)) as pulse:
        gateway.held = pulse.facts
        await _first(signals.get(), gateway.stop_requested.wait())
        lock.enter("stopping")
        limit = gateway.grace + STOP_MARGIN
        tell(service, stopping(limit + EXIT_GRACE + ESCORT))
        with Deadline(limit, code=EXIT_FAILURE, report=ledger.report, what="the stop"):
            await _drain(gateway, signals, ledger)
            lingering = [*gateway.lingering, *await _busy_executor()]
    return _code(gateway), lingering


def _say_who_is_there(gateway: Gateway) -> None:
    """A gateway that nobody can write to looks like one that works."""
    accounts = [account for profile in gateway.profiles.values() for account in profile.accounts]
    if all(account.platform.implicit for account in accounts):
        here = "`hermes chat` talks to it here" if accounts else "no plugin of one is installed"
        log.warning(
            "no chat network is configured: %s; `hermes setup`, or [platforms], connects one", here
        )


def _open_ledger(home: Home) -> ExitLedger:
    """Note that a run begins, and say how the last one ended, if not by itself."""
    ledger = ExitLedger(home.state_dir())
    try:
        last = ledger.begin(time.time())
    except OSError as error:
        raise cannot("write down the start", home.state_dir(), error) from error
    if last is not None and not last.clean:
        log.warning("the last run did not end by itself: %s", last.how)
    return ledger


def _suspect(gateway: Gateway) -> str:
    """The plugin code that holds the event loop now, in words."""
    running = gateway.hooks.running
    return f"plugin {running.plugin} in {running.hook}" if running else ""


def _see_out(leave: Callable[[], None]) -> None:
    """Leave after `EXIT_GRACE` seconds if the process is still there then: a task that does not let
    itself be cancelled, or a thread that does not end, would keep it for ever."""

    def see() -> None:
        time.sleep(EXIT_GRACE)
        threads = [
            thread.name
            for thread in threading.enumerate()
            if not thread.daemon and thread is not threading.main_thread()
        ]
        log.warning("the process does not end by itself: %s", ", ".join(threads) or "a task")
        leave()

    threading.Thread(target=see, name="hermes-exit", daemon=True).start()


def settle_memory() -> None:
    """Tell the garbage collector that what exists now stays, and to look less often at what comes.

    A thousand turns at once are a hundred thousand live objects, which the default thresholds make
    it walk over and over: a quarter of all time (`make bench`).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


async def _drain(
    gateway: Gateway, signals: asyncio.Queue[signal.Signals], ledger: ExitLedger
) -> None:
    gateway.stop_requested.set()  # a signal asks for it as well as a command
    log.info("stopping: no new turn begins, running ones may finish")
    draining = asyncio.create_task(gateway.stop(), name="drain")
    await _first(signals.get(), asyncio.shield(draining))
    if not draining.done():
        log.warning("stopping at once: what is unfinished is taken up at the next start")
        ledger.end(time.time(), EXIT_FAILURE, ["whatever ran: a second signal came"])
        _leave(EXIT_FAILURE)
    await draining


def _code(gateway: Gateway) -> int:
    if gateway.restart_wanted:
        return EXIT_RESTART
    return EXIT_NEVER if gateway.failed_for_good else 0


async def _busy_executor() -> list[str]:
    """Blocking work that does not end is named, and not waited for."""
    closing = asyncio.create_task(
        asyncio.get_running_loop().shutdown_default_executor(), name="close the executor"
    )
    done, _ = await asyncio.wait({closing}, timeout=EXECUTOR_GRACE)
    return [] if done else ["blocking work in a thread"]


def _start_again(environment: Mapping[str, str]) -> None:
    """Replace this process, unless something else starts it again. Its lock and files are closed by
    the system; the environment is the one it was started with, secrets included."""
    if any(environment.get(name) for name in _SUPERVISED):
        return
    _flush()
    os.execve(  # noqa: S606 - the same program with the same arguments
        sys.executable, [sys.executable, "-m", "hermes_core.cli", *sys.argv[1:]], environment
    )


def _leave(code: int, environment: Mapping[str, str] | None = None) -> None:
    """End the process without waiting for anything; with `environment`, start again if `code` says
    so."""
    if code == EXIT_RESTART and environment is not None:
        _start_again(environment)
    _flush()
    os._exit(code)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


async def _first(*waits: Coroutine[Any, Any, Any] | asyncio.Future[Any]) -> None:
    """Wait until one is done; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
