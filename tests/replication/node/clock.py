"""Replace the event loop in tests that need only its clock."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace


class Clock:
    """Runs due calls when the test advances the time; times are in milliseconds."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._due: list[tuple[int, Callable[[], object]]] = []

    def call_later(self, seconds: float, callback: Callable[[], object], *arguments: object):
        due = (self.now_ms + round(seconds * 1000), lambda: callback(*arguments))
        self._due.append(due)
        return SimpleNamespace(cancel=lambda: self._due.remove(due))

    def advance(self, milliseconds: int) -> None:
        for _ in range(milliseconds):
            self.now_ms += 1
            for due in [each for each in self._due if each[0] <= self.now_ms]:
                if due in self._due:
                    self._due.remove(due)
                    due[1]()
