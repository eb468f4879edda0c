"""Let signals of the operating system stop a subscription, once."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from types import FrameType

DEFAULT_SIGNALS: Final = (signal.SIGTERM,)


class ThreadSignalHandler:
    """Signals that stop what threads use; the handlers are of the main thread."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._before: dict[int, signal._HANDLER] = {}

    def install(self, signals: Iterable[signal.Signals]) -> None:
        """Stop at the first of these.

        Raises:
            ValueError: This is not the main thread.
        """
        for number in signals:
            self._before.setdefault(number, signal.signal(number, self._handle))

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.restore()
        self._stop()

    def restore(self) -> None:
        """Let signals do again what they did before."""
        before, self._before = self._before, {}
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


class LoopSignalHandler:
    """Signals that stop what an event loop uses."""

    def __init__(self, stop: Callable[[], Coroutine[object, object, None]]) -> None:
        self._stop = stop
        self._installed: set[int] = set()
        self._stopping: asyncio.Task[None] | None = None

    def install(self, signals: Iterable[signal.Signals]) -> None:
        """Stop at the first of these.

        Raises:
            RuntimeError: No event loop runs.
            ValueError: It does not run in the main thread.
        """
        loop = asyncio.get_running_loop()
        for number in signals:
            loop.add_signal_handler(number, self._handle)
            self._installed.add(number)

    def _handle(self) -> None:
        self.restore()
        self._stopping = asyncio.create_task(self._stop())

    def restore(self) -> None:
        """Let signals do again what they do by default."""
        installed, self._installed = self._installed, set()
        for number in installed:
            asyncio.get_running_loop().remove_signal_handler(number)
