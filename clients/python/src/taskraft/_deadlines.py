"""Watch many deadlines with one timer of the event loop.

Nearly all deadlines are discarded before they pass. A timer of asyncio for each of them would cost
more than all other work of a short call.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

UNUSED_MIN: Final = 100
"""Minimum number of discarded entries in the heap before the heap is built again."""

Waiter = TypeVar("Waiter")


class Deadlines(Generic[Waiter]):
    """Deadlines of waiters, which are hashable; used on one event loop.

    Invariants: while there are waiters, the timer is not later than the earliest deadline. While
    the event loop is idle, there is no timer without waiters. The heap has at most as many
    discarded entries as waiters, plus `UNUSED_MIN`.
    """

    def __init__(self, passed: Callable[[Waiter], None]) -> None:
        """Store the function that is called for a waiter whose deadline has passed."""
        self._passed = passed
        self._waiters: dict[Waiter, int] = {}
        self._heap: list[tuple[float, int, Waiter]] = []
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._planned = math.inf
        self._is_checking = False

    def add(self, waiter: Waiter, deadline: float) -> None:
        """Watch the deadline of a waiter, by the clock of the event loop, instead of its last one.

        The end is announced once, unless the waiter is discarded before.
        """
        number = self._waiters[waiter] = next(self._numbers)
        heapq.heappush(self._heap, (deadline, number, waiter))
        if deadline < self._planned:
            self._plan(deadline)
        if len(self._heap) > 2 * len(self._waiters) + UNUSED_MIN:
            self._heap = [entry for entry in self._heap if self._is_used(entry)]
            heapq.heapify(self._heap)

    def discard(self, waiter: Waiter) -> None:
        """Watch the deadline of a waiter no longer, if it is watched."""
        self._waiters.pop(waiter, None)
        if not (self._waiters or self._is_checking):
            self._is_checking = True  # another waiter often comes in the same turn of the loop
            asyncio.get_running_loop().call_soon(self._end_unused)

    def _end_unused(self) -> None:
        self._is_checking = False
        if not self._waiters and self._timer is not None:
            self._heap.clear()
            self._timer.cancel()
            self._timer, self._planned = None, math.inf

    def _is_used(self, entry: tuple[float, int, Waiter]) -> bool:
        _, number, waiter = entry
        return self._waiters.get(waiter) == number

    def _plan(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._planned = at
        self._timer = asyncio.get_running_loop().call_at(at, self._end_due)

    def _end_due(self) -> None:
        """Announce the deadlines until now, and plan the next one."""
        now = max(asyncio.get_running_loop().time(), self._planned)  # a timer can be a bit early
        self._timer, self._planned = None, math.inf
        due: list[Waiter] = []
        while self._heap and (self._heap[0][0] <= now or not self._is_used(self._heap[0])):
            entry = heapq.heappop(self._heap)
            if self._is_used(entry):
                del self._waiters[entry[2]]
                due.append(entry[2])
        if self._heap:
            self._plan(self._heap[0][0])
        for waiter in due:
            self._passed(waiter)
