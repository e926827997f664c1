"""Tell the Ctrl-C of a person from a KeyboardInterrupt that a plugin raises."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TypeVar

from hermes_core.errors import PluginError

T = TypeVar("T")


class Interrupts:
    """While entered, plugin code can be run so that nothing it raises gets through, but a signal
    does.

    Where Python's own handler of SIGINT is not in place (another thread, a running gateway), a
    signal never shows as an exception in plugin code, and nothing is to be told apart.
    """

    def __init__(self) -> None:
        self._signalled = False
        self._installed = False

    def __enter__(self) -> Interrupts:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)
            self._installed = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def contain(self, function: Callable[[], T], what: str) -> T:
        """Call `function`. Whatever it raises becomes a `PluginError` that begins with `what`.

        Raises KeyboardInterrupt when a person asked for it, even if the plugin swallowed it.
        """
        try:
            result = function()
        except PluginError:
            self._let_signal_through()
            raise
        except BaseException as error:
            self._let_signal_through()
            raise PluginError(f"{what}{type(error).__name__}: {error}") from error
        self._let_signal_through()
        return result

    def _let_signal_through(self) -> None:
        if self._signalled:
            raise KeyboardInterrupt

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._signalled = True
        raise KeyboardInterrupt
