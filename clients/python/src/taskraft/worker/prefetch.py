"""Choose how many tasks a pool receives before a slot is free.

A pool of short handlers is idle for most of a round trip if each task is requested when a slot is
free. A pool of long handlers gains nothing from a task that waits, and the task could run in
another worker. So the number follows from the time between two starts of handlers.
"""

from __future__ import annotations

from typing import Final

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
