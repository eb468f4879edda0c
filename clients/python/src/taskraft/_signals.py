"""Stop a subscription at the first signal of the operating system."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from types import FrameType

DEFAULT_SIGNALS: Final = (signal.SIGTERM,)


class ThreadSignalHandler:
    """Signal handlers for a blocking subscription; installed in the main thread."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._before: dict[int, signal._HANDLER] = {}

    def install(self, signals: Iterable[signal.Signals]) -> None:
        """Call `stop` at the first of these signals.

        Raises:
            ValueError: this is not the main thread.
        """
        for number in signals:
            self._before.setdefault(number, signal.signal(number, self._handle))

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.restore()
        self._stop()

    def restore(self) -> None:
        """Restore the previous handlers."""
        before, self._before = self._before, {}
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


class LoopSignalHandler:
    """Signal handlers for an asyncio subscription."""

    def __init__(self, stop: Callable[[], Coroutine[object, object, None]]) -> None:
        self._stop = stop
        self._installed: set[int] = set()
        self._stopping: asyncio.Task[None] | None = None

    def install(self, signals: Iterable[signal.Signals]) -> None:
        """Call `stop` at the first of these signals.

        Raises:
            RuntimeError: no event loop runs.
            ValueError: the event loop does not run in the main thread.
        """
        loop = asyncio.get_running_loop()
        for number in signals:
            loop.add_signal_handler(number, self._handle)
            self._installed.add(number)

    def _handle(self) -> None:
        self.restore()
        self._stopping = asyncio.create_task(self._stop())

    def restore(self) -> None:
        """Restore the default actions of the signals."""
        installed, self._installed = self._installed, set()
        for number in installed:
            asyncio.get_running_loop().remove_signal_handler(number)
