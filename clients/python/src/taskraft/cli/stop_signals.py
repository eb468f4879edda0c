"""Ctrl-C and SIGTERM of a command that must first end its work on a task."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType, TracebackType

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Handlers of SIGINT and SIGTERM while the block runs; only for the main thread.

    The handlers count the signals. Inside of `interrupting`, a signal also raises
    `KeyboardInterrupt`.
    """

    def __init__(self) -> None:
        self.number = 0
        """Number of the first signal; 0: none."""
        self.count = 0
        self._is_interrupting = False
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    @contextmanager
    def interrupting(self) -> Iterator[None]:
        """Raise `KeyboardInterrupt` for a signal in the block, or for a signal before the block."""
        self._is_interrupting = True
        try:
            if self.count:
                raise KeyboardInterrupt
            yield
        finally:
            self._is_interrupting = False

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self.number = self.number or number
        if self._is_interrupting:
            raise KeyboardInterrupt
