"""The client on an event loop in a thread of its own.

A terminal is read by blocking calls, and only the main thread is woken by Ctrl-C. So the main
thread has the terminal and nothing else; the gateway's connection, and the gateway itself where
this process is the one, live here.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from hermes_console.client import Client
from hermes_console.question import Reply


class Background:
    """Runs a client as long as the context lasts. Leaving it waits until all of it has ended.

    `host` is entered first and left last. `ended` is called, on the loop's thread, if the client
    ends by itself: then `check` and the replies that are waited for raise what ended it.
    """

    def __init__(
        self,
        host: Callable[[], AbstractAsyncContextManager[object]],
        client: Callable[[], Client],
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._host = host
        self._make_client = client
        self._ended = ended
        self._started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._error: BaseException | None = None
        # A daemon, so that a second Ctrl-C can leave while a drain is still going on.
        self._thread = threading.Thread(target=self._run, name="chat client", daemon=True)

    def __enter__(self) -> Background:
        """Raises what `host` raises."""
        self._thread.start()
        self._started.result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def ask(self, text: str) -> concurrent.futures.Future[Reply]:
        """Send a message. The result is its reply, or the error that ended the client."""
        return asyncio.run_coroutine_threadsafe(self._unless_ended(text), self._loop)

    def cancel(self) -> None:
        """Stop the turn that runs."""
        asyncio.run_coroutine_threadsafe(self._client.cancel(), self._loop)

    def check(self) -> None:
        """Raise what ended the client, if something did. Not for the loop's own thread."""
        if self._running.cancelled():  # with the gateway that lived here, and the thread ends too
            self._thread.join()
            if self._error is not None:
                raise self._error
        elif self._running.done():
            self._running.result()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # it is raised in the other thread
            if self._started.done():
                self._error = error
            else:
                self._started.set_exception(error)

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with self._host():
            self._client = self._make_client()
            self._running = asyncio.create_task(self._client.run(), name="chat client")
            self._running.add_done_callback(lambda _: self._ended())
            self._started.set_result(None)
            await self._stop.wait()
            self._running.cancel()
            await asyncio.wait({self._running})

    async def _unless_ended(self, text: str) -> Reply:
        asking = asyncio.create_task(self._client.ask(text), name="ask")
        try:
            await asyncio.wait({asking, self._running}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                self._running.result()
            return await asking
        finally:
            asking.cancel()
