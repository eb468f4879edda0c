"""Arithmetic with instants and durations that may be unlimited.

Both are integers in milliseconds. The arithmetic saturates: no result overflows, and unlimited
values stay unlimited (see tarantool/queue issue 191).
"""

from __future__ import annotations

from typing import Final

FOREVER_MS: Final = 100 * 365 * 86_400_000
"""Durations of 100 years (in ms) or more mean "no limit", as in tarantool/queue."""

NEVER_MS: Final = 1 << 62
"""The instant "never"; larger than every other instant, so that ``min`` finds the earliest."""


def after(now_ms: int, duration_ms: int) -> int:
    """Return the instant ``duration_ms`` after ``now_ms``; a negative duration counts as 0."""
    if duration_ms >= FOREVER_MS:
        return NEVER_MS
    return now_ms + duration_ms if duration_ms > 0 else now_ms


def postponed(instant_ms: int, duration_ms: int) -> int:
    """Return an instant moved by a duration; ``NEVER_MS`` stays unchanged."""
    return NEVER_MS if instant_ms >= NEVER_MS else after(instant_ms, duration_ms)


def lengthened(duration_ms: int, by_ms: int) -> int:
    """Return the sum of two durations, at most ``FOREVER_MS``; a negative duration counts as 0."""
    return min(max(duration_ms, 0) + max(by_ms, 0), FOREVER_MS)


def in_wall_time(instant_ms: int, wall_offset_ms: int) -> int:
    """Convert an instant from cluster time to wall time; 0 (no instant) stays 0."""
    return instant_ms + wall_offset_ms if instant_ms else 0


def shown(instant_ms: int) -> int:
    """Return an instant as the contract shows it: 0 for ``NEVER_MS``."""
    return 0 if instant_ms >= NEVER_MS else instant_ms
