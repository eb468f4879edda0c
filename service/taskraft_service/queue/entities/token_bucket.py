"""A token bucket: limits an average rate per second and a burst.

Integers only, and driven by the clock of the log, so that all replicas agree. A bucket starts full
and refills at the rate.
"""

from __future__ import annotations

from typing import Final

WHOLE: Final = 1_000
"""Levels are in thousandths: at a rate of 1 per second, one thousandth comes per millisecond."""


class TokenBucket:
    """The remaining tokens; ``level`` was valid at ``at_ms``, and tokens were added since."""

    __slots__ = ("at_ms", "burst", "level", "per_second")

    def __init__(self, per_second: int, burst: int, now_ms: int) -> None:
        """Start full."""
        assert per_second > 0
        assert burst > 0
        self.per_second = per_second
        self.burst = burst
        self.level = burst * WHOLE
        self.at_ms = now_ms

    def left(self, now_ms: int) -> int:
        """Return the number of whole tokens now."""
        return max(self._level(now_ms) // WHOLE, 0)

    def use(self, times: int, now_ms: int) -> None:
        """Remove tokens; the level may become negative."""
        self.level = self._level(now_ms) - times * WHOLE
        self.at_ms = now_ms

    def due_ms(self) -> int | None:
        """Return the instant of the next whole token; None if one is left."""
        missing = WHOLE - self.level
        return self.at_ms - (-missing // self.per_second) if missing > 0 else None

    @property
    def is_used_up(self) -> bool:
        """Return whether less than one whole token was left at ``at_ms``."""
        return self.level < WHOLE

    def is_full(self, now_ms: int) -> bool:
        """Return whether the bucket is full now and had a whole token at ``at_ms``."""
        return not self.is_used_up and self._level(now_ms) == self.burst * WHOLE

    def change(self, per_second: int, burst: int, now_ms: int) -> None:
        """Set another rate and keep the level."""
        self.level = min(self._level(now_ms), burst * WHOLE)
        self.at_ms = now_ms
        self.per_second = per_second
        self.burst = burst

    def _level(self, now_ms: int) -> int:
        come = (now_ms - self.at_ms) * self.per_second
        return min(self.level + come, self.burst * WHOLE)
