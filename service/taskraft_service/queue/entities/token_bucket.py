"""Limit how often something happens: so many times a second on average, so many at once.

The classical token bucket, in integers and driven by the log's time alone, so that all replicas
agree on it. A full bucket is a pause's worth of takes; it fills up by the rate.
"""

from __future__ import annotations

from typing import Final

WHOLE: Final = 1_000
"""Levels are thousandths: at one take a second, one of them comes each millisecond."""


class TokenBucket:
    """What is left of a rate.

    ``level`` held at ``at_ms``; more has come since then.
    """

    __slots__ = ("at_ms", "burst", "level", "per_second")

    def __init__(self, per_second: int, burst: int, now_ms: int) -> None:
        """Begin full."""
        assert per_second > 0
        assert burst > 0
        self.per_second = per_second
        self.burst = burst
        self.level = burst * WHOLE
        self.at_ms = now_ms

    def left(self, now_ms: int) -> int:
        """Return how many times it may happen now."""
        return max(self._level(now_ms) // WHOLE, 0)

    def use(self, times: int, now_ms: int) -> None:
        """Note that it has happened, also where that was too often: then it takes longer."""
        self.level = self._level(now_ms) - times * WHOLE
        self.at_ms = now_ms

    def due_ms(self) -> int | None:
        """Return from when on it may happen once more; None: it might at once."""
        missing = WHOLE - self.level
        return self.at_ms - (-missing // self.per_second) if missing > 0 else None

    @property
    def is_used_up(self) -> bool:
        """Tell whether it may not have happened once more when that was last looked at."""
        return self.level < WHOLE

    def is_full(self, now_ms: int) -> bool:
        """Tell whether it is as a new one, and was not used up when that was last looked at."""
        return not self.is_used_up and self._level(now_ms) == self.burst * WHOLE

    def change(self, per_second: int, burst: int, now_ms: int) -> None:
        """Go on with another rate, with what is left."""
        self.level = min(self._level(now_ms), burst * WHOLE)
        self.at_ms = now_ms
        self.per_second = per_second
        self.burst = burst

    def _level(self, now_ms: int) -> int:
        come = (now_ms - self.at_ms) * self.per_second
        return min(self.level + come, self.burst * WHOLE)
