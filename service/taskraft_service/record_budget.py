"""Limit the rate of log records that clients and peers can cause."""

from __future__ import annotations

from collections.abc import Callable


class RecordBudget:
    """A token bucket of log records, which counts the records that it suppresses.

    Args:
        burst: maximum number of records in a burst.
        per_second: number of further records per second.
        seconds: a monotonic clock.
    """

    def __init__(self, burst: int, per_second: float, seconds: Callable[[], float]) -> None:
        self._burst = burst
        self._per_second = per_second
        self._seconds = seconds
        self._left = float(burst)
        self._counted_at = seconds()
        self._suppressed = 0

    def take(self) -> int | None:
        """Request permission to write one record.

        Returns:
            Number of records suppressed since the last permission. None: suppress this record too.
        """
        now = self._seconds()
        gained = (now - self._counted_at) * self._per_second
        self._left = min(self._left + gained, float(self._burst))
        self._counted_at = now
        if self._left < 1:
            self._suppressed += 1
            return None
        self._left -= 1
        suppressed, self._suppressed = self._suppressed, 0
        return suppressed
