"""Read the clocks of this machine."""

from __future__ import annotations

import time
from typing import Final

_MONOTONIC: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""CLOCK_BOOTTIME advances while the machine sleeps; Linux's CLOCK_MONOTONIC does not."""


def monotonic_ms() -> int:
    """Return a clock value in ms that never goes back and advances while the machine sleeps."""
    return time.clock_gettime_ns(_MONOTONIC) // 1_000_000


def wall_ms() -> int:
    """Return the time of day in ms since the Unix epoch."""
    return time.time_ns() // 1_000_000
