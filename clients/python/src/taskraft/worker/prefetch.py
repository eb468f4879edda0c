"""Choose how many tasks a pool receives before a slot is free.

A pool of short handlers is idle for most of a round trip if each task is requested when a slot is
free. A pool of long handlers gains nothing from a task that waits, and the task could run in
another worker. So the number follows from the time between two starts of handlers.
"""

from __future__ import annotations

import asyncio
from typing import Final

from taskraft import AsyncSubscription
from taskraft._async_taken_task import AsyncTakenTask
from taskraft._clock import monotonic

PREFETCH_MAX: Final = 64
"""Maximum number of tasks that a pool receives before a slot is free."""
AHEAD_SECONDS: Final = 0.02
"""Time for which a prefetched task waits for a slot, if handlers take as long as the last ones."""
WAIT_SECONDS_MAX: Final = 1.0
"""Maximum time for which a prefetched task waits for a slot, in seconds; then the worker hands
the task back."""
ENDS_AVERAGED: Final = 16
"""Number of ended handlers over which the time between two starts is averaged."""


class Prefetch:
    """Number of tasks that a pool receives in advance: a power of two, or 0."""

    def __init__(self, slots: int) -> None:
        """Begin without a prefetch.

        Args:
            slots: number of slots of the pool.
        """
        self._slots = slots
        self._seconds_per_start = WAIT_SECONDS_MAX
        self.tasks = 0
        """Number of tasks to receive before a slot is free."""

    def ended(self, seconds: float) -> None:
        """Note for how many seconds a handler has held its slot."""
        change = seconds / self._slots - self._seconds_per_start
        self._seconds_per_start += change / ENDS_AVERAGED
        per_start = max(self._seconds_per_start, AHEAD_SECONDS / PREFETCH_MAX)
        begun = int(AHEAD_SECONDS / per_start)
        self.tasks = 1 << begun.bit_length() - 1 if begun else 0

    def stop(self) -> None:
        """Begin again without a prefetch, because a task has waited too long."""
        self._seconds_per_start = max(self._seconds_per_start, WAIT_SECONDS_MAX)
        self.tasks = 0


class PrefetchCredit:
    """Gives the server credit for the prefetch of one subscription, and bounds the wait.

    Args:
        subscription: has credit for its slots and for `tasks_max`.
        prefetch: prefetch of the pool.
        slots: number of slots for which the subscription has credit.
        tasks_max: maximum prefetch of the subscription.
    """

    def __init__(
        self, subscription: AsyncSubscription, prefetch: Prefetch, slots: int, tasks_max: int
    ) -> None:
        self.subscription: Final = subscription
        """Receives the tasks."""
        self._prefetch = prefetch
        self._slots = slots
        self._tasks_max = tasks_max
        self._given = tasks_max
        self._waiting: AsyncTakenTask | None = None
        self._is_full = False
        self._timer: asyncio.TimerHandle | None = None
        self.adjust()

    def adjust(self) -> None:
        """Give or withhold credit, so that the credit fits the prefetch of the pool."""
        wanted = min(self._prefetch.tasks, self._tasks_max)
        if wanted != self._given:
            self.subscription.withhold(self._given - wanted)
            self._given = wanted

    def waits(self, taken: AsyncTakenTask) -> None:
        """Note that a task waits for a slot; tasks that arrived later wait behind it."""
        self._waiting = taken
        self._is_full = True
        if self._timer is None:
            self._check_in(taken.lease.started + WAIT_SECONDS_MAX - monotonic())

    def begins(self) -> bool:
        """Note that the waiting task has a slot; return False if it was handed back before."""
        self._is_full = False
        waiting, self._waiting = self._waiting, None
        return waiting is not None

    async def end(self) -> None:
        """Receive no more tasks, and hand back the tasks without a slot."""
        waiting, self._waiting = self._waiting, None
        self._is_full = False
        if self._timer is not None:
            self._timer.cancel()
        await self.subscription.stop([] if waiting is None else [waiting])

    def _check_in(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._check)

    def _check(self) -> None:
        """Hand back all tasks without a slot, if the first one waits too long."""
        self._timer = None
        if not self._is_full:
            return
        waiting = self._waiting
        if waiting is not None:
            left = waiting.lease.started + WAIT_SECONDS_MAX - monotonic()
            if left > 0:
                self._check_in(left)
                return
        self._prefetch.stop()
        self.adjust()
        if self.subscription.unsettled > self._slots:
            self._waiting = None
            self.subscription.hand_back([] if waiting is None else [waiting])
        # The server sends more tasks while it has credit left from before.
        self._check_in(WAIT_SECONDS_MAX)
